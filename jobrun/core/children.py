"""The processes of programs that run for tasks: none is left when this process ends.

A program has a process group of its own.  Each of its processes has a mark in its environment, the
folder in which the program runs, by which one that has left the group is found.  A forked child of
this process ends none of them: they belong to its parent.

Not in ``core.process``, since ``jobrun --help`` needs it for its signals: ``subprocess`` would add
3 ms.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
from contextlib import suppress

__all__ = ["MARK", "Life", "end_group", "end_marked", "forget", "kill_children", "remember"]

MARK = "JOBRUN_TASK_FOLDER"
"""The variable in the environment of a program that names its folder."""
_groups: dict[int, str] = {}
_lives: set[int] = set()
_ROUNDS = 20
"""The number of searches for processes that were started while others were killed."""


def remember(group: int, mark: str = "") -> None:
    """Register a process group; its processes have ``mark`` in their environment."""
    _groups[group] = mark


def forget(group: int) -> None:
    """Unregister a process group."""
    _groups.pop(group, None)


def end_group(group: int, how: signal.Signals) -> None:
    """Send a signal to all processes of a group, if there are any."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, how)


def end_marked(mark: str) -> None:
    """Kill all processes with a mark, whatever group or session they are in (on Linux)."""
    for _ in range(_ROUNDS):
        found = _marked(f"{MARK}={mark}".encode(errors="surrogateescape"))
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _marked(line: bytes) -> list[int]:
    """Return the processes with this line in their environment; one that has ended has none."""
    found = []
    with suppress(OSError):  # there is no /proc
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if line in file.read().split(b"\0"):
                        found.append(int(name))
    return found


def kill_children() -> None:
    """Kill every registered group; takes no lock, so may be called from a signal handler."""
    for group, mark in tuple(_groups.items()):
        end_group(group, signal.SIGKILL)
        if mark:
            end_marked(mark)


class Life:
    """Lets the system kill a process group once this process is gone, however it ends.

    The group's first process inherits ``fileno()``; where the system does not support that, nothing
    is done.
    """

    def __init__(self) -> None:
        self._theirs, self._ours = os.pipe()
        _lives.add(self._ours)

    def fileno(self) -> int:
        """Return the descriptor to be inherited."""
        return self._theirs

    def guard(self, group: int) -> None:
        """Let the group end with this process, from now on."""
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(self._theirs, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self._theirs, fcntl.F_SETSIG, signal.SIGKILL)
            self._set_async(True)

    def close(self) -> None:
        """Stop guarding: the number of a group that is gone may be reused."""
        self._set_async(False)
        _lives.discard(self._ours)
        os.close(self._theirs)
        os.close(self._ours)

    def _set_async(self, wanted: bool) -> None:
        flags = fcntl.fcntl(self._theirs, fcntl.F_GETFL)
        flags = flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC
        fcntl.fcntl(self._theirs, fcntl.F_SETFL, flags)


def _in_child() -> None:
    _groups.clear()
    while _lives:  # else they would delay the end of programs after the parent's
        with suppress(OSError):
            os.close(_lives.pop())


atexit.register(kill_children)
os.register_at_fork(after_in_child=_in_child)
