"""Which task runs on this thread: for what is called, or printed, deep inside of it."""

from __future__ import annotations

import threading
from typing import Protocol

__all__ = ["CurrentTask", "Place", "Runs", "enter", "here", "task_here"]


class CurrentTask(Protocol):
    """A task that runs; ``epoch`` is 0 before the first."""

    @property
    def group(self) -> str:
        """The task's group."""

    @property
    def epoch(self) -> int:
        """The epoch that is going on."""

    @property
    def task(self) -> str:
        """The task's name."""

    @property
    def node(self) -> str:
        """Where it runs."""


class Runs(Protocol):
    """Whoever runs tasks by number."""

    def running(self, number: int) -> CurrentTask:
        """What is to be known of a task that runs."""


Place = tuple[Runs, int]


class _Local(threading.local):
    place: Place | None = None


_local = _Local()


def enter(place: Place | None) -> None:
    """From now on, this thread runs a task.  Cheap: what it is, is looked up when it is asked."""
    _local.place = place


def here() -> Place | None:
    """What ``enter`` was given, for a thread that works for the same task."""
    return _local.place


def task_here() -> CurrentTask | None:
    """The task that runs on this thread."""
    place = _local.place
    return None if place is None else place[0].running(place[1])
