"""Progress of a long function, reported from inside of it."""

from __future__ import annotations

import threading
import time

from jobrun.core.events import TaskProgress
from jobrun.session.current import current

__all__ = ["progress"]

_SECONDS = 0.1
"""The least seconds between two reports, except for the last."""


class _Local(threading.local):
    next: float = 0.0


_local = _Local()


def progress(fraction: float) -> None:
    """Report the share done of the task on this thread, from 0 to 1, for the live view.

    May be called as often as you like; outside of a task it does nothing, so that a function can be
    used by itself too.  Raises ValueError for a value that is not a fraction.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected a fraction from 0 to 1, got {fraction!r}")
    now = time.monotonic()
    if now < _local.next and fraction < 1:
        return
    running = current()
    if running is not None:
        _local.next = now + _SECONDS
        event = TaskProgress(running.task, running.node, running.epoch, float(fraction))
        running.control.report(event)
