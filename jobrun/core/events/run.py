"""Events of a run as a whole: its start, its epochs and its end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from jobrun.core.events.base import Event

__all__ = [
    "EpochFinished",
    "LeftoversCleaned",
    "RunEnded",
    "RunStarted",
    "RunWentBack",
    "SlowestNode",
    "Stopping",
]


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run starts, or resumes at ``epoch`` (``checkpoint`` is the id loaded; None: fresh).

    ``notes`` are lines to show: changes of the spec, changed code files, ….
    ``epochs`` is the limit of the ``epochs`` condition if there is one, ``walltime`` that of the
    ``walltime`` condition; ``may_end_earlier``: there are other stop conditions too.  ``elapsed``
    are the seconds of earlier attempts, ``best`` maps a metric to its best ``(value, epoch)`` so
    far, and ``vars`` are those of the job that are numbers, strings or bools.  ``only`` is ``exit``
    if no epoch is run, only ``download`` and ``exit`` on a loaded checkpoint.  ``slurm_job`` is the
    id of the Slurm job (``17``, of an array ``17_3``; empty: none), which was ``requeued`` so often
    before.  ``spec`` and ``code`` are the absolute paths of the spec and of the folder of its code
    (empty: the job was built in Python).
    """

    job: str
    run: str
    run_dir: str | None
    attempt: int
    epoch: int
    checkpoint: int | None
    epochs: int | None
    session: str
    metrics: Mapping[str, str | None]
    notes: tuple[str, ...] = ()
    place: str = ""
    only: str = ""
    walltime: float | None = None
    may_end_earlier: bool = False
    elapsed: float = 0.0
    best: Mapping[str, tuple[Any, int]] = field(default_factory=dict)
    vars: Mapping[str, Any] = field(default_factory=dict)
    slurm_job: str = ""
    requeued: int = 0
    spec: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class RunWentBack(Event):
    """A worker was lost (see ``message``); the run resumes at ``epoch`` by itself.

    ``checkpoint`` is the id it resumes from (None: from the beginning).  This is restart number
    ``restart`` of this attempt, of at most ``most``.
    """

    message: str
    restart: int
    most: int
    epoch: int
    checkpoint: int | None
    place: str = ""


@dataclass(frozen=True, slots=True)
class LeftoversCleaned(Event):
    """Leftovers of a crash were removed from the run directory."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EpochFinished(Event):
    """An epoch is finished.

    ``metrics`` holds the values of this epoch (a metric without a value is absent), ``best`` the
    metrics whose value is now the best of the run, ``progress_texts`` the progress towards each
    stop condition.  ``elapsed`` is that of the run, over all its attempts.
    """

    epoch: int
    seconds: float
    elapsed: float
    metrics: Mapping[str, Any]
    best: tuple[str, ...] = ()
    progress_texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """No new work starts, and the run ends at the next boundary.

    ``signal`` is the name of the signal that was received, or another reason, in words.
    """

    signal: str

    @property
    def of_signal(self) -> bool:
        """Whether a signal is the reason."""
        return self.signal in signal.Signals.__members__


@dataclass(frozen=True, slots=True)
class SlowestNode:
    """The node whose tasks took most ``seconds``, and the median of those of the ``others``."""

    node: str
    seconds: float
    others: float


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run, or this attempt of it, has ended.

    ``outcome`` is ``finished`` (a stop condition), ``failed`` (a condition under ``fail``),
    ``interrupted`` (a signal), ``error`` (a task or the program), or ``nothing`` (there was nothing
    to do).  ``epoch`` epochs are done in the run, ``ran`` of them by this attempt; ``on_disk`` is
    the epoch of the newest checkpoint (None: none), ``place`` its place, ``checkpoint`` its path.
    ``best`` maps a metric to its best ``(value, epoch)``.  ``checkpoint_seconds`` is how long the
    run waited for saves.  ``only`` is as in ``RunStarted``; ``checkpoint`` is then the one it
    loaded.  ``uploaded`` is the place of the newest checkpoint that this attempt uploaded.
    ``slowest`` is the slowest node in the epochs of this attempt (None: a single node).
    ``before_failure`` is, if a condition under ``fail`` ended the run, the epoch of the newest
    checkpoint from before it came true (None: there is none).  ``memory`` is the most memory in
    bytes that this process held, and ``memory_before`` what it held when the attempt started (None:
    not known).  ``failed_saves`` counts the saves of this attempt that failed.
    """

    outcome: str
    reason: str
    exit_code: int
    epoch: int
    ran: int
    seconds: float
    elapsed: float
    metrics: Mapping[str, Any]
    best: Mapping[str, tuple[Any, int]]
    on_disk: int | None
    checkpoint: str | None
    saved: int
    checkpoint_seconds: float
    run: str
    run_dir: str | None
    place: str = ""
    only: str = ""
    uploaded: str = ""
    slowest: SlowestNode | None = None
    before_failure: int | None = None
    memory: int | None = None
    memory_before: int | None = None
    failed_saves: int = 0

    def to_json(self) -> dict[str, Any]:
        """See Event."""
        slowest = asdict(self.slowest) if self.slowest is not None else None
        return {**Event.to_json(self), "slowest": slowest}
