"""The lock of a run directory: one process writes, any number read.

The file ``lock`` is locked with flock(2) for the life of the run, and never deleted: two processes
would otherwise lock two files of one name.  The kernel releases it when the process ends, however
it ends.  The file names the holder, for the message to others.

To test whether it is held, a process takes a shared lock for an instant.  That never turns a writer
away: one that meets only shared locks retries until they are gone.  So does one that meets the lock
of a dead process: a child forked just before the kill releases it as soon as it runs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import socket
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from jobrun.errors import LockedError, SaveError
from jobrun.storage.regular_file import open_regular, refuse_not_regular

__all__ = ["Lock"]

_NAME = "lock"
_PAUSES = random.Random()
"""Of our own: the global generator belongs to the tasks."""
_PATIENCE = 5.0
"""Seconds after which shared locks that stay, or those of a dead process, count as a holder: no
process of jobrun keeps one.
"""
_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


class _Holder(NamedTuple):
    """The process that holds a lock, and since when."""

    pid: int
    host: str
    time: str


class Lock:
    """The lock of one run directory, which must exist when the lock is acquired."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self.path = Path(run_dir).absolute() / _NAME  # a task may change the directory
        self._fd = -1

    def acquire(self) -> None:
        """Hold the lock until ``release`` or the end of the process; nothing if held already.

        A lock whose file was removed or moved keeps nobody out, and is acquired again.  Raises
        LockedError, naming the holder, DamagedError if the file is a link or not a regular file,
        and SaveError if the file system cannot lock.
        """
        if self._fd >= 0 and self._in_place():
            return
        refuse_not_regular(self.path)
        try:
            fd, _ = open_regular(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SaveError(
                f"the run cannot be locked: {error.strerror}", where=str(self.path)
            ) from error
        try:
            self._lock(fd)
        except BaseException:
            with suppress(OSError):  # a task may have closed it: hence perhaps the error
                os.close(fd)
            raise
        if fd != self._fd:  # else a task has closed the old one, whose number this one got
            self.release()
        self._fd, self._file = fd, os.fstat(fd)
        _HELD.add(self)

    def _in_place(self) -> bool:
        """Return whether the locked file is the one that others would lock.

        True if the path may not be examined.
        """
        try:
            return _is(self._fd, os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def _lock(self, fd: int) -> None:
        try:
            _exclusive(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, _holder(), 0)
        except BlockingIOError as error:
            raise LockedError(
                f"the run is held by {_describe(fd)}",
                where=str(self.path.parent),
                hint="wait for it to end, or end it; a stale lock is ignored",
            ) from error
        except OSError as error:
            raise SaveError(
                f"the run cannot be locked: {error.strerror}", where=str(self.path)
            ) from error

    def release(self) -> None:
        """Release the lock; nothing if it is not held."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _HELD.discard(self)
            if _is(fd, self._file):  # else a task has closed it, and it may be another file's
                os.close(fd)

    def held(self) -> bool:
        """Return whether any process holds the lock, this one included."""
        if self._fd >= 0:
            return True
        try:
            fd, _ = open_regular(self.path)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except OSError as error:
            return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
        finally:
            os.close(fd)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:  # at the end of the interpreter, names of modules are gone
            try:  # noqa: SIM105
                close(self._fd)
            except OSError:  # a task has closed it
                pass


def _is(fd: int, file: os.stat_result) -> bool:
    """Return whether a descriptor is open, and of this file."""
    try:
        return os.path.samestat(os.fstat(fd), file)
    except OSError:
        return False


def _exclusive(fd: int) -> None:
    """Lock a descriptor exclusively; raises BlockingIOError if a writer holds the lock."""
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up or (_has_writer(fd) and not _is_orphaned(fd)):
                raise
            time.sleep(_PAUSES.uniform(0.0005, 0.002))


def _has_writer(fd: int) -> bool:
    """Return whether a lock is more than shared."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


def _is_orphaned(fd: int) -> bool:
    """Return whether the process named in a locked file is dead: a child of it has the lock."""
    holder = _holder_of(fd)
    if holder is None or holder.host != socket.gethostname():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is another user's, or no number of a process
        pass
    return False


def _holder() -> bytes:
    text = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return json.dumps(text).encode() + b"\n"


def _holder_of(fd: int) -> _Holder | None:
    """Return the holder that a locked file names, or None."""
    try:
        told = json.loads(os.pread(fd, 4096, 0))
        return _Holder(int(told["pid"]), str(told["host"]), str(told.get("time", "?")))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _describe(fd: int) -> str:
    holder = _holder_of(fd)
    if holder is None:
        return "another process"
    if (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        return f"this process already (pid {holder.pid})"
    return f"process {holder.pid} on {holder.host} since {holder.time}"


def _close_in_child() -> None:
    """Close the lock in a forked child, which must not keep the lock of a killed parent."""
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_close_in_child)
