"""Appending to a file by whole lines: a line that cannot be written whole is not in it at all.

So a disk that is full for a while leaves no torn line, and appending continues afterwards.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from jobrun.storage.fs import DEFAULT, FsError
from jobrun.storage.regular_file import size_text

__all__ = ["Appender"]

_BLOCK = 1 << 16
_LONGEST = 1 << 30
"""Bytes of a torn line that are looked through for its beginning: a file with a hole has more."""


class Appender:
    """Appends to a file; a last line without a line feed, left by a crash, is cut off first.

    Its methods raise FsError where the system refuses, and where the file is a link or not a
    regular file: what a run writes stays within the run.  If a task has closed the descriptor,
    which may belong to another file by now, the file is opened again.
    """

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._torn = False
        self._open()

    def _open(self) -> None:
        self._file = DEFAULT.open_append(self._path)
        self._opened = os.fstat(self._file.fileno())
        try:
            self._end = self._cut_torn_line()
        except BaseException:
            self.close()
            raise

    def _is_open(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self._opened)
        except (OSError, ValueError):
            return False

    def append(self, data: bytes) -> None:
        """Append whole lines by one write; raise FsError, keeping none of them, if that fails."""
        if not self._is_open():
            self._open()
        if self._torn:
            DEFAULT.cut(self._file, self._path, self._end)
            self._torn = False
        try:
            DEFAULT.append(self._file, self._path, data)
        except OSError:
            self._torn = True
            with suppress(OSError):
                DEFAULT.cut(self._file, self._path, self._end)
                self._torn = False
            raise
        self._end += len(data)

    def sync(self) -> None:
        """Make the appended lines durable."""
        DEFAULT.sync_file(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._is_open():
            os.close(self._file.fileno())
        self._file.close()

    def _cut_torn_line(self) -> int:
        """Cut off what follows the last line feed; return the number of bytes left."""
        keep = end = self._file.seek(0, os.SEEK_END)
        while keep > 0:
            if end - keep > _LONGEST:
                why = f"its last line is longer than {size_text(_LONGEST)}"
                raise FsError("append", self._path, OSError(errno.EFBIG, why))
            start = max(0, keep - _BLOCK)
            self._file.seek(start)
            found = self._file.read(keep - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            keep = start
        if keep < end:
            DEFAULT.cut(self._file, self._path, keep)
        return keep
