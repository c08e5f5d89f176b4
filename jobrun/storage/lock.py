"""The lock of a run directory: one process writes, any number read.

The file ``lock`` is locked with flock(2) for the life of the run, and never deleted: two processes
would otherwise lock two files of one name.  The kernel releases it when the process ends, however
it ends.  The file names the holder, for the message to others.

Where the file system has no flock, or one that other machines do not meet, or ``JOBRUN_LOCK=file``
says so, it is held by ``lock_file.py`` too.

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
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from jobrun.core.notices import notice
from jobrun.core.process_identity import ProcessIdentity
from jobrun.errors import LockedError, SaveError, UsageError
from jobrun.storage.lock_file import LockFile, live_owner
from jobrun.storage.mounts import file_system_type
from jobrun.storage.regular_file import close_after_reading, open_regular, refuse_not_regular

__all__ = ["KINDS", "VARIABLE", "Lock", "kind_of_lock"]

_NAME = "lock"
_PAUSES = random.Random()
"""Of our own: the global generator belongs to the tasks."""
_PATIENCE = 5.0
"""Seconds after which shared locks that stay, or those of a dead process, count as a holder: no
process of jobrun keeps one.
"""
_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""The errors of flock(2) on file systems without it: Lustre without ``-o flock``, some NFS."""
_LOCAL_FLOCK = frozenset({"fuse", "fuse.sshfs"})
"""File systems whose flock(2) is not seen where the directory is mounted elsewhere."""
VARIABLE = "JOBRUN_LOCK"
KINDS = ("auto", "flock", "file", "none")


def kind_of_lock() -> str:
    """Return the kind of lock that the environment asks for; raises UsageError."""
    kind = os.environ.get(VARIABLE, "") or KINDS[0]
    if kind not in KINDS:
        raise UsageError(f"{VARIABLE} must be one of {', '.join(KINDS)}, got {kind!r}")
    return kind


class Lock:
    """The lock of one run directory, which must exist when the lock is acquired."""

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._fd = -1
        self.path = Path(run_dir).absolute() / _NAME  # a task may change the directory
        self._files = LockFile(self.path.parent)
        self._kind = ""

    def acquire(self) -> None:
        """Hold the lock until ``release`` or the end of the process; nothing if held already.

        A lock whose file was removed or moved keeps nobody out, and is acquired again.  Raises
        LockedError, naming the holder, DamagedError if the file is a link or not a regular file,
        and SaveError if the file system cannot lock.
        """
        if self._fd >= 0 and self._in_place():
            return
        if self._kind == "file":  # another process has taken it over
            self.release()
        refuse_not_regular(self.path)
        try:
            fd, _ = open_regular(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise SaveError(
                f"the run cannot be locked: {error.strerror}", where=str(self.path)
            ) from error
        try:
            kind = self._lock(fd)
        except BaseException:
            with suppress(OSError):  # a task may have closed it: hence perhaps the error
                os.close(fd)
            raise
        if fd != self._fd:  # else a task has closed the old one, whose number this one got
            self.release()
        self._fd, self._file, self._kind = fd, os.fstat(fd), kind
        _HELD.add(self)

    def _in_place(self) -> bool:
        """Return whether the lock is the one that others would meet.

        True if the path may not be examined.
        """
        try:
            return _is(self._fd, os.stat(self.path)) and (
                self._kind != "file" or self._files.is_held
            )
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def _lock(self, fd: int) -> str:
        """Lock a descriptor; return by what."""
        kind = kind_of_lock()
        try:
            if kind != "none":
                kind = self._lock_by(kind, fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(ProcessIdentity.own().to_json()).encode() + b"\n", 0)
        except BlockingIOError as error:
            raise self._held_by(_describe(fd)) from error
        except OSError as error:
            none = f"{VARIABLE}=none runs without a lock: start no second process then"
            raise SaveError(
                f"the run cannot be locked: {error.strerror}",
                where=str(self.path),
                hint=none if error.errno in _NO_LOCKS else "",
            ) from error
        return kind

    def _lock_by(self, kind: str, fd: int) -> str:
        """Lock by flock(2) if it exists here, and by files if they are chosen or it does not.

        Returns the kind of lock that is held.
        """
        found = kind
        try:
            _exclusive(fd)
            if kind == "auto":
                local = file_system_type(str(self.path.parent)) in _LOCAL_FLOCK
                found = "file" if local else "flock"
        except OSError as error:
            if error.errno not in _NO_LOCKS or kind == "flock":
                raise
            found = "file"
            if kind == "auto":
                notice(
                    f"{self.path.parent} is on a file system without flock ({error.strerror}): the "
                    f"run is locked by files with a heartbeat; {VARIABLE}=file chooses this"
                )
        if found == "file":
            if owner := self._files.acquire():
                raise self._held_by(owner)
            return "file"
        if owner := live_owner(self.path.parent):
            raise self._held_by(owner)
        return found

    def _held_by(self, owner: str) -> LockedError:
        return LockedError(
            f"the run is held by {owner}",
            where=str(self.path.parent),
            hint="wait for it to end, or end it; a stale lock is ignored",
        )

    def release(self) -> None:
        """Release the lock; nothing if it is not held."""
        fd, self._fd = self._fd, -1
        if self._kind == "file":
            self._files.release()
        self._kind = ""
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
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return True
        finally:
            close_after_reading(fd)
        try:
            return live_owner(self.path.parent) != ""
        except OSError:
            return False

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:  # at the end of the interpreter, names of modules are gone
            self._files.release()
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
    return holder is not None and holder.is_gone() is True


def _holder_of(fd: int) -> ProcessIdentity | None:
    """Return the holder that a locked file names, or None."""
    try:
        return ProcessIdentity.from_json(json.loads(os.pread(fd, 4096, 0)))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _describe(fd: int) -> str:
    holder = _holder_of(fd)
    return "another process" if holder is None else str(holder)


def _close_in_child() -> None:
    """Close the lock in a forked child, which must not keep the lock of a killed parent."""
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_close_in_child)
