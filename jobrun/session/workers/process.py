"""One worker process, as seen from the process that starts it.

It is a fresh interpreter, never a fork: other threads run here, and locks that they hold would be
held for ever in a copy.  It has a session and a process group of its own, so that Ctrl-C does not
reach it, and it can be ended with all its children.  If this process dies, however it does, the
system ends the worker at once (see ``core.children.Life``).

The output of a worker is printed here, before the answer that follows it is returned.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from jobrun.core.process import ChildGroup, ChildOutput, Ended
from jobrun.session.current import TaskStoppedError
from jobrun.session.workers.channel import Channel
from jobrun.session.workers.shared_memory import anonymous_file, mapped
from jobrun.session.workers.status import STATUS_BYTES, Status, WorkerStatus

__all__ = ["LostError", "WorkerProcess"]

_TICK = 50
"""The milliseconds between two checks whether a worker has to end."""
_GRACE = 1.0
"""The seconds that a worker which has closed its connection has to end."""
_LAST_LINES = 20
_LONGEST_LINE = 500
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from jobrun.session.workers.worker import main; main(*map(int, sys.argv[2:]))"
)


class LostError(Exception):
    """The worker is gone: how it ended, its last status, and the end of its output.

    ``late``: it was ended here, since a step exceeded its timeout.  ``proven`` is that of the
    worker.
    """

    def __init__(
        self, ended: Ended, doing: WorkerStatus, tail: str, *, late: bool, proven: bool
    ) -> None:
        super().__init__(str(ended))
        self.proven = proven
        self.ended = ended
        self.doing = doing
        self.tail = tail
        self.late = late


class WorkerProcess:
    """A worker process, which answers one question after another, of one thread at a time.

    ``timeouts`` are the seconds that each step may take (None: any time).  Raises OSError if no
    process can be started.
    """

    def __init__(self, timeouts: Sequence[float | None]) -> None:
        self.ready = False
        """Whether it has received its steps; set by the caller."""
        self.proven = False
        """Whether it has run them before; set by the caller."""
        self._timeouts = timeouts
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)
        ours, theirs = socket.socketpair()
        status = anonymous_file(STATUS_BYTES)
        self._status = Status(mapped(os.dup(status)))
        self._status.clear()
        try:
            self._child = _start(theirs.fileno(), status)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(status)
        self._process = self._child.process
        self._channel = Channel(ours)
        self._outputs = [
            ChildOutput(self._process.stdout, lambda line: self._print(line, sys.stdout)),
            ChildOutput(self._process.stderr, lambda line: self._print(line, sys.stderr)),
        ]
        # The channel first: where an answer is seen, what was printed before it is seen too.
        self._poll = select.poll()
        for descriptor in (self._channel.fileno(), *(each.fileno() for each in self._outputs)):
            self._poll.register(descriptor, select.POLLIN)

    def _print(self, line: str, stream: Any) -> None:
        self._tail.append(line[:_LONGEST_LINE])
        stream.write(f"{line}\n")  # in one piece: other threads print, too

    def ask(self, question: Any) -> None:
        """Send a question; raises OSError where memory or descriptors have run out."""
        self._status.clear()
        with suppress(ConnectionError):  # it is gone: seen where the answer is awaited
            self._channel.send(question)

    def answer(self, stopping: Callable[[], bool]) -> Any:
        """Return its next answer.

        Raises LostError if the worker is gone; TaskStoppedError, with the worker ended, once
        ``stopping()`` is true; OSError where memory or descriptors have run out.
        """
        ended = False
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll(_TICK)}
            for output in self._outputs:
                if output.fileno() in ready:
                    output.read()  # all that a pipe can hold
                    if not output.is_open:
                        self._poll.unregister(output.fileno())
            if self._channel.fileno() in ready:
                return self._receive()
            if ended:  # a process that it has forked keeps the connection open, and may print
                self._lost(late=False)
            ended = self._process.poll() is not None  # its last answer, if there is one, counts
            if stopping():
                self.end()
                raise TaskStoppedError
            if self._is_late():
                self._lost(late=True)

    def _receive(self) -> Any:
        try:
            return self._channel.receive()
        except (EOFError, ConnectionError):
            self._lost(late=False)

    def _is_late(self) -> bool:
        doing = self._status.read()
        limit = self._timeouts[doing.step] if doing.step >= 0 else None
        return limit is not None and time.monotonic() - doing.started > limit

    def _lost(self, late: bool) -> None:
        doing = self._status.read()
        if not late:
            with suppress(subprocess.TimeoutExpired):  # it may have closed its end and still run
                self._process.wait(_GRACE)
        self.end()
        ended, tail = Ended(self._process.returncode), "\n".join(self._tail)
        raise LostError(ended, doing, tail, late=late, proven=self.proven)

    def kill(self) -> None:
        """Kill it at once; from any thread.  Its caller sees that, and calls ``end``."""
        self._child.signal(signal.SIGKILL)

    def leave(self) -> None:
        """Let it end by itself, if it is idle; ``end`` must follow."""
        self._channel.close()

    def end(self, grace: float = 0.0) -> None:
        """End it with all its children, after ``grace`` seconds; print the rest of its output."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        self._child.end()
        for output in self._outputs:
            output.close()
        self._channel.close()


def _start(*descriptors: int) -> ChildGroup:
    """Start an interpreter with this one's flags, which imports from the same places."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    return ChildGroup(
        [sys.executable, *flags, "-P", "-c", _CODE, path, *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
