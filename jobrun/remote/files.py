"""Reading checkpoints at URLs: ``Fs`` over a store."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial

from jobrun.errors import NotFoundError
from jobrun.remote.failures import CorruptError
from jobrun.remote.store import TooLongError, open_store, split
from jobrun.storage.bounded_json import MAX_BYTES
from jobrun.storage.fs import Fs, FsError

__all__ = ["RemoteFs"]


class RemoteFs(Fs):
    """The reading half of ``Fs`` over a store: an opened file is fetched into memory as a whole.

    Chunks are small (16 MiB at most), so a slice of an array fetches little.  Paths are URLs.  A
    store that fails raises StoreError, which says nothing about the file.
    """

    far = True

    def open(self, path: str, most: int) -> tuple[int, int]:
        """Return a descriptor of a nameless copy of the file, and its length in bytes."""

        def call() -> tuple[int, int]:
            data = self._fetch(path, most)
            fd = _nameless()
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                os.lseek(fd, 0, os.SEEK_SET)
            except BaseException:
                os.close(fd)
                raise
            return fd, len(data)

        return self._do("open", path, call)

    def read(self, path: str, most: int) -> bytes:
        """Return all bytes of a file; raises FsError (EFBIG) if there are more than ``most``."""
        return self._do("read", path, lambda: self._fetch(path, most))

    def kind(self, path: str) -> str:
        """Return ``file`` if there is a file at a URL, else ``""``; a store has no links."""
        try:
            self._do("stat", path, lambda: self._fetch(path, MAX_BYTES))
        except FsError as error:
            return "" if error.errno == errno.ENOENT else "file"
        return "file"

    def names(self, path: str) -> list[str]:
        """Return the names of the folders at a URL; empty if there is nothing."""
        return self._do("list", path, lambda: open_store(path).folders())

    def sizes(self, paths: Iterable[str]) -> Iterator[int]:
        """Yield the lengths of files, by one listing of the folder that holds them all."""
        paths = list(paths)
        start = os.path.commonprefix(paths)  # noqa: RUF071 - of characters: cut at a slash below
        folder = start.rpartition("/")[0]
        found = self._do("list", folder, lambda: open_store(folder).sizes("")) if paths else {}

        def call(path: str) -> int:
            name = path[len(folder) + 1 :]
            if name not in found:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return found[name]

        for path in paths:
            yield self._do("stat", path, partial(call, path))

    def _fetch(self, path: str, most: int) -> bytes:
        above, name = split(path)
        try:
            return open_store(above).read(name, most)
        except TooLongError as error:
            raise OSError(errno.EFBIG, error.message) from error
        except CorruptError as error:
            raise OSError(errno.EIO, error.message) from error
        except NotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error


def _nameless() -> int:
    """Return the descriptor of a file without a name, in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("jobrun", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
