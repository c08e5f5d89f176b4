"""The contract of a session: it owns the blobs and runs the groups of a job.

The runner decides what happens; a session makes it happen where the values are.  On a cluster the
values must stay where they are, so the runner sees scalars, tokens and digests, never blobs.
``tests/contracts/`` holds what every session must obey.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Plan
from jobrun.core.events import Report, ignore
from jobrun.core.paths import start_directory
from jobrun.core.position import Position
from jobrun.model.job import Job
from jobrun.usercode.environment import versions

if TYPE_CHECKING:  # a worker process needs none of it
    from jobrun.checkpoint.part_source import PartSource

__all__ = ["NO_SCRATCH", "Control", "Places", "Session"]

NO_SCRATCH: Mapping[str, Iterable[str]] = {}


@dataclass
class Control:
    """The runner's orders to a session while a group runs.

    ``cut()`` true: start no new task and no new batch; let running ones end; ``run`` then returns
    the position reached.  ``interrupted()`` true: the run ends, and programs are ended too.
    ``report`` receives events.  All of them are called from any thread.  ``every_task`` requests an
    event for each task.  ``look()`` is called a few times a second while a group runs, on the
    thread that called ``run`` or ``run_loop``.  ``spent()`` receives, where there are several
    nodes, the seconds that the tasks of each node have taken, once they have run.

    Batches are counted along the graph, so that their number depends on the job alone: a pipe
    begins with the largest count that the units before it have ended with.  ``applied(count)`` is
    called after each batch of the group's run, and once at its end.  Where ``batches_left()``,
    asked once at its beginning, is a number, nothing starts behind as many batches; the run ends
    when nothing else is left to do.  It is a number only for a job whose ``checkpoint.every`` has
    ``batches``.
    """

    cut: Callable[[], bool] = lambda: False
    applied: Callable[[int], None] = lambda count: None
    report: Report = ignore
    every_task: bool = False
    interrupted: Callable[[], bool] = lambda: False
    look: Callable[[], None] = lambda: None
    batches_left: Callable[[], int | None] = lambda: None
    spent: Callable[[Mapping[str, float]], None] = lambda seconds: None
    run_dir: str | None = None
    """The directory of the run, empty without one; of several in a process each logs its own."""


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of a run: the spec's folder and the run directory (None: none).

    ``code_dir`` is where the modules of the job are (None: in the spec's folder).  ``start`` is the
    base of relative paths if there is no spec; a task may change the current directory.
    """

    spec_dir: Path | None = None
    run_dir: Path | None = None
    check: bool = False
    """Whether inputs are checked for silent changes around every task."""
    start: Path = field(default_factory=start_directory)
    code_dir: Path | None = None

    @property
    def code(self) -> Path | None:
        """The directory of the modules of the job."""
        return self.code_dir if self.code_dir is not None else self.spec_dir

    @property
    def folder(self) -> Path:
        """The base directory of the relative paths of a job."""
        return self.spec_dir if self.spec_dir is not None else self.start

    def texts(self, node: str) -> dict[str, str]:
        """Return the values of ``${…}`` on a node."""
        found = {"node": node}
        if self.spec_dir is not None:
            found["spec.dir"] = str(self.spec_dir)
        if self.run_dir is not None:
            found["run.dir"] = str(self.run_dir)
            found["run.name"] = self.run_dir.name
        return found


class Session(ABC):
    """Runs the groups of one job at a time; see LocalSession for the details of each method.

    Where nodes can be lost, every method but ``open`` and ``close`` may raise WorkerLostError;
    ``open`` then creates the nodes again.  ``max_restarts`` is how often a run may do that by
    itself.
    """

    max_restarts: int = 0
    control: Control = Control()
    """Asked by ``open`` while it waits; once ``interrupted``, it returns without nodes."""

    @property
    @abstractmethod
    def description(self) -> str:
        """A short description for people: ``local, 2 threads``."""

    @abstractmethod
    def open(self, job: Job, places: Places, analysis: JobAnalysis | None = None) -> None:
        """Bind the functions of ``job`` and create empty stores; raises BindError.

        ``analysis`` is the one of ``job``, if the caller has it already.
        """

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the libraries there: see ``jobrun.usercode.environment``."""
        return versions()

    @abstractmethod
    def run(self, plan: Plan, position: Position, control: Control) -> Position:
        """Run a group from ``position`` on, and return the position reached.

        ``tasks`` of the result holds all its tasks if the group is finished; fewer if ``control``
        cut it.  Raises the first TaskError.
        """

    def run_loop(self, loop: Callable[[], None], look: Callable[[], None]) -> None:
        """Call ``loop``, which runs a group again and again; raises what it raises.

        A session may call it on another thread, from which a run starts faster; ``look`` is then
        called a few times a second on this one, where signals are served.
        """
        loop()

    @abstractmethod
    def end_epoch(self) -> None:
        """Drop the scratch of the epoch: what is neither persistent nor of ``setup``."""

    @abstractmethod
    def scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of one-element blobs by name, None for those that are None.

        Blobs that were not written are absent: a blob that tasks of ``epoch`` write is absent if
        none of them has written it in the current epoch, or in the last one that ran.  Raises
        TaskError, naming the blob, for one with more than one element.
        """

    @abstractmethod
    def written(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the named blobs that were written in the current or the last epoch."""

    @abstractmethod
    def resume_epoch(self, epoch: int, written: Iterable[str]) -> None:
        """Continue inside ``epoch``, in which the blobs ``written`` have already been written."""

    @abstractmethod
    def snapshot(self, scratch: Mapping[str, Iterable[str]] = NO_SCRATCH) -> PartSource | None:
        """Return the current persistent blobs, by reference, and the named scratch that has values.

        Returns None if some of that scratch cannot be saved, so that the save must wait for a later
        place.
        """

    def read_ahead(self, directory: Path, parts: Iterable[str], size: int) -> None:  # noqa: B027
        """Start to read parts of a checkpoint of ``size`` bytes, which ``load_part`` may be for.

        Only the time that ``load_part`` takes depends on it, and a session may ignore it.
        """

    @abstractmethod
    def load_part(
        self, node: str, directory: Path, part: str | None = None, copied: bool = False
    ) -> int:
        """Read and verify a node's part of a checkpoint, beside the blobs; return its bytes.

        ``part`` is the name of the part in the checkpoint, if it differs from ``node``.  With
        ``copied`` it is another node's too: then the global generators of ``node`` stay as they
        were seeded for it.
        """

    def load_parts(
        self, directory: Path, parts: Mapping[str, str], copied: Collection[str] = ()
    ) -> dict[str, tuple[int, float]]:
        """Call ``load_part`` for ``{node: part}``; return the bytes and seconds of each node."""
        loaded = {}
        for node, part in parts.items():
            start = time.perf_counter()
            size = self.load_part(node, directory, part, node in copied)
            loaded[node] = (size, time.perf_counter() - start)
        return loaded

    @abstractmethod
    def take_over(self) -> None:
        """Replace all blobs by those that ``load_part`` staged, on every node."""

    @abstractmethod
    def load_best(
        self, directory: Path, names: Mapping[str, Iterable[str]], parts: Mapping[str, str]
    ) -> None:
        """Read ``names`` (per node) of the best checkpoint, for ``best:…``; ``{node: part}``."""

    @abstractmethod
    def blob(self, name: str) -> Any:
        """Return a blob's value (read-only) by name; raises TaskError if there is none."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all blobs, with ``node:`` in front if there are several nodes."""

    @abstractmethod
    def close(self) -> None:
        """End threads and connections; the blobs stay readable."""
