"""What can be said about a run: frozen events, the contract between the engine and ``report/``.

The engine calls a ``Report`` with each event; it never prints.  Every field is plain (numbers,
strings, tuples, dictionaries of those), so that an event is one JSON line.  Seconds are wall time,
sizes are bytes.  ``place`` is a place in the run in words (``Position.place``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "PASSING",
    "BatchesDone",
    "CheckpointFailed",
    "CheckpointLoaded",
    "CheckpointSaved",
    "CheckpointSkipped",
    "CheckpointsMoved",
    "CheckpointsRemoved",
    "EpochFinished",
    "Event",
    "GroupFinished",
    "GroupStarted",
    "JobrunWarning",
    "LeftoversCleaned",
    "Printed",
    "Report",
    "RunEnded",
    "RunStarted",
    "RunWentBack",
    "SaveAsked",
    "SaveStarted",
    "SlowestNode",
    "Stopping",
    "TaskFailed",
    "TaskFinished",
    "TaskProgress",
    "TasksRunning",
    "Uploaded",
    "Warned",
    "ignore",
    "warn",
]


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events."""

    def to_json(self) -> dict[str, Any]:
        """The event as JSON values, with its class under ``event``."""
        return {"event": type(self).__name__, **asdict(self)}


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run starts, or goes on from ``epoch`` (``checkpoint`` is the id loaded; None: fresh).

    ``notes`` are lines to show: what was changed in the spec, which code files differ, ….
    ``epochs`` is the limit of the ``epochs`` condition if there is one, ``walltime`` that of the
    ``walltime`` condition; ``may_end_earlier``: there are other stop conditions too.  ``elapsed``
    are the seconds of earlier attempts, ``best`` maps a metric to its best ``(value, epoch)`` so
    far, and ``vars`` are the job's own that are numbers, texts or truths.  ``only`` is ``exit``
    where no epoch is run, but ``download`` and ``exit`` on what was loaded.
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


@dataclass(frozen=True, slots=True)
class RunWentBack(Event):
    """A worker was lost, ``message`` says how: the run goes on from ``epoch`` by itself.

    ``checkpoint`` is the id it goes on from (None: from the beginning).  It is the ``restart``-th
    time of this attempt, of at most ``most``.
    """

    message: str
    restart: int
    most: int
    epoch: int
    checkpoint: int | None
    place: str = ""


@dataclass(frozen=True, slots=True)
class LeftoversCleaned(Event):
    """Our own leftovers of a crash were removed from the run directory."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupStarted(Event):
    """A group of ``tasks`` tasks starts; ``epoch`` is the one that is going on (0: none)."""

    group: str
    epoch: int
    tasks: int


@dataclass(frozen=True, slots=True)
class GroupFinished(Event):
    """A group is done; ``slowest`` holds its slowest tasks and their seconds."""

    group: str
    epoch: int
    tasks: int
    seconds: float
    slowest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskFinished(Event):
    """A task took long enough to be said, or all tasks are wanted."""

    group: str
    epoch: int
    task: str
    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFailed(Event):
    """A task failed, after all its retries; the run ends."""

    group: str
    epoch: int
    task: str
    node: str
    message: str


@dataclass(frozen=True, slots=True)
class TasksRunning(Event):
    """What runs now: ``tasks`` holds names and the seconds so far, of the ``count`` that run.

    Said a few times a second while a group runs, of the tasks that run longest.
    """

    group: str
    epoch: int
    tasks: tuple[tuple[str, float], ...]
    count: int


@dataclass(frozen=True, slots=True)
class BatchesDone(Event):
    """Progress of a pipe: ``done`` batches of ``total`` (None: unknown).

    ``rows`` are those of the batches that this attempt has applied in this epoch.
    """

    task: str
    node: str
    epoch: int
    done: int
    total: int | None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class TaskProgress(Event):
    """Progress of a function, as it says by itself: a ``fraction`` from 0 to 1."""

    task: str
    node: str
    epoch: int
    fraction: float


@dataclass(frozen=True, slots=True)
class EpochFinished(Event):
    """An epoch is done.

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
class SaveStarted(Event):
    """A checkpoint begins to be written; the run goes on, unless it has to wait for it."""

    id: int
    epoch: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A checkpoint is whole and durable.

    ``bytes`` and ``files`` count all of it, ``linked`` the bytes shared with an earlier one, which
    were not written again.  ``seconds`` is the whole save, ``phases`` its parts (``write``,
    ``sync``, ``commit``, ``retain``; before them ``wait`` for the save before, and ``snapshot``;
    with several nodes ``write <node>``), ``stall`` what the run waited for it.  ``asked``: somebody
    wanted this one.
    """

    id: int
    epoch: int
    path: str
    bytes: int
    files: int
    seconds: float
    stall: float
    phases: Mapping[str, float] = field(default_factory=dict)
    linked: int = 0
    place: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Event):
    """A checkpoint could not be written; the run goes on."""

    id: int
    epoch: int
    message: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointsRemoved(Event):
    """Retention removed these checkpoints, or the end of a run that keeps none."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsMoved(Event):
    """These checkpoints are no part of this history any more: they are in ``folder`` now."""

    ids: tuple[int, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class CheckpointSkipped(Event):
    """A checkpoint that a fallback passed over, and why."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
    """A checkpoint was proven whole and taken over.

    ``differences`` are lines: libraries that are others now than when it was written.  ``phases``
    are the seconds of each node where there are several: ``read <node>``.
    """

    id: int
    epoch: int
    path: str
    bytes: int
    seconds: float
    differences: tuple[str, ...] = ()
    place: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Uploaded(Event):
    """A checkpoint is in another place too, whole and proven.

    ``sent`` of its ``files`` were sent by this attempt, the others were there.
    """

    id: int
    place: str
    bytes: int
    files: int
    sent: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something the user should know, which stops nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class Printed(Event):
    """A line on stderr, under ``--progress json`` alone: ``task`` printed it (None: no task)."""

    text: str
    task: str | None = None
    node: str | None = None
    group: str | None = None
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Stopping(Event):
    """A signal was received: no new work starts, and the run ends at the next boundary."""

    signal: str


@dataclass(frozen=True, slots=True)
class SaveAsked(Event):
    """A save is wanted by ``signal``: it is made at the next place where that can be done."""

    signal: str


@dataclass(frozen=True, slots=True)
class SlowestNode:
    """The node whose tasks took most ``seconds``, and the median of those of the ``others``."""

    node: str
    seconds: float
    others: float


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run is over, for this attempt.

    ``outcome`` is ``finished`` (a stop condition), ``failed`` (a condition under ``fail``),
    ``interrupted`` (a signal), ``error`` (a task or the program), or ``nothing`` (there was nothing
    to do).  ``epoch`` epochs are done in the run, ``ran`` of them by this attempt; ``on_disk`` is
    the epoch of the newest checkpoint (None: none), ``place`` its place, ``checkpoint`` its path.
    ``best`` maps a metric to its best ``(value, epoch)``.  ``checkpoint_seconds`` is what the run
    waited for saves.  ``only`` is as in ``RunStarted``; ``checkpoint`` is then the one it loaded.
    ``uploaded`` is where the newest of the checkpoints is that this attempt uploaded.  ``slowest``
    is the slowest node in the epochs of this attempt (None: there are not several).
    ``before_failure`` is the epoch of the newest checkpoint from before a condition under ``fail``
    came true, where one has ended the run (None: there is no such checkpoint).
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


PASSING = (BatchesDone, SaveStarted, TaskProgress, TasksRunning)
"""Events that say how far things are, which nobody keeps."""

Report = Callable[[Event], None]


class JobrunWarning(UserWarning):
    """What a run says that has no reporter."""


def warn(event: Event) -> None:
    """The report of a run in Python that asks for no other: warnings are warnings of Python's."""
    text = ""
    if isinstance(event, (CheckpointFailed, RunWentBack, Warned)):
        text = event.message
    elif isinstance(event, CheckpointSkipped):
        text = f"checkpoint_{event.id} is passed over: {event.reason}"
    if text:
        warnings.warn(text, JobrunWarning, stacklevel=2)


def ignore(event: Event) -> None:
    """The report of a run that nobody watches."""
