"""Parts of a checkpoint that are read while ``setup`` runs, so that a resume waits for the longer.

What ``setup`` makes does not depend on what is restored, and that is put in its place only once
``setup`` has ended: the result and the errors are the same as if the parts were read then.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from jobrun.checkpoint.reading import read_part
from jobrun.core.resident_memory import memory_available
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import Value

__all__ = ["PartsAhead"]

_SHARE = 4
"""Part of the available memory that may be read ahead: ``setup`` may need most of it."""


class _Stoppable(Fs):
    """File operations that fail once ``stopped`` is set."""

    stopped = False

    def at(self, op: str, path: str) -> None:
        """Raise OSError if the reading is to end."""
        if self.stopped:
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
        DEFAULT.at(op, path)


class PartsAhead:
    """Reads parts of one checkpoint on a thread of its own."""

    def __init__(self) -> None:
        self._fs = _Stoppable()
        self._pool: ThreadPoolExecutor | None = None
        self._parts: dict[tuple[Path, str], Future[dict[str, Value]]] = {}

    def start(self, directory: Path, parts: Iterable[str], size: int) -> None:
        """Start to read parts of a checkpoint of ``size`` bytes if they fit into memory easily."""
        self.stop()
        available = memory_available()
        if available is None or size > available // _SHARE:
            return
        self._fs = fs = _Stoppable()
        self._pool = pool = ThreadPoolExecutor(1, "jobrun-restore")
        self._parts = {
            (directory, part): pool.submit(read_part, directory, part, fs=fs)
            for part in dict.fromkeys(parts)
        }

    def take(self, directory: Path, part: str) -> dict[str, Value]:
        """Return what ``read_part`` returns, or raise what it raises; each part is kept once.

        A part that could not be read is read again: beside ``setup`` there may have been too little
        memory for it, or too few open files.
        """
        future = self._parts.pop((directory, part), None)
        if future is None or future.exception() is not None:
            return read_part(directory, part)
        return future.result()

    def stop(self) -> None:
        """End the reading, and drop what was read and not taken."""
        self._fs.stopped = True
        self._parts.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
