"""The file operations of a checkpoint.

All of jobrun's checkpoint code goes through one ``Fs``.  A subclass may have an ``at`` that raises
an ``OSError`` before an operation: that ends a reading.  Those of tests record the operations, too,
raise at one of them, or kill the process there.

An operation that fails raises ``FsError``, an ``OSError`` that also names the operation.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from jobrun.core.notices import notice
from jobrun.storage.direct_io import SMALLEST, write_direct
from jobrun.storage.mounts import can_syncfs, libc, mount_point
from jobrun.storage.regular_file import close_after_reading, open_regular, read_all, regular_size

__all__ = ["DEFAULT", "Buffer", "Fs", "FsError", "Sums", "SyncAll"]

T = TypeVar("T")
Buffer = bytes | memoryview

# What fsync(2) of a directory fails with on CIFS and some FUSE, which sync files all the same.
_NO_DIRECTORY_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


class FsError(OSError):
    """A file operation failed; ``op`` names it, ``filename`` and ``errno`` are as in OSError."""

    def __init__(self, op: str, path: str, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), path)
        self.op = op

    @property
    def code(self) -> str:
        """The symbol of the error: ``ENOSPC``."""
        return errno.errorcode.get(self.errno or 0, "")

    def __reduce__(self) -> tuple[Any, ...]:
        return FsError, (self.op, self.filename, OSError(self.errno, self.strerror))

    def __str__(self) -> str:
        return f"{self.op} of {self.filename}: {self.strerror}" + f" ({self.code})" * bool(
            self.code
        )


class Sums(Protocol):
    """Checksums computed from the bytes of a file while they are written; they end the file."""

    def see(self, start: int, data: Buffer) -> None:
        """Take the bytes of the file from ``start`` on; some may have been seen before."""

    def tail(self) -> bytes:
        """Return what is written after all bytes, once these were seen."""
        ...


class Fs:
    """The file operations; ``at(op, path)`` is called before each of them."""

    far = False
    """Whether each operation waits for a network, so that many should run concurrently."""

    def at(self, op: str, path: str) -> None:
        """Hook for subclasses; ``op`` is the name of the operation, which fails if it raises."""

    def _do(self, op: str, path: str, call: Callable[[], T]) -> T:
        try:
            self.at(op, path)
            return call()
        except OSError as error:
            raise FsError(op, path, error) from error

    def mkdir(self, path: str) -> None:
        """Make one directory, which must not exist yet."""
        try:  # not by _do: a checkpoint of small blobs makes thousands
            self.at("mkdir", path)
            os.mkdir(path)
        except OSError as error:
            raise FsError("mkdir", path, error) from error

    def make_dirs(self, path: str) -> None:
        """Make a directory and its missing parents, durably; it may exist."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_dirs(parent)
        try:
            self.mkdir(path)
        except FsError as error:
            if error.errno != errno.EEXIST or not os.path.isdir(path):
                raise
        self.sync_dir(parent)

    def write(
        self, path: str, buffers: Sequence[Buffer], *, sync: bool, sums: Sums | None = None
    ) -> None:
        """Write a new file from buffers of bytes; ``sync`` makes them durable (not its name).

        ``sums`` sees each of them while it is in the processor's cache, and its tail ends the file.
        """
        op = "open"
        try:
            self.at(op, path)
            fd = os.open(path, _CREATE, 0o666)
            try:
                self.at(op := "write", path)
                self._write_all(fd, buffers, sums)
                if sync:
                    self.at(op := "fsync", path)
                    os.fsync(fd)
                self.at(op := "close", path)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        except OSError as error:
            raise FsError(op, path, error) from error

    def _write_all(self, fd: int, buffers: Sequence[Buffer], sums: Sums | None) -> None:
        left, done = buffers, 0
        if left and len(left[0]) >= SMALLEST:
            see = None if sums is None else sums.see
            done = write_direct(fd, memoryview(left[0]), self.writev, see)
            left = _after(done, buffers)
        if sums is not None:
            for data in left:
                sums.see(done, data)
                done += len(data)
            left = [*left, sums.tail()]
        missing = sum(map(len, left))
        while missing:
            done = self.writev(fd, left)
            if done == 0:
                raise OSError(errno.EIO, "nothing was written")
            missing -= done
            if missing:
                left = _after(done, left)

    def writev(self, fd: int, buffers: Sequence[Buffer]) -> int:
        """Make one ``writev`` call, which may write less than it was given."""
        return os.writev(fd, buffers)

    def put(self, path: str, data: Buffer) -> None:
        """Replace a small file atomically and durably: readers see the old or the new content.

        A crash may leave a file called ``.<name>.<8 hexadecimal digits>`` beside it.
        """
        folder, name = os.path.split(os.path.abspath(path))
        part = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
        try:
            self.write(part, [data], sync=True)
            self.replace(part, path)
        except OSError:
            with suppress(OSError):  # a disk that refuses all does not hide why
                os.unlink(part)
            raise
        self.sync_dir(folder)

    def open_append(self, path: str) -> io.FileIO:
        """Open a regular file for appending; create it if it is missing.

        The caller closes the descriptor, with care: a task may have closed it already, and then it
        can belong to another file.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        fd = self._do("open", path, lambda: open_regular(path, flags)[0])
        return io.FileIO(fd, "ab+", closefd=False)

    def append(self, file: io.FileIO, path: str, data: bytes) -> None:
        """Append with one write; a short write is an error and is not undone here."""

        def call() -> None:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._do("write", path, call)

    def cut(self, file: io.FileIO, path: str, size: int) -> None:
        """Truncate a file that is appended to, to its first ``size`` bytes."""
        self._do("truncate", path, lambda: file.truncate(size))

    def sync_file(self, path: str) -> None:
        """Make the bytes of a file durable, whoever wrote them."""

        def call() -> None:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                close_after_reading(fd)

        self._do("fsync", path, call)

    def sync_dir(self, path: str) -> None:
        """Make the directory entries of a directory durable, where the file system can do that."""

        def call() -> None:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                close_after_reading(fd)

        try:
            self._do("fsync", path, call)
        except FsError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
            text = "is a file system that does not sync directories"
            loss = "a power cut may lose the names of the newest files, whose bytes are synced"
            notice(f"{mount_point(path)} {text} ({error.code}): {loss}")

    def rename(self, source: str, target: str) -> None:
        """Rename to a name that does not exist yet."""

        def call() -> None:
            if os.path.lexists(target):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(source, target)

        self._do("rename", target, call)

    def replace(self, source: str, target: str) -> None:
        """Rename, and replace an existing file of that name."""
        self._do("replace", target, lambda: os.replace(source, target))

    def link(self, source: str, target: str) -> None:
        """Make a hard link, whose name must not exist; a symbolic link is not followed."""
        try:
            self.at("link", target)
            os.link(source, target, follow_symlinks=False)
        except OSError as error:
            raise FsError("link", target, error) from error

    def kind(self, path: str) -> str:
        """Return ``file``, ``directory``, ``link``, ``other``, or ``""`` if nothing lies at a path.

        A symbolic link is not followed.  A path that may not be examined is an error, never
        nothing: the methods of pathlib and os.path raise or return False then.
        """

        try:  # not by _do: a listing looks at thousands
            self.at("stat", path)
            try:
                mode = os.lstat(path).st_mode
            except (FileNotFoundError, NotADirectoryError):
                return ""
        except OSError as error:
            raise FsError("stat", path, error) from error
        return _KINDS.get(stat.S_IFMT(mode), "other")

    def is_gone(self, path: str | os.PathLike[str]) -> bool:
        """Return whether nothing lies at a path; False if it may not be examined.  Never raises."""
        try:
            return not self.kind(os.fspath(path))
        except FsError:
            return False

    def is_file(self, path: str, size: int) -> bool:
        """Return whether a path is a regular file of this length."""

        def call() -> bool:
            status = os.lstat(path)
            return stat.S_ISREG(status.st_mode) and status.st_size == size

        return self._do("stat", path, call)

    def unlink(self, path: str) -> None:
        """Remove one name of a file."""
        self._do("unlink", path, lambda: os.unlink(path))

    def remove_tree(self, path: str) -> None:
        """Delete a directory and its content; symbolic links are removed, never followed."""
        self._do("rmtree", path, lambda: shutil.rmtree(path))

    def entries(self, path: str) -> list[os.DirEntry[str]]:
        """Return the entries of a directory, by name."""

        def call() -> list[os.DirEntry[str]]:
            with os.scandir(path) as found:
                return sorted(found, key=lambda e: e.name)

        return self._do("list", path, call)

    def names(self, path: str) -> list[str]:
        """Return the names of the entries of a directory, sorted."""
        return self._do("list", path, lambda: sorted(os.listdir(path)))

    def directories(self, path: str) -> set[str]:
        """Return the names of the real directories in one, mostly without a look at each entry."""

        def call() -> set[str]:
            with os.scandir(path) as found:
                return {entry.name for entry in found if entry.is_dir(follow_symlinks=False)}

        return self._do("list", path, call)

    def sizes(self, paths: Iterable[str]) -> Iterator[int]:
        """Return the lengths of regular files; raises FsError, naming its kind, for anything else.

        One loop without nested calls, since a checkpoint of small blobs has thousands of files.
        """
        for path in paths:
            try:
                self.at("stat", path)
                yield regular_size(os.lstat(path))
            except OSError as error:
                raise FsError("stat", path, error) from error

    def open(self, path: str, most: int) -> tuple[int, int]:
        """Return a descriptor for reading a regular file, and its length.

        Never follows a link, never blocks on a fifo.  ``most`` is the largest number of bytes that
        the caller expects: of a remote file no more is fetched.
        """
        return self._do("open", path, lambda: open_regular(path))

    def read_into(self, fd: int, path: str, buffers: Sequence[memoryview]) -> int:
        """Fill ``buffers`` from a descriptor; return the bytes read, fewer only at the end."""

        def call() -> int:
            total, left = 0, [b for b in buffers if len(b)]
            while left and (done := os.readv(fd, left)):
                total += done
                while left and done >= len(left[0]):
                    done -= len(left.pop(0))
                if done:
                    left[0] = left[0][done:]
            return total

        return self._do("read", path, call)

    def read(self, path: str, most: int) -> bytes:
        """Return all bytes of a small regular file; raises FsError (EFBIG) above ``most``."""
        op = "open"
        try:  # not by _do: a listing reads thousands
            self.at(op, path)
            fd, size = open_regular(path)
            try:
                self.at(op := "read", path)
                return read_all(fd, size, most)
            finally:
                close_after_reading(fd)
        except OSError as error:
            raise FsError(op, path, error) from error

    def sync_all(self, path: str) -> SyncAll | None:
        """Return what makes the whole file system of ``path`` durable at once, or None."""
        return SyncAll(self, path) if can_syncfs(path) else None


class SyncAll:
    """``syncfs``: one call that makes everything on a file system durable.

    Open it *before* writing: it reports only errors that occur after that.  It also waits for the
    unwritten data of other programs on the same file system.
    """

    def __init__(self, fs: Fs, path: str) -> None:
        self._fs = fs
        self._path = path
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._fd = fs._do("open", path, lambda: os.open(path, flags))

    def __enter__(self) -> SyncAll:
        return self

    def __exit__(self, *raised: object) -> None:
        close_after_reading(self._fd)

    def __call__(self) -> None:
        """Make durable everything written to the file system so far."""

        def call() -> None:
            if libc().syncfs(self._fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))

        self._fs._do("syncfs", self._path, call)


def _after(done: int, buffers: Sequence[Buffer]) -> list[Buffer]:
    """Return what is left of buffers after their first ``done`` bytes."""
    left = list(buffers)
    while left and done >= len(left[0]):
        done -= len(left.pop(0))
    if done:
        left[0] = memoryview(left[0])[done:]
    return left


DEFAULT = Fs()
"""The default file operations."""
