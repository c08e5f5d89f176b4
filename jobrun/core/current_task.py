"""The task that runs on this thread, for code called, or lines printed, deep inside it."""

from __future__ import annotations

import threading
from typing import Final, Protocol

__all__ = [
    "IN_MAP",
    "CurrentTask",
    "Place",
    "Runs",
    "batch_here",
    "enter",
    "enter_batch",
    "here",
    "task_here",
]

IN_MAP: Final = -1
"""In place of a batch's number: its ``map`` steps run, maybe ahead of others."""


class CurrentTask(Protocol):
    """A running task; ``epoch`` is 0 before the first."""

    @property
    def group(self) -> str:
        """The task's group."""

    @property
    def epoch(self) -> int:
        """The current epoch."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def node(self) -> str:
        """The node on which it runs."""


class Runs(Protocol):
    """An object that runs tasks, by number."""

    def running(self, number: int) -> CurrentTask:
        """Return the description of a running task."""


Place = tuple[Runs, int]


class _Local(threading.local):
    place: Place | None = None
    batch: int = 0


_local = _Local()


def enter(place: Place | None) -> None:
    """Mark this thread as running a task.  Cheap: the task is looked up only when asked for."""
    _local.place = place
    _local.batch = 0


def enter_batch(number: int) -> None:
    """Mark this thread as running steps of a batch, counted from 1; IN_MAP: ``map`` steps."""
    _local.batch = number


def batch_here() -> int:
    """Return the batch whose ``do`` steps run on this thread, IN_MAP, or 0 outside of pipes."""
    return _local.batch


def here() -> Place | None:
    """Return what ``enter`` was given, for another thread that works for the same task."""
    return _local.place


def task_here() -> CurrentTask | None:
    """Return the task that runs on this thread, or None."""
    place = _local.place
    return None if place is None else place[0].running(place[1])
