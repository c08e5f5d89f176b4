"""LocalSession: the blobs in this process, the tasks on a few threads of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.dataflow import inner_steps, pipe_of_last_batch
from jobrun.analysis.graph import Plan
from jobrun.analysis.names import key_of
from jobrun.analysis.persistence import persistent, ranks, setup_blobs
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.reading import read_part
from jobrun.core.blob_paths import PathSet, outermost
from jobrun.core.events import Warned
from jobrun.core.position import Position
from jobrun.core.suggestions import did_you_mean
from jobrun.errors import TaskError, Where, with_article
from jobrun.model.job import GENERATORS, Job
from jobrun.model.options import Load
from jobrun.model.shell import Shell
from jobrun.session.base import NO_SCRATCH, Control, Places, Session
from jobrun.session.binding import Binding
from jobrun.session.generators import Generators
from jobrun.session.live_objects import LiveObjects
from jobrun.session.parts_ahead import PartsAhead
from jobrun.session.scheduler import Scheduler
from jobrun.session.shell.task_folder import remove_leftovers
from jobrun.session.stores import Stores
from jobrun.session.task_group import Group
from jobrun.session.torch_views import watch_views
from jobrun.session.unnamed_objects import check_named
from jobrun.session.written_blobs import Written
from jobrun.usercode.bind import bind_adapter, bind_job
from jobrun.values.adapted import INTEGER
from jobrun.values.borrowing import reclaim
from jobrun.values.boxes import Box, Tree, Value, leaves, one_element
from jobrun.values.buffers import BUFFERS
from jobrun.values.storable import is_storable
from jobrun.values.views import view
from jobrun.values.workspace import Workspace

__all__ = ["LocalSession", "LocalSnapshot"]


def default_threads() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class LocalSnapshot(BlobSource):
    """The blobs at an instant, per node, by reference."""

    blobs: dict[str, dict[str, Value]]

    def release(self) -> None:
        """Release the snapshot; memory that only it held is reused for later copies."""
        for blobs in self.blobs.values():
            for name in blobs:
                reclaim(blobs, name)
            blobs.clear()


class LocalSession(Session):
    """Runs a job in this process, ``threads`` tasks at a time.

    The default is the number of cores that this process may use.  The results do not depend on the
    number.  Raises ValueError if it is less than one.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"expected 1 or more threads, got {threads}")
        self.threads = threads or default_threads()
        self._scheduler = Scheduler(self.threads)
        self._stores = Stores()
        self._groups: dict[str, Group] = {}
        self._staged: dict[str, dict[str, Value]] = {}
        self._ahead = PartsAhead()

    @property
    def description(self) -> str:
        """``local, 2 threads``."""
        return f"local, {self.threads} thread{'s' if self.threads != 1 else ''}"

    def open(self, job: Job, places: Places, analysis: JobAnalysis | None = None) -> None:
        """Bind the functions of ``job`` and create empty stores; raises BindError."""
        named = bind_job(job, places.code, places.spec_dir)
        steps = [s for g in job.groups.values() for t in g.tasks for s in inner_steps(t)]
        functions = {
            id(step): named[step.fn] if isinstance(step.fn, str) else step.fn
            for step in steps
            if not isinstance(step.fn, Shell | Load)
        }
        watch_views()
        if any(isinstance(step.fn, Shell) for step in steps):
            remove_leftovers()
        self.close()
        # One task at a time under --check: another task's change would blame the wrong one.
        self._scheduler = Scheduler(1 if places.check else self.threads)
        self._job = job
        self._analysis = analysis = analysis or JobAnalysis(job)
        self._persistent = persistent(analysis)
        self._rebuilt = setup_blobs(analysis)
        self._lasting = {
            node: frozenset((*self._persistent[node], *paths))
            for node, paths in self._rebuilt.items()
        }
        own_ranks = ranks(analysis)
        self._stores = Stores(
            {n: Workspace(own_ranks[n]) for n in self._nodes_of(job)},
            written=Written(analysis.writes_of("epoch")),
        )
        if job.generators:
            own = self._nodes_of(job)
            self._stores.generators = Generators(job.generators, job.seed, own)
        self._stores.live = self._live_objects(places.code)
        kept = PathSet((node, path) for node, paths in self._persistent.items() for path in paths)
        self._binding = Binding(analysis, self._stores, functions, places, kept, self._scheduler)
        self._groups = {}
        self._staged = {}

    def _live_objects(self, folder: Path | None) -> LiveObjects | None:
        """Return what reads and restores the objects that ``state`` names, None without any."""
        job, live = self._job, self._analysis.live
        if not (job.state or job.constant):
            return None
        named = {name: a for name, a in job.state.items() if a is not None}
        adapters = {name: bind_adapter(a, folder) for name, a in named.items()}
        generators = self._stores.generators
        return LiveObjects(job, live, adapters, self._stores.nodes, generators)

    def _nodes_of(self, job: Job) -> Iterable[str]:
        """Return the nodes whose blobs are held here."""
        return job.nodes

    def run(self, plan: Plan, position: Position, control: Control) -> Position:
        """Run a group from ``position`` on; see ``Session.run``."""
        group = self._groups.get(plan.group)
        if group is None:
            group = self._groups[plan.group] = Group(self._binding, plan)
        reached = group.run(position, control)
        if plan.group == "setup" and plan.finished(reached.tasks):
            self.check_made(control)
        return reached

    def run_loop(self, loop: Callable[[], None], look: Callable[[], None]) -> None:
        """Call ``loop`` on the thread of tasks that run one at a time; see ``Session.run_loop``."""
        self._scheduler.run_loop(loop, look)

    def check_made(self, control: Control) -> None:
        """Check the objects that ``setup`` made, and report warnings.

        Raises TaskError for a live object that is named neither under ``state`` nor ``constant``,
        or one under ``state`` that has no adapter.
        """
        check_named(self._analysis, self._stores.nodes)
        if self._stores.live is not None:
            self._stores.live.check_made(lambda text: control.report(Warned(text)))

    def end_epoch(self) -> None:
        """Drop the scratch of the epoch: what is neither persistent nor of ``setup``."""
        for node, workspace in self._stores.nodes.items():
            workspace.drop(self._lasting[node])

    # Scalars and blobs, by name.

    def _find(self, name: str) -> Value | None:
        node, path = key_of(self._job, name)
        workspace = self._stores.nodes.get(node)
        return workspace.find(path) if workspace is not None else None

    def scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of one-element blobs by name, None for those that are None.

        Those without a value are absent: a blob that tasks of ``epoch`` write is absent if none of
        them has written it in the current epoch, or in the last one that ran.  Raises TaskError,
        naming the blob, for one with more than one element, or an array that is not a mean over
        the batches of a pipe, as a number would be.
        """
        found: dict[str, Any] = {}
        for name in names:
            value = self._find(name)
            if value is None or self._is_stale(name, value):
                continue
            if isinstance(value, Box) and value.kind == "none":
                found[name] = None
                continue
            number, where = one_element(value), self._job.marks.get(f"metrics:{name}")
            if not isinstance(number, bool | int | float):
                raise TaskError(
                    f"blob {name!r} must be a single number, but is {_described(value)}",
                    where=where,
                    hint="metrics and conditions expect a number, or an array of one element"
                    + _part_of(name, value),
                )
            if isinstance(value, Box) and value.kind == "array" and value.value.ndim:
                key = key_of(self._job, name)
                if pipe := pipe_of_last_batch(self._job, key):
                    raise _not_reduced(name, key[1], pipe, value.value.shape, where)
            found[name] = number
        return found

    def _is_stale(self, name: str, value: Value) -> bool:
        """Return whether a scalar was not written in the current epoch."""
        return isinstance(value, Box) and self._stores.written.is_stale(key_of(self._job, name))

    def written(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the named blobs that were written in the current or the last epoch."""
        return tuple(n for n in names if self._stores.written.is_new(key_of(self._job, n)))

    def resume_epoch(self, epoch: int, written: Iterable[str]) -> None:
        """Continue inside ``epoch``, in which the blobs ``written`` have already been written."""
        self._stores.written.epoch = epoch
        for name in written:
            self._stores.written.note(key_of(self._job, name))

    def blob(self, name: str) -> Any:
        """Return a blob's value (read-only) by name; raises TaskError if there is none."""
        value = self._find(name)
        if value is None:
            raise TaskError(f"there is no blob {name!r}", hint=did_you_mean(name, self.names()))
        if any(box.value is None and box.kind == "array" for _, box in leaves(value)):
            raise TaskError(f"blob {name!r} was being updated when its task failed")
        return view(value)

    def names(self) -> list[str]:
        """Return the names of all blobs, with ``node:`` in front if there are several nodes."""
        return [
            f"{node}:{name}" if self._job.multi_node else name
            for node, workspace in self._stores.nodes.items()
            for name in workspace.names()
        ]

    # Checkpoints.

    def snapshot(self, scratch: Mapping[str, Iterable[str]] = NO_SCRATCH) -> LocalSnapshot | None:
        """Return the current persistent blobs, by reference, and the named scratch that has values.

        The states of live objects are copied.  Returns None if some of that scratch cannot be saved
        or the state of a live object is not known, since a call that used it has failed.
        """
        live = self._stores.live
        if live is not None and live.broken:
            return None
        extra = {node: self._stores.nodes[node].snapshot(paths) for node, paths in scratch.items()}
        if not all(is_storable(v) for blobs in extra.values() for v in blobs.values()):
            return None
        return LocalSnapshot(
            {
                node: self._with_states(
                    node,
                    _minimal({**workspace.snapshot(self._persistent[node]), **extra.get(node, {})}),
                )
                for node, workspace in self._stores.nodes.items()
            }
        )

    def _with_states(self, node: str, blobs: dict[str, Value]) -> dict[str, Value]:
        """Return the blobs of a node with the states of live objects in the place of these."""
        live = self._stores.live
        states = live.states(node) if live is not None else {}
        return states | {path: value for path, value in blobs.items() if path not in states}

    def read_ahead(self, directory: Path, parts: Iterable[str], size: int) -> None:
        """Start to read parts of a checkpoint of ``size`` bytes; see ``Session.read_ahead``."""
        self._ahead.start(directory, parts, size)

    def load_part(
        self, node: str, directory: Path, part: str | None = None, copied: bool = False
    ) -> int:
        """See Session."""
        blobs = self._staged[node] = self._ahead.take(directory, part or node)
        if copied:
            for name in GENERATORS:
                blobs.pop(name, None)
        if part is not None and part != node:  # versions are those of the other node's blobs
            for value in blobs.values():
                for _, box in leaves(value):
                    box.version = -1
        return sum(_bytes(box) for v in blobs.values() for _, box in leaves(v))

    def take_over(self) -> None:
        """Replace all persistent blobs by what ``load_part`` staged, on every node.

        The states of live objects are restored into what ``setup`` made; raises TaskError if that
        fails.  What ``state`` does not name any more stays as ``setup`` made it.
        """
        live = self._stores.live
        for node, blobs in self._staged.items():
            self._stores.nodes[node].drop(self._rebuilt[node])
            if live is not None:
                live.take_over(node, blobs)
            for path, value in blobs.items():
                if path not in self._rebuilt[node] and path not in GENERATORS:
                    self._stores.nodes[node].put(path, value)
        self._staged = {}
        self._ahead.stop()

    def load_best(
        self, directory: Path, names: Mapping[str, Iterable[str]], parts: Mapping[str, str]
    ) -> None:
        """Read ``names`` (per node) of the best checkpoint, for ``best:…``; ``{node: part}``."""
        for node, wanted in names.items():
            for name, value in read_part(directory, parts[node], list(wanted)).items():
                self._stores.best[node, name] = value

    def close(self) -> None:
        """End the threads and worker processes, and release the memory for copies.

        The blobs stay readable.
        """
        self._ahead.stop()
        self._scheduler.close()
        for group in self._groups.values():
            group.close()
        BUFFERS.release()


def _minimal(blobs: dict[str, Value]) -> dict[str, Value]:
    """Return the blobs without those that lie in another of them."""
    return {path: blobs[path] for path in outermost(blobs)}


def _part_of(name: str, value: Value) -> str:
    """Return how a part of a dict, list or tuple is named, after a hint; or nothing."""
    if not isinstance(value, Tree) or not value.items:
        return ""
    return f"; a part of it has a name too: {name}/{next(iter(value.items))}"


def _not_reduced(
    name: str, path: str, pipe: str, shape: tuple[int, ...], where: Where | None
) -> TaskError:
    """Return the error of a metric that would silently be that of the last batch of an epoch."""
    return TaskError(
        f"blob {name!r} is an array of shape {shape}, so what pipe {pipe!r} keeps is that of the "
        "epoch's last batch, not the mean over the epoch",
        where=where,
        hint=f"return a number, as by .item(), or ask for the last: 'reduce: {{{path}: last}}'",
    )


def _described(value: Value) -> str:
    if value.note is INTEGER:
        return "an integer of more than 64 bits"
    if value.note is not None:
        kind = with_article(value.note.name.rpartition(".")[2])
        return f"{kind} of {len(value.items)}" if isinstance(value, Tree) else kind
    if isinstance(value, Tree):
        return f"{with_article(value.kind)} of {len(value.items)}"
    if value.kind == "array" and value.value.size != 1:
        return f"an array of shape {value.value.shape}"
    if isinstance(value.value, np.generic | np.ndarray):
        return f"of dtype {value.value.dtype}"
    return with_article(type(value.value).__name__)


def _bytes(box: Box) -> int:
    return int(box.value.nbytes) if box.kind in ("array", "scalar") else 0
