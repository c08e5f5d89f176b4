"""Programs run in a process group of their own, with their output passed on line by line.

However a program ends, no process of it is left: background processes, and those in a session of
their own, are killed too.  If this process is killed, so is the program's group.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobrun.core.children import MARK, Life, end_group, end_marked, forget, remember

__all__ = ["Ended", "LineDecoder", "run_process"]

_TICK = 0.05
"""Seconds between two checks whether the program has to end."""
_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: ``reason`` is empty if by itself, else ``timeout`` or ``stopped``."""

    code: int
    reason: str = ""

    def __str__(self) -> str:
        """Return ``ended with exit code 3`` or ``was ended by SIGSEGV``."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


def run_process(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    keep: Callable[[str], None],
    stop: Callable[[], bool],
    timeout: float | None = None,
) -> Ended:
    """Run a program in ``folder``; ``keep`` gets each line of its stdout and stderr.

    It is ended, with all its children, once ``stop()`` is true or after ``timeout``
    seconds.  Raises OSError if it cannot be started.
    """
    life = Life()
    try:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env={**environment, MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(life.fileno(),),
        )
    except BaseException:
        life.close()
        raise
    life.guard(process.pid)
    remember(process.pid, str(folder))
    assert process.stdout is not None
    try:
        with process.stdout, _Lines(process.stdout, keep) as lines:
            reason = _follow(process, lines, stop, timeout)
            if reason:
                end_group(process.pid, signal.SIGTERM)
                lines.follow(process, _GRACE)
            end_group(process.pid, signal.SIGKILL)
            end_marked(str(folder))
            process.wait()
            lines.rest()
    finally:
        end_group(process.pid, signal.SIGKILL)
        end_marked(str(folder))
        process.wait()
        forget(process.pid)
        life.close()
    return Ended(process.returncode, reason)


def _follow(
    process: subprocess.Popen[bytes],
    lines: _Lines,
    stop: Callable[[], bool],
    timeout: float | None,
) -> str:
    """Wait until the program has ended; return why it has to be ended, or an empty string."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while process.poll() is None:
        if stop():
            return "stopped"
        left = _TICK if deadline is None else min(_TICK, deadline - time.monotonic())
        if left <= 0:
            return "timeout"
        lines.follow(process, left)
    return ""


class LineDecoder:
    """Splits bytes into lines of UTF-8, without their ends; ``keep`` gets each."""

    def __init__(self, keep: Callable[[str], None]) -> None:
        self._keep = keep
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._begun = ""

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self._take(self._decode(data))

    def end(self) -> None:
        """Flush the last, unterminated line."""
        text = self._decode(b"", True)
        self._take(text + "\n" if self._begun or text else "")

    def _take(self, text: str) -> None:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._keep(line.rstrip("\r"))


class _Lines:
    """Splits the output of a process into lines."""

    def __init__(self, stream: IO[bytes], keep: Callable[[str], None]) -> None:
        self._fd = stream.fileno()
        self._decoder = LineDecoder(keep)
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *raised: object) -> None:
        self._selector.close()

    def follow(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Pass on output until the process ends, for at most ``seconds``."""
        end = time.monotonic() + seconds
        while process.poll() is None and (left := end - time.monotonic()) > 0:
            if self._ended:
                try:
                    process.wait(left)
                except subprocess.TimeoutExpired:
                    return
            elif not self._read(left):
                return

    def rest(self) -> None:
        """Pass on the remaining output, once the process and its group have ended.

        A process that has left the group may hold the other end: it is not waited for.
        """
        end = time.monotonic() + _GRACE
        while not self._ended and time.monotonic() < end and self._read(0.0):
            pass
        self._decoder.end()

    def _read(self, seconds: float) -> bool:
        """Pass on a piece; return whether one came in time."""
        if not self._selector.select(seconds):
            return False
        data = os.read(self._fd, 1 << 16)
        self._ended = not data
        self._decoder.add(data)
        return True
