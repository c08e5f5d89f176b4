"""Child processes, with their output passed on line by line.

``ChildOutput`` follows one output stream of any child.  ``ChildGroup`` is a child with a process
group of its own: however it ends, no process of the group is left, and if this process is killed,
so is the group.  ``run_process`` runs a program so from its start to its end.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jobrun.core.children import MARK, Life, end_group, end_marked, forget, remember

__all__ = ["ChildGroup", "ChildOutput", "Ended", "LineDecoder", "run_process"]

_TICK = 0.05
"""Seconds between two checks whether the program has to end."""
_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""
_PIPE_BYTES = 1 << 20
"""The most that a pipe holds, where no privileged process has made it larger."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program: ``reason`` is empty if by itself, else ``timeout`` or ``stopped``."""

    code: int
    reason: str = ""

    def __str__(self) -> str:
        """Return ``ended with exit code 3`` or ``was killed by SIGSEGV``."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was killed by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was killed by signal {-self.code}"


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


class ChildOutput:
    """One output stream of a child process; ``keep`` gets its lines.  Reading never blocks."""

    def __init__(self, stream: IO[bytes] | None, keep: Callable[[str], None]) -> None:
        assert stream is not None
        self._stream = stream
        self._lines = LineDecoder(keep)
        self.is_open = True
        """Whether more may come."""
        os.set_blocking(stream.fileno(), False)

    def fileno(self) -> int:
        """Return the descriptor, to wait for output."""
        return self._stream.fileno()

    def read(self) -> bool:
        """Pass on a piece of output; return whether there was one."""
        return self._read() > 0

    def _read(self) -> int:
        try:
            data = os.read(self.fileno(), 1 << 16)
        except BlockingIOError:
            return 0
        self.is_open = bool(data)
        self._lines.add(data)
        return len(data)

    def close(self) -> None:
        """Pass on the remaining output, once the child has ended, and close.

        A process that the child has left behind may hold the other end: it is not waited for.
        """
        if self._stream.closed:
            return
        with self._stream:
            left = _PIPE_BYTES
            while left > 0 and (count := self._read()):
                left -= count
            self._lines.end()


class ChildGroup:
    """A child process in a session and process group of its own, which ends with this process.

    ``mark``, if given, is a value of the variable ``MARK`` in its environment, by which descendants
    that have left the group are found.  ``options`` are those of Popen.  Raises OSError if it
    cannot be started.
    """

    def __init__(
        self, words: Sequence[str], *, mark: str = "", pass_fds: Sequence[int] = (), **options: Any
    ) -> None:
        life = Life()
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                words, pass_fds=(*pass_fds, life.fileno()), start_new_session=True, **options
            )
        except BaseException:
            life.close()
            raise
        life.guard(self.process.pid)
        remember(self.process.pid, mark)
        self._end = weakref.finalize(self, _end, self.process, life, mark, os.getpid())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, unless it has been ended; from any thread."""
        if self._end.alive:
            end_group(self.process.pid, number)

    def end(self) -> None:
        """Kill the child and all its descendants, as far as they still run, and wait for it."""
        self._end()


def _end(process: subprocess.Popen[bytes], life: Life, mark: str, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has a copy of the object, and drops it
        return
    end_group(process.pid, signal.SIGKILL)
    if mark:
        end_marked(mark)
    process.wait()
    forget(process.pid)
    life.close()


def run_process(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    keep: Callable[[str], None],
    stop: Callable[[], bool],
    timeout: float | None = None,
) -> Ended:
    """Run a program in ``folder``; ``keep`` gets each line of its stdout and stderr.

    It is ended, with all its descendants, once ``stop()`` is true or after ``timeout`` seconds.
    Raises OSError if it cannot be started.
    """
    child = ChildGroup(
        words,
        mark=str(folder),
        cwd=folder,
        env={**environment, MARK: str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = ChildOutput(child.process.stdout, keep)
    try:
        reason = _follow(child.process, output, stop, timeout)
        if reason:
            child.signal(signal.SIGTERM)
            _pass_on(child.process, output, _GRACE)
    finally:
        child.end()
        output.close()
    return Ended(child.process.returncode, reason)


def _follow(
    process: subprocess.Popen[bytes],
    output: ChildOutput,
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
        _pass_on(process, output, left)
    return ""


def _pass_on(process: subprocess.Popen[bytes], output: ChildOutput, seconds: float) -> None:
    """Pass on output until the process ends, for at most ``seconds``."""
    end = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while process.poll() is None and (left := end - time.monotonic()) > 0:
            if output.is_open:
                if selector.select(left):
                    output.read()
                continue
            with suppress(subprocess.TimeoutExpired):
                process.wait(left)
