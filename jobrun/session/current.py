"""Which task runs on this thread: for what is called deep inside of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jobrun.session.base import Control

__all__ = ["Running", "TaskStoppedError", "current", "enter", "here"]


class TaskStoppedError(Exception):
    """The task was ended on the way, since the run ends: no failure, but not finished either."""


@dataclass(slots=True)
class Running:
    """A task that runs; ``stopping()`` is true once the run wants it to end before it is done."""

    group: str
    epoch: int
    task: str
    node: str
    control: Control
    stopping: Callable[[], bool]


class Runs(Protocol):
    """Whoever runs tasks by number."""

    def running(self, number: int) -> Running:
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


def current() -> Running | None:
    """The task that runs on this thread."""
    place = _local.place
    return None if place is None else place[0].running(place[1])
