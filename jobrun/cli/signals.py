"""Signals that end a run: the first one asks it to stop, a second SIGINT or SIGTERM exits at once.

SIGHUP, SIGXCPU and SIGUSR2 are notices of terminals and schedulers.  They may come several times (a
shell and the kernel both send SIGHUP; SIGXCPU comes every second), so that a repeated one does not
exit at once.  A SIGHUP that was ignored at the start, as under nohup, stays ignored.

A scheduler may send SIGTERM twice within an instant: at the end of the time Slurm signals a step
and ``srun``, which passes it on.  So a SIGTERM that follows another at once is the same request.

SIGUSR1 requests a save; the run continues.  Before there is a run, the first one exits at once: an
exception in the middle of an import would end in whatever code it interrupts.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn, Protocol

from jobrun.core.children import kill_children
from jobrun.core.signal_handlers import Handlers

__all__ = ["Signals", "leave_until_there_is_a_run"]

_AT_ONCE = (signal.SIGINT, signal.SIGTERM)
"""The signals that exit at once if the run has been asked to stop already."""
_NOTICES = (signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2)
_ENDING = tuple(
    number
    for number in (*_AT_ONCE, *_NOTICES)
    if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
)
_AS_BEFORE = "\r\x1b[J\x1b[?25h"
"""The escape codes that clear the live view, below the cursor, and show the cursor."""
_HOLD = 1.0
"""The seconds after which handlers that other code may have replaced are set again."""
_SAME = 1.0
"""The seconds within which a second SIGTERM is the same request; Slurm's came 37 ms apart."""
_TOLD = 0.3
"""The seconds within which a signal to all processes of a terminal has reached the run."""


class Stoppable(Protocol):
    """The target of signals: a ``JobRunner``."""

    def interrupt(self, signal_name: str) -> None:
        """Start no new work, save, and end the run."""

    def save_soon(self, signal_name: str) -> None:
        """Save at the next place where that is possible."""


class Signals:
    """A context in which signals are passed on to ``runner``, once there is one.

    ``again`` is the command that resumes a run after an immediate exit.
    """

    def __init__(self) -> None:
        self.again = ""
        self.runner: Stoppable | None = None
        self._received = _Count()
        self._held = time.monotonic()
        self._terminated = -math.inf
        wanted = {**dict.fromkeys(_ENDING, self._handle), signal.SIGUSR1: self._save}
        self._handlers = Handlers(wanted, {signal.SIGINT: self._in_child})

    def __enter__(self) -> Signals:
        _early.restore()
        self._handlers.install()
        return self

    def __exit__(self, *raised: object) -> None:
        self._handlers.restore()

    def hold(self, warn: Callable[[str], None]) -> None:
        """Set the handlers again; call ``warn`` for those that the job's code has replaced."""
        self._held = time.monotonic()
        names = ", ".join(number.name for number in self._handlers.hold())
        if names:
            warn(
                f"the job's code has set its own handler of {names}: it is not used during the "
                "run, since the state would not be saved"
            )

    def look(self, warn: Callable[[str], None]) -> None:
        """Call ``hold``, once a second at most; does nothing on another than the main thread."""
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and time.monotonic() - self._held >= _HOLD:
            self.hold(warn)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        if received == signal.SIGTERM and self._is_repeated() and self.runner is not None:
            return
        self._received.add()
        if self.runner is None:
            _leave_early(number, frame)
        if self._received.value > 1:
            if received in _AT_ONCE:
                _leave(received, self.again)
            return
        # On a thread of its own: the one interrupted here may be in the middle of reporting.
        start_new_thread(self.runner.interrupt, (received.name,))

    def _is_repeated(self) -> bool:
        """Return whether a SIGTERM follows another at once."""
        now = time.monotonic()
        if now - self._terminated < _SAME:
            return True
        self._terminated = now
        return False

    def _save(self, number: int, frame: FrameType | None) -> None:
        if self.runner is not None:  # else there is nothing to save yet
            start_new_thread(self.runner.save_soon, (signal.Signals(number).name,))

    def _in_child(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT in a forked child of the run.

        From a terminal both receive it.  The first one then applies to the run alone, whose running
        tasks end as usual: a pool that loses a worker would keep them waiting for ever.  A further
        one, and one that was sent to the child, applies to the child.
        """
        if self._received.grows_within(_TOLD) and self._received.value == 1:
            return
        self._handlers.give_back(number)
        os.kill(os.getpid(), number)


class _Count:
    """A counter shared with forked children."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 1)
        self._seen = 0

    @property
    def value(self) -> int:
        """The number, which stays at 255."""
        return self._shared[0]

    def add(self) -> None:
        """Count one more."""
        self._shared[0] = min(self.value + 1, 255)

    def grows_within(self, seconds: float) -> bool:
        """Return whether it has grown since the last call, or grows soon."""
        end = time.monotonic() + seconds
        while self.value == self._seen and time.monotonic() < end:
            time.sleep(0.002)
        before, self._seen = self._seen, self.value
        return self._seen > before


def leave_until_there_is_a_run() -> None:
    """Make signals end the process with a message, until ``Signals`` is entered."""
    _early.install()


def _leave_early(number: int, frame: FrameType | None) -> NoReturn:
    received = signal.Signals(number)
    with suppress(Exception):  # the output of imports; it must not delay the exit
        sys.stdout.flush()
    _end(f"{received.name}: exited before the run began\n", 128 + number)


def _leave(received: signal.Signals, again: str) -> NoReturn:
    """End the process now: no handler, lock or buffer can hold it back."""
    text = f"\n{received.name} again: exited at once; the last checkpoint is whole\n"
    text += f"\n{again}\n" if again else ""
    _end(text, 128 + received)


def _end(text: str, code: int) -> NoReturn:
    terminal = _AS_BEFORE if os.isatty(2) else ""
    with suppress(OSError):  # nobody reads it anymore
        os.write(2, (terminal + text).encode(errors="surrogateescape"))
    kill_children()
    os._exit(code)


_early = Handlers(dict.fromkeys(_ENDING, _leave_early))
