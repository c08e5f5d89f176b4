"""``--wait``: start once no other process holds the run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import click

from jobrun.cli.signals import Signals
from jobrun.core.paths import shown
from jobrun.errors import LockedError
from jobrun.report.formatting import plain
from jobrun.storage.lock import Lock

__all__ = ["once_free"]

_PAUSES = random.Random()
"""Of our own: the global generator belongs to the tasks."""
_SECONDS = (0.3, 1.0)
"""The seconds between two looks at a lock."""


def once_free(start: Callable[[], int], signals: Signals, *, wait: bool) -> int:
    """Return the result of ``start``, which decides again each time that it is called.

    Where another process holds the run it raises LockedError, which is raised, or with ``wait``
    reported once for each holder, and ``start`` is called again once the lock is free.
    """
    reported = ""
    while True:
        try:
            return start()
        except LockedError as error:
            if not wait or error.where is None:
                error.hint = "wait for it to end (--wait), or end it; a stale lock is ignored"
                raise
            signals.runner = None  # a signal ends the waiting
            place = str(error.where)
            if error.message != reported:
                reported = error.message
                click.echo(plain(f"waiting for {shown(place)}: {reported}"), err=True)
        time.sleep(_PAUSES.uniform(*_SECONDS))
        while Lock(place).held():
            time.sleep(_PAUSES.uniform(*_SECONDS))
