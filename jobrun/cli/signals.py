"""SIGINT and SIGTERM: the first one asks the run to stop, the second one leaves at once.

SIGUSR1 asks for a save; the run goes on.
"""

from __future__ import annotations

import os
import signal
import sys
from _thread import start_new_thread
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Protocol

from jobrun.children import kill_children

__all__ = ["Interrupted", "Signals"]

_EXIT = {signal.SIGINT: 130, signal.SIGTERM: 143}
_AS_BEFORE = "\r\x1b[J\x1b[?25h"
"""Clears the live view, which stands below the cursor, and shows the cursor."""


class Interrupted(KeyboardInterrupt):
    """A signal came before there was a run to stop."""

    def __init__(self, name: str, exit_code: int) -> None:
        super().__init__(name)
        self.exit_code = exit_code


class Stoppable(Protocol):
    """What a signal is passed on to: a ``JobRunner``."""

    def interrupt(self, signal_name: str) -> None:
        """Start no new work, save, and end the run."""

    def save_soon(self, signal_name: str) -> None:
        """Save at the next place where that can be done."""


class Signals:
    """A context in which signals are passed on to ``runner``, once there is one.

    ``again`` is the command that goes on after the run was left at once.
    """

    def __init__(self) -> None:
        self.again = ""
        self._runner: Stoppable | None = None
        self._received = 0
        self._first = ""
        self._before: dict[signal.Signals, Any] = {}

    @property
    def runner(self) -> Stoppable | None:
        """What signals are passed on to; one that came before and was lost is passed on at once."""
        return self._runner

    @runner.setter
    def runner(self, runner: Stoppable) -> None:
        self._runner = runner
        if self._first:
            runner.interrupt(self._first)

    def __enter__(self) -> Signals:
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._unraisable
        for number in _EXIT:
            self._before[number] = signal.signal(number, self._handle)
        self._before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._save)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def _unraisable(self, lost: Any) -> None:
        """Python cannot raise out of the callback that was running: see ``runner``."""
        if not isinstance(lost.exc_value, Interrupted):
            self._hook(lost)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        self._received += 1
        if self._received > 1:
            _leave(received, self.again)
        if self.runner is None:
            self._first = received.name
            raise Interrupted(received.name, _EXIT[received])
        # On a thread of its own: the one interrupted here may be in the middle of reporting.
        start_new_thread(self.runner.interrupt, (received.name,))

    def _save(self, number: int, frame: FrameType | None) -> None:
        if self.runner is not None:  # else there is nothing yet that could be saved
            start_new_thread(self.runner.save_soon, (signal.Signals(number).name,))


def _leave(received: signal.Signals, again: str) -> None:
    """End the process now: no handler, lock or buffer can hold it back."""
    terminal = _AS_BEFORE if sys.__stderr__ is not None and sys.__stderr__.isatty() else ""
    text = f"{terminal}\n{received.name} again: left at once; the last checkpoint is whole\n"
    text += f"\n{again}\n" if again else ""
    with suppress(OSError):  # nobody reads it any more
        os.write(2, text.encode(errors="surrogateescape"))
    kill_children()
    os._exit(_EXIT[received])
