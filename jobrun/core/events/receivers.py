"""Receivers of events where there is no reporter."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from jobrun.core.events.base import Event
from jobrun.core.events.checkpoints import CheckpointFailed, CheckpointSkipped
from jobrun.core.events.messages import Warned
from jobrun.core.events.run import RunWentBack

__all__ = ["JobrunWarning", "Report", "ignore", "warn"]


Report = Callable[[Event], None]


class JobrunWarning(UserWarning):
    """A warning of a run without a reporter."""


# Python's default shows a text once in a process: a failed save of a second run would be hidden.
# Filters of the user come first.
warnings.filterwarnings("always", category=JobrunWarning, append=True)


def warn(event: Event) -> None:
    """Turn an event into a Python warning: the default receiver of a run started from Python."""
    text = ""
    if isinstance(event, (CheckpointFailed, RunWentBack, Warned)):
        text = event.message
    elif isinstance(event, CheckpointSkipped):
        text = f"checkpoint_{event.id} is skipped: {event.reason}"
    if text:
        warnings.warn(text, JobrunWarning, stacklevel=2)


def ignore(event: Event) -> None:
    """Ignore an event."""
