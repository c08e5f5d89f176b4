"""Which task runs on this thread, with what a session knows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobrun.core.current_task import enter, here, task_here
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


def current() -> Running | None:
    """The task that runs on this thread."""
    running = task_here()
    assert running is None or isinstance(running, Running)
    return running
