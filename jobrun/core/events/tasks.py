"""Events of groups, tasks and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from jobrun.core.events.base import Event

__all__ = [
    "BatchesDone",
    "GroupFinished",
    "GroupStarted",
    "StepLogged",
    "TaskFailed",
    "TaskFinished",
    "TaskProgress",
    "TasksRunning",
]

UNKNOWN_BATCHES: Final = 1_000_000
"""The number of batches of an epoch that ``StepLogged.step`` assumes where it is unknown."""


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


@dataclass(frozen=True, slots=True)
class StepLogged(Event):
    """Numbers that a function has logged for one step: ``batch`` of a pipe, counted from 1.

    Outside of pipes ``batch`` counts the calls.  ``batches`` are those of an epoch (None: unknown).
    One with the same task, node, epoch, batch and names replaces an earlier one.
    """

    task: str
    node: str
    epoch: int
    batch: int
    values: Mapping[str, float]
    batches: int | None = None

    @property
    def step(self) -> int:
        """A number that rises over the epochs, for programs that know steps alone."""
        return (max(self.epoch, 1) - 1) * (self.batches or UNKNOWN_BATCHES) + self.batch
