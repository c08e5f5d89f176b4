"""Runs of a sweep as separate processes of this machine, a limited number at a time.

Each has its own process group: a Ctrl-C on the terminal reaches the sweep alone, which passes
it on by the process's stdin, once.  That end closes when the sweep is killed, and the runs end too.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from jobrun.cli.member import Order
from jobrun.core.process import ChildOutput
from jobrun.errors import UsageError

__all__ = ["Fleet", "Listener", "LocalFleet"]

_TICK = 0.1
"""The seconds between checks whether a process with open pipes has ended."""
_CODE = "import sys; sys.path[:] = {path!r}; from jobrun.cli.member import main; main()"


class Listener(Protocol):
    """The receiver of events; runs are identified by their numbers."""

    def started(self, number: int) -> None:
        """Handle the start of a process."""

    def received(self, number: int, event: dict[str, Any]) -> None:
        """Handle an event, as JSON values with ``lines``, or the error before the run started."""

    def printed(self, number: int, line: str) -> None:
        """Handle a line of its stderr."""

    def ended(self, number: int, code: int) -> None:
        """Handle the end of a process: its exit code, negative for a signal."""


class Fleet(Protocol):
    """Runs of a sweep, started somewhere; ``signal`` is what has ended them, or empty."""

    signal: str

    def run(self, orders: Iterable[tuple[int, Order]]) -> None:
        """Start a process for each order, and wait for all."""

    def send(self, signal_name: str, *, last: bool) -> None:
        """Pass a signal on to all that run; from any thread.  ``last``: start no more."""


@dataclass
class _Child:
    number: int
    process: subprocess.Popen[bytes]
    outputs: list[ChildOutput] = field(default_factory=list)

    def write(self, line: str) -> None:
        """Write to its stdin; ignored if it has ended."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()


class LocalFleet:
    """A runner of processes, ``jobs`` at a time; ``listener`` receives their output.

    They begin in the directory ``start`` (None: the current one).  No further one is started once
    ``go`` is false, or after a signal.
    """

    def __init__(
        self, jobs: int, listener: Listener, go: Callable[[], bool], start: str | None = None
    ) -> None:
        self._start_directory = start
        self._jobs = jobs
        self._listener = listener
        self._go = go
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self.signal = ""

    def run(self, orders: Iterable[tuple[int, Order]]) -> None:
        """Start a process for each order, and wait for all."""
        left = iter(orders)
        following = next(left, None)
        try:
            while True:
                while following is not None and len(self._children) < self._jobs:
                    if not self._start(*following):
                        break
                    following = next(left, None)
                if not self._children:
                    return
                self._listen()
                for child in [c for c in self._children if c.process.poll() is not None]:
                    self._end(child)
        finally:
            self._selector.close()
            for child in self._children:  # an error in jobrun: they save and end
                assert child.process.stdin is not None
                child.process.stdin.close()

    def send(self, signal_name: str, *, last: bool) -> None:
        """Pass a signal on to all that run; from any thread.  ``last``: start no more."""
        with self._lock:
            self.signal = signal_name if last else self.signal
            for child in tuple(self._children):
                child.write(signal_name)

    def _start(self, number: int, order: Order) -> bool:
        """Start a process, unless starts are over."""
        with self._lock:
            if self.signal or not self._go():
                return False
            process = _process(order.run, self._start_directory)
            child = _Child(number, process)
            child.write(json.dumps(asdict(order)))
            self._children.append(child)
        child.outputs += [
            ChildOutput(process.stdout, lambda line: self._receive(child, line)),
            ChildOutput(process.stderr, lambda line: self._printed(child, line)),
        ]
        for output in child.outputs:
            self._selector.register(output, selectors.EVENT_READ, output)
        self._listener.started(number)
        return True

    def _listen(self) -> None:
        for key, _ in self._selector.select(_TICK):
            key.data.read()
            if not key.data.is_open:
                self._selector.unregister(key.fileobj)

    def _receive(self, child: _Child, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict):
            self._listener.received(child.number, event)
        else:
            self._printed(child, line)

    def _printed(self, child: _Child, line: str) -> None:
        self._listener.printed(child.number, line)

    def _end(self, child: _Child) -> None:
        """Read the rest of the output of an ended process, and forget it."""
        process = child.process
        for output in child.outputs:
            if output.is_open:
                self._selector.unregister(output)
            output.close()
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        with self._lock:
            self._children.remove(child)
        self._listener.ended(child.number, process.returncode)


def _process(run: str, start: str | None) -> subprocess.Popen[bytes]:
    """Return a process that waits for its order in the directory ``start``.

    ``run`` shows in lists of processes.
    """
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE.format(path=sys.path), run],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=start,
            start_new_session=True,
        )
    except OSError as error:
        text = f"no process can be started for {run}: {error.strerror}"
        raise UsageError(text, hint="a smaller --jobs needs less") from error
