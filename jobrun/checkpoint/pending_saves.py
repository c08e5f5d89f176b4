"""Background saves whose caller has not waited for them: the end of the process does.

``atexit`` would be too late: the pools of ``concurrent.futures`` accept no more work by then.  This
hook and theirs are called in the reverse order of their registration.
"""

from __future__ import annotations

import concurrent.futures.thread
import os
import sys
import threading
from typing import Any

__all__ = ["register", "unregister"]

_pending: set[concurrent.futures.Future[Any]] = set()


def register(save: concurrent.futures.Future[Any]) -> None:
    """Register a save that has started, and whose caller should wait for it."""
    _pending.add(save)


def unregister(save: concurrent.futures.Future[Any]) -> None:
    """Unregister a save that its caller has waited for."""
    _pending.discard(save)


def _wait() -> None:
    """Wait for all saves, and print their errors."""
    for save in list(_pending):
        error = save.exception()
        if error is not None:
            print(f"error: {error}", file=sys.stderr)


threading._register_atexit(_wait)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_pending.clear)  # the threads stay in the parent
