"""The processes of programs that run for tasks: none is left when this process ends.

A program has a process group of its own, and each of its processes a mark in its environment, by
which one that has left the group is found: the folder in which the program runs.  A forked child
of ours has none: those of its parent are not its to end.

Not in ``core.process``, since ``jobrun --help`` needs it for its signals: ``subprocess`` would take
it 3 ms more.
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
"""How often it is looked for what was started while others were ended."""


def remember(group: int, mark: str = "") -> None:
    """A process group was started; ``mark`` is what its processes have in their environment."""
    _groups[group] = mark


def forget(group: int) -> None:
    """A process group is gone."""
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
    """The processes that have this line in their environment; one that has ended has none."""
    found = []
    with suppress(OSError):  # there is no /proc
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if line in file.read().split(b"\0"):
                        found.append(int(name))
    return found


def kill_children() -> None:
    """Kill every group that runs; takes no lock, so that it may be called from a signal handler."""
    for group, mark in tuple(_groups.items()):
        end_group(group, signal.SIGKILL)
        if mark:
            end_marked(mark)


class Life:
    """Lets the system kill a process group once this process is gone, however it ends.

    The group's first process inherits ``fileno()``; where the system cannot do that, nothing is
    done.
    """

    def __init__(self) -> None:
        self._theirs, self._ours = os.pipe()
        _lives.add(self._ours)

    def fileno(self) -> int:
        """The descriptor to be inherited."""
        return self._theirs

    def guard(self, group: int) -> None:
        """From now on, the group ends with this process."""
        if hasattr(fcntl, "F_SETSIG"):
            fcntl.fcntl(self._theirs, fcntl.F_SETOWN, -group)
            fcntl.fcntl(self._theirs, fcntl.F_SETSIG, signal.SIGKILL)
            self._set_async(True)

    def close(self) -> None:
        """Guard it no more: the number of a group that is gone may be another's."""
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
    while _lives:  # else they would hold up the end of programs after our parent's
        with suppress(OSError):
            os.close(_lives.pop())


atexit.register(kill_children)
os.register_at_fork(after_in_child=_in_child)
