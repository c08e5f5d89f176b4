"""Files of a run or checkpoint, opened without trusting what lies under their names.

A run directory may come from someone else.  A link in it could point at an endless device or at a
file outside, and opening a pipe could block for ever.  So every file of a run is opened here: its
last link is not followed, the open does not block, and only a regular file is accepted.  A run
directory that is itself a link is fine.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from jobrun.errors import DamagedError, NotFoundError

__all__ = [
    "close_after_reading",
    "kind_of",
    "open_regular",
    "open_run_file",
    "read_all",
    "read_run_file",
    "refuse_long_line",
    "refuse_not_file",
    "refuse_not_regular",
    "regular_size",
    "size_text",
    "whole_lines",
]

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MODE = 0o666
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
}
_NOT_ALLOWED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
)
_MISSING = (FileNotFoundError, NotADirectoryError)
_HINT = "jobrun uses regular files only: remove it, or put the file itself there"


def kind_of(mode: int) -> str:
    """Return what a file of this mode is, in words; empty for a regular file."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")


def regular_size(status: os.stat_result) -> int:
    """Return the length of a regular file; raise OSError, saying what it is, for anything else."""
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"is {kind_of(mode)}, not a file")
    return status.st_size


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> tuple[int, int]:
    """Return a descriptor of a regular file, opened with ``flags``, and its length.

    Raise OSError, naming the path, if it cannot be opened, is a link or is not a regular file.
    """
    name = os.fspath(path)
    try:
        fd = os.open(name, flags | _SAFE, _MODE)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) and os.path.islink(name):
            raise OSError(error.errno, "is a symbolic link, not a file", name) from error
        if error.errno == errno.ENXIO:  # a fifo without a reader, or a socket
            raise OSError(error.errno, "is a fifo or a socket, not a file", name) from error
        raise
    try:
        return fd, regular_size(os.fstat(fd))
    except OSError as error:
        os.close(fd)
        raise OSError(error.errno, error.strerror, name) from error


def close_after_reading(fd: int) -> None:
    """Close a descriptor from which was only read, whatever that reports.

    Some FUSE file systems fail with EIO here, which says nothing about the bytes that were read.
    """
    with suppress(OSError):
        os.close(fd)


def read_all(fd: int, size: int, most: int) -> bytes:
    """Return all bytes of a file that should have ``size``; raise OSError above ``most``.

    Memory for more than ``size`` would cost page faults.
    """
    parts: list[bytes] = []
    found = 0
    if size <= most:
        while part := os.read(fd, min(size, most - found) + 1):
            parts.append(part)
            found += len(part)
            if found > most:
                break
    if max(size, found) > most:
        raise OSError(errno.EFBIG, f"is longer than {size_text(most)}, the limit")
    return b"".join(parts)


def size_text(size: int) -> str:
    """Return a limit in words: ``64 MiB``, or ``200 bytes`` below one."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"


def open_run_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of a run for reading.

    Raise FileNotFoundError or NotADirectoryError if it is missing, DamagedError, naming it, if it
    is a link or not a regular file, and NotFoundError if permission is denied.
    """
    try:
        fd, _ = open_regular(path)
    except _MISSING:
        raise
    except OSError as error:
        raise _refused(path, error) from error
    return os.fdopen(fd, "rb")


def read_run_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Return all bytes of a file of a run; raise as ``open_run_file``.

    Raise DamagedError, naming the file and the limit, if there are more than ``most`` bytes.
    """
    with open_run_file(path) as file:
        try:
            return read_all(file.fileno(), os.fstat(file.fileno()).st_size, most)
        except OSError as error:
            raise _refused(path, error) from error


def whole_lines(file: BinaryIO, path: str | os.PathLike[str], longest: int) -> Iterator[bytes]:
    """Iterate over the lines of a file of a run, each with its line feed.

    Raise DamagedError, naming the file, at a line of more than ``longest`` bytes.
    """
    while line := file.readline(longest + 1):
        refuse_long_line(path, len(line), longest)
        yield line


def refuse_long_line(path: str | os.PathLike[str], length: int, longest: int) -> None:
    """Raise DamagedError, naming the file, for a line of more than ``longest`` bytes."""
    if length > longest:
        raise DamagedError(
            f"a line is longer than {size_text(longest)}, the limit", where=os.fspath(path)
        )


def refuse_not_regular(path: str | os.PathLike[str]) -> None:
    """Raise DamagedError if a file that a run writes into is a link or not a regular file."""
    try:
        regular_size(os.lstat(path))
    except _MISSING:
        return
    except OSError as error:
        raise _refused(path, error) from error


def refuse_not_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError, saying what it is, for what is no regular file; links to one are followed.

    Opening a pipe could block for ever, and a device never ends.
    """
    regular_size(os.stat(path))


def _refused(path: str | os.PathLike[str], error: OSError) -> DamagedError | NotFoundError:
    """Return the error to raise for a failed open or read of a file."""
    where = os.fspath(path)
    if error.errno in _NOT_ALLOWED:
        return NotFoundError(f"it cannot be read: {error.strerror}", where=where)
    if error.strerror and error.strerror.startswith("is "):
        return DamagedError(f"it {error.strerror}", where=where, hint=_HINT)
    return DamagedError(f"it cannot be read: {error.strerror}", where=where)
