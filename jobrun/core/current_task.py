"""The task that runs on this thread, for code called, or lines printed, deep inside it."""

from __future__ import annotations

import threading
from typing import Protocol

__all__ = ["CurrentTask", "Place", "Runs", "enter", "here", "task_here"]


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


_local = _Local()


def enter(place: Place | None) -> None:
    """Mark this thread as running a task.  Cheap: the task is looked up only when asked for."""
    _local.place = place


def here() -> Place | None:
    """Return what ``enter`` was given, for another thread that works for the same task."""
    return _local.place


def task_here() -> CurrentTask | None:
    """Return the task that runs on this thread, or None."""
    place = _local.place
    return None if place is None else place[0].running(place[1])
