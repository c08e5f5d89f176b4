"""The process groups of programs that run for tasks: none is left when this process ends.

A forked child has none: those of its parent are not its to end.
"""

from __future__ import annotations

import atexit
import os
import signal
from contextlib import suppress

__all__ = ["end_group", "forget", "kill_children", "remember"]

_groups: set[int] = set()


def remember(group: int) -> None:
    """A process group was started."""
    _groups.add(group)


def forget(group: int) -> None:
    """A process group is gone."""
    _groups.discard(group)


def end_group(group: int, how: signal.Signals) -> None:
    """Send a signal to all processes of a group, if there are any."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


def kill_children() -> None:
    """Kill every group that runs; takes no lock, so that it may be called from a signal handler."""
    for group in tuple(_groups):
        end_group(group, signal.SIGKILL)


atexit.register(kill_children)
os.register_at_fork(after_in_child=_groups.clear)
