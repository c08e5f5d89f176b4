"""Saves in the background that nobody has asked about: the end of the process waits for them.

``atexit`` would be too late: the pools of ``concurrent.futures`` take no more work by then.  Theirs
and ours are called in the reverse order in which they were registered.
"""

from __future__ import annotations

import concurrent.futures.thread
import os
import sys
import threading
from typing import Any

__all__ = ["asked", "begun"]

_unasked: set[concurrent.futures.Future[Any]] = set()


def begun(save: concurrent.futures.Future[Any]) -> None:
    """A save has begun whose caller is to ask for its end."""
    _unasked.add(save)


def asked(save: concurrent.futures.Future[Any]) -> None:
    """Its caller asks, and is told."""
    _unasked.discard(save)


def _wait() -> None:
    """Let saves end, and say what went wrong with them."""
    for save in list(_unasked):
        error = save.exception()
        if error is not None:
            print(f"error: {error}", file=sys.stderr)


threading._register_atexit(_wait)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_unasked.clear)  # whose threads are the parent's
