"""The task that runs on this thread, and what a session knows about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobrun.core.current_task import enter, here, task_here
from jobrun.session.base import Control

__all__ = ["Running", "TaskStoppedError", "current", "enter", "here"]


class TaskStoppedError(Exception):
    """The task was ended early because the run ends: no failure, but not finished either."""


@dataclass(slots=True)
class Running:
    """A running task; ``stopping()`` is true once the task has to end early.

    ``batches`` are those of an epoch, if it is a pipe and they are known.
    """

    group: str
    epoch: int
    task: str
    node: str
    control: Control
    stopping: Callable[[], bool]
    batches: int | None = None

    @property
    def run_dir(self) -> str | None:
        """The directory of the run."""
        return self.control.run_dir


def current() -> Running | None:
    """Return the task that runs on this thread."""
    running = task_here()
    assert running is None or isinstance(running, Running)
    return running
