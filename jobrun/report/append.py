"""Appending to a file by whole lines: what cannot be written whole is not in it at all.

So a disk that is full for a while leaves nothing torn behind, and the file goes on afterwards.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["Appender", "cut_torn_line"]


class Appender:
    """Appends to a file; what follows its last line feed, the rest of a crash, is cut first."""

    def __init__(self, path: Path) -> None:
        cut_torn_line(path)
        self._file = path.open("ab", buffering=0)
        self._end = self._file.seek(0, os.SEEK_END)
        self._torn = False

    def append(self, data: bytes) -> None:
        """Append whole lines by one write; raises OSError, and then nothing of them is kept."""
        if self._torn:
            self._file.truncate(self._end)
            self._torn = False
        try:
            done = self._file.write(data)
            if done != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._torn = True
            with suppress(OSError):
                self._file.truncate(self._end)
                self._torn = False
            raise
        self._end += len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def cut_torn_line(path: Path, block: int = 1 << 16) -> None:
    """Cut what follows the last line feed of a file; nothing is done where there is no file."""
    try:
        end = path.stat().st_size
    except FileNotFoundError:
        return
    with path.open("rb") as file:
        keep = end
        while keep > 0:
            start = max(0, keep - block)
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            keep = start
    if keep < end:
        os.truncate(path, keep)
