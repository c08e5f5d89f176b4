"""A disk that is full for a while, for files that are appended to."""

from __future__ import annotations

import errno
import io
import os
from typing import Any

import pytest

from jobrun.storage.fs import Fs


class FullDisk:
    """From now on the files of ``Appender`` have ``room`` bytes, together; None: all they want."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        disk = self

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                if disk.room is None:
                    return super().write(data)
                if disk.room == 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                done = super().write(bytes(data)[: disk.room])
                disk.room -= done
                return done

        def opened(fs: Fs, path: str) -> io.FileIO:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            return File(os.open(path, flags, 0o666), "ab+", closefd=False)

        monkeypatch.setattr(Fs, "open_append", opened)
