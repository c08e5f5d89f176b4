"""Signal handlers that are installed for a while, in this process only.

A forked child gets the earlier handlers back before any signal can reach it: the kernel blocks
signals to it until they are set.  Otherwise the child of a task would take SIGTERM for a request to
the run, and the task could not end it.

Code that is imported or called meanwhile may set handlers of its own.  ``hold`` reinstalls those of
jobrun; ``restore`` restores the latest foreign ones.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

__all__ = ["Handlers"]

Handler = Callable[[int, FrameType | None], object]


class Handlers:
    """Handlers of signals; to be used on the main thread.

    ``in_child`` are those that a forked child gets instead of the earlier ones.
    """

    def __init__(
        self,
        wanted: Mapping[signal.Signals, Handler],
        in_child: Mapping[signal.Signals, Handler] | None = None,
    ) -> None:
        self._wanted = dict(wanted)
        self._in_child = dict(in_child or {})
        self._theirs: dict[int, Any] = {}
        self._replaced: set[signal.Signals] = set()
        self._pid = os.getpid()
        self._ours = self._handle
        self._free: set[signal.Signals] = set()
        """Those that were not blocked before: a thread that blocks one would never hear it."""

    def install(self) -> None:
        """Set the handlers."""
        self._free = set(self._wanted) - signal.pthread_sigmask(signal.SIG_BLOCK, ())
        for number in self._wanted:
            self._theirs[number] = signal.signal(number, self._ours)
        _installed.append(self)

    def hold(self) -> tuple[signal.Signals, ...]:
        """Reinstall the handlers.

        Return the signals whose handler was replaced since, each once.  A handler set by C code is
        replaced too, but cannot be detected.
        """
        replaced = []
        for number in self._wanted:
            found = signal.signal(number, self._ours)
            if found is not self._ours:
                self._theirs[number] = found
                replaced.append(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._free)
        new = tuple(number for number in replaced if number not in self._replaced)
        self._replaced.update(new)
        return new

    def restore(self) -> None:
        """Restore the handlers from before, or those set meanwhile; idempotent."""
        if self not in _installed:
            return
        self.hold()
        _installed.remove(self)
        for number in self._wanted:
            self.give_back(number)

    def give_back(self, number: int) -> None:
        """Restore the foreign handler of one signal."""
        theirs = self._theirs[number]
        signal.signal(number, signal.SIG_DFL if theirs is None else theirs)

    @property
    def numbers(self) -> Iterable[int]:
        """The signals that are handled."""
        return self._wanted

    def leave_to_child(self) -> None:
        """Remove the handlers from a process that was just forked."""
        for number in self._wanted:
            if signal.getsignal(number) is self._ours:
                self.give_back(number)
            if number in self._in_child and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._in_child[number])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # forked by code in C, of which we are not notified
            self.give_back(number)
            os.kill(os.getpid(), number)
            return
        self._wanted[signal.Signals(number)](number, frame)


_installed: list[Handlers] = []
"""A stack: later handlers replace earlier ones."""


class _Local(threading.local):
    mask: set[Any] | None = None


_forking = _Local()


def _before_fork() -> None:
    """Block signals until the child has its own handlers."""
    numbers = {number for handlers in _installed for number in handlers.numbers}
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers) if numbers else None


def _after_fork() -> None:
    mask, _forking.mask = _forking.mask, None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _in_child() -> None:
    while _installed:
        _installed.pop().leave_to_child()
    try:
        _after_fork()
    except KeyboardInterrupt:  # here Python would drop it; the child has not begun anything
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
