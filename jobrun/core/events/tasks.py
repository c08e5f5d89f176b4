"""Events of groups, tasks and pipes."""

from __future__ import annotations

from dataclasses import dataclass

from jobrun.core.events.base import Event

__all__ = [
    "BatchesDone",
    "GroupFinished",
    "GroupStarted",
    "TaskFailed",
    "TaskFinished",
    "TaskProgress",
    "TasksRunning",
]


@dataclass(frozen=True, slots=True)
class GroupStarted(Event):
    """A group of ``tasks`` tasks starts, in ``epoch`` (0: outside of epochs)."""

    group: str
    epoch: int
    tasks: int


@dataclass(frozen=True, slots=True)
class GroupFinished(Event):
    """A group is finished; ``slowest`` holds its slowest tasks and their seconds."""

    group: str
    epoch: int
    tasks: int
    seconds: float
    slowest: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskFinished(Event):
    """A task finished; emitted only if it was slow, or with -v."""

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
    """The tasks that run now: ``tasks`` holds names and seconds so far, ``count`` is how many.

    Emitted a few times a second while a group runs; ``tasks`` are those that have run longest.
    """

    group: str
    epoch: int
    tasks: tuple[tuple[str, float], ...]
    count: int


@dataclass(frozen=True, slots=True)
class TaskProgress(Event):
    """Progress that a function reports about itself: a ``fraction`` from 0 to 1."""

    task: str
    node: str
    epoch: int
    fraction: float


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
