"""Notices: what lower layers, which have no reporter, have to report to the user.

A slow store, a file system without locks: found where files are read and written, by whichever
thread, and worth a single warning.  Whoever can show it receives it: a run passes it to its
reporters, a command prints it; without either it is a Python warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["notice", "received_by"]

Receiver = Callable[[str], None]

_mutex = Lock()
_receivers: list[tuple[Receiver, set[str]]] = []
_seen: set[str] = set()


def _warn(text: str) -> None:
    """Raise a Python warning of the class that a run without a reporter uses."""
    from jobrun.core.events.receivers import JobrunWarning  # most processes have no notice

    warnings.warn(text, JobrunWarning, stacklevel=3)


def notice(text: str) -> None:
    """Report ``text``; once only for each receiver, and once without one."""
    with _mutex:
        receiver, seen = _receivers[-1] if _receivers else (_warn, _seen)
        if text in seen:
            return
        seen.add(text)
    receiver(text)


@contextmanager
def received_by(receiver: Receiver) -> Iterator[None]:
    """Pass notices of all threads to ``receiver`` while the context lasts."""
    entry = (receiver, set[str]())
    with _mutex:
        _receivers.append(entry)
    try:
        yield
    finally:
        with _mutex:
            _receivers.remove(entry)
