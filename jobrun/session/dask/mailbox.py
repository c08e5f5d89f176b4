"""The messages of a run that a worker has got, and the blobs of other workers in them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping

from jobrun.errors import TaskError
from jobrun.session.dask.messages import Message, Missing, arrived
from jobrun.values.boxes import Value
from jobrun.values.workspace import Workspace

__all__ = ["Mailbox", "Mirror"]


class Mailbox:
    """The messages of the current run, and of one that other workers have already begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[int, list[Message]] = defaultdict(list)
        self._open: tuple[int, Callable[[Message], None]] | None = None

    def put(self, message: Message) -> None:
        """Add a message."""
        with self._lock:
            self._messages[message.run].append(message)
            if self._open is not None and self._open[0] == message.run:
                self._open[1](message)

    def open(self, run: int, take: Callable[[Message], None]) -> None:
        """Pass each message of a run to ``take``, those that have already come first."""
        with self._lock:
            for message in self._messages[run]:
                take(message)
            self._open = (run, take)

    def close(self) -> None:
        """Keep messages from now on; nothing receives them."""
        with self._lock:
            self._open = None

    def forget(self, before: int) -> None:
        """Drop the messages of runs before this one."""
        with self._lock:
            for run in [r for r in self._messages if r < before]:
                del self._messages[run]


class Mirror(Workspace):
    """Blobs of a node of another worker, as a task sees them: received ones, and its outputs."""

    def __init__(self, ranks: Mapping[str, int]) -> None:
        super().__init__(ranks)
        self._missing: dict[str, Missing] = {}

    def fill(self, path: str, value: Value | Missing) -> None:
        """Store a received value, or why there is none."""
        if isinstance(value, Missing):
            self._missing[path] = value
        else:
            self.put(path, arrived(value))

    def get(self, path: str) -> Value:
        """See Workspace."""
        missing = self._missing.get(path)
        if missing is not None and self.find(path) is None:
            raise TaskError(missing.message, hint=missing.hint)
        return super().get(path)

    def clear(self) -> None:
        """Drop all blobs."""
        self.root = {}
        self._missing = {}
