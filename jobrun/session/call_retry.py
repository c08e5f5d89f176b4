"""The pause before a failed call is repeated."""

from __future__ import annotations

import time
from typing import Final

from jobrun.core.events import Warned
from jobrun.model.options import Retries
from jobrun.session.current import Running, TaskStoppedError, current

__all__ = ["pause"]

_LOOK: Final = 0.05
"""Seconds between two looks whether the run ends."""


def pause(failure: str, number: int, retries: Retries, *, may_stop: bool) -> None:
    """Report the ``number``-th ``failure`` of a call, and wait.

    Raises TaskStoppedError if the run ends meanwhile and the call need not be repeated
    (``may_stop``).
    """
    running, seconds = current(), retries.pause(number)
    if running is None:
        return
    again = f"try {number + 1} of {retries.times + 1}" + (f" in {seconds:g} s" if seconds else "")
    running.control.report(Warned(f"{failure}; {again}"))
    end = time.monotonic() + seconds
    while not _ends(running) and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK))
    if running.stopping() and may_stop:
        raise TaskStoppedError


def _ends(running: Running) -> bool:
    """Return whether the run ends, also where this call still has to be made."""
    return running.stopping() or running.control.interrupted()
