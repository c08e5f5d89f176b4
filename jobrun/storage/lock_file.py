"""A lock made of files, for file systems without flock(2).

Whoever creates ``lock.<n>`` (``O_CREAT | O_EXCL``), with the highest number, is the owner; the file
names the process.  A lock that was released, or whose owner is gone, is taken over by creating
``lock.<n + 1>``, which only one of many can; the lower files are removed after that, and the
highest never is.  So two processes that found one stale lock cannot both replace it: a file of a
number that has been passed meanwhile is not the highest, and its maker withdraws.

An owner on this machine is gone if its process is.  One on another machine is gone if its
heartbeat, the file's time of modification, is older than five minutes by the clock of the file
system, and does not move while it is watched for half a minute.  One on this machine before it was
started again is watched at once.
An owner whose heart stopped for so long, because its machine was suspended, may find another one in
its place: it notices before its next save, and writes no more.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from jobrun.core.notices import notice
from jobrun.core.process_identity import ProcessIdentity
from jobrun.storage.fs import DEFAULT, FsError
from jobrun.storage.regular_file import close_after_reading

__all__ = ["LOCK_FILE", "LockFile", "live_owner"]

LOCK_FILE = re.compile(r"lock\.([1-9][0-9]{0,8})")
"""The names of its files."""

_BEAT = 5.0
"""Seconds between heartbeats."""
_OLD = 300.0
"""Seconds without a heartbeat after which an owner elsewhere may be gone: a task that never
releases the GIL keeps the heart from beating.
"""
_WATCH = 30.0
"""Seconds for which such an owner is watched: file systems of networks cache times for 20."""
_TRIES = 100
_RELEASED = b"released\n"


class LockFile:
    """The lock of one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self._pid = 0
        self._text = b""
        self._stopped = Event()

    @property
    def is_held(self) -> bool:
        """Return whether this process is the owner, and nobody has taken its place."""
        if not self._number or self._pid != os.getpid():
            return False
        found = _read(self._path(self._number))
        return found is not None and found[0] == self._text and self._is_highest()

    def acquire(self) -> str:
        """Become the owner; return an empty string, or the owner.  Raises OSError."""
        for _ in range(_TRIES):
            highest = _highest(self._folder)
            if highest and not _is_free(self._path(highest)):
                return _name(self._path(highest))
            if self._make(highest + 1):
                return ""
        return "other processes, which take turns"

    def _make(self, number: int) -> bool:
        """Create the file of a number; return whether that makes this process the owner."""
        path, text = self._path(number), _text()
        try:
            DEFAULT.write(str(path), [text], sync=True)
        except FsError as error:
            if error.errno == errno.EEXIST:
                return False
            raise
        if _highest(self._folder) != number:
            _remove(path)
            return False
        for lower in [n for n in _numbers(self._folder) if n < number]:
            _remove(self._path(lower))
        self._number, self._text, self._pid, self._stopped = number, text, os.getpid(), Event()
        Thread(target=_beat, args=(path, self._stopped), name="jobrun-lock", daemon=True).start()
        return True

    def release(self) -> None:
        """Give the lock up; nothing if it is not held.  Its file stays, and says so."""
        held, self._number = self.is_held and self._path(self._number), 0
        self._stopped.set()
        if held:
            with suppress(OSError):
                DEFAULT.put(str(held), _RELEASED)

    def _is_highest(self) -> bool:
        return _highest(self._folder) == self._number

    def _path(self, number: int) -> Path:
        return self._folder / f"lock.{number}"


def live_owner(folder: Path) -> str:
    """Return the owner of the lock of a directory, or an empty string; nothing is written.

    An owner on another machine without a heartbeat for five minutes counts as gone.
    """
    highest = _highest(folder)
    path = folder / f"lock.{highest}"
    over = _is_over(path) if highest else True
    if over is None:
        over = _age(path, time.time()) >= _patience(path)
    return "" if over else _name(path)


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of the files of a lock, in no order; none without the directory."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(found[1]) for name in names if (found := LOCK_FILE.fullmatch(name))]


def _highest(folder: Path) -> int:
    return max(_numbers(folder), default=0)


def _read(path: Path) -> tuple[bytes, float] | None:
    """Return the content and heartbeat of a file, not from a cache; None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # a network file system asks its server
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, 4096), os.fstat(fd).st_mtime
    finally:
        close_after_reading(fd)


def _owner(path: Path) -> ProcessIdentity | None:
    """Return the process that a file names; None if it was killed before it had written that."""
    try:
        found = _read(path)
        return None if found is None else ProcessIdentity.from_json(json.loads(found[0]))
    except (ValueError, KeyError, TypeError):
        return None


def _text() -> bytes:
    """Return the content of a lock's file, which no other has."""
    owner = ProcessIdentity.own().to_json() | {"token": os.urandom(8).hex()}
    return json.dumps(owner).encode() + b"\n"


def _name(path: Path) -> str:
    owner = _owner(path)
    return str(owner) if owner is not None else "another process"


def _is_over(path: Path) -> bool | None:
    """Return whether a lock was released or its owner is gone; None if the heartbeat decides."""
    found = _read(path)
    if found is None or found[0] == _RELEASED:
        return True
    owner = _owner(path)
    return None if owner is None else owner.is_gone()


def _is_free(path: Path) -> bool:
    """Return whether a lock may be taken over, after watching it if that is needed."""
    over = _is_over(path)
    if over is not None:
        return over
    before = _read(path)
    if _age(path, _now(path.parent)) < _patience(path):
        return False
    notice(
        f"{path} is the lock of {_name(path)}, which seems to be gone: it is taken over if it "
        f"gives no sign of life within {_WATCH:g} s"
    )
    end = time.monotonic() + _WATCH
    while time.monotonic() < end:
        time.sleep(min(1.0, _WATCH / 10))
        if _read(path) != before:
            return False
    return True


def _patience(path: Path) -> float:
    """Return the seconds without a heartbeat after which an owner that cannot be seen is watched.

    0 for one on this machine before it was started again.
    """
    owner = _owner(path)
    return 0.0 if owner is not None and owner.was_before_restart() else _OLD


def _age(path: Path, now: float) -> float:
    """Return the seconds since the last heartbeat; 0 if there is no lock."""
    found = _read(path)
    return 0.0 if found is None else now - found[1]


def _now(folder: Path) -> float:
    """Return the time by the clock that the file system stamps files with."""
    probe = folder / f".lock.{os.urandom(4).hex()}"
    DEFAULT.write(str(probe), [], sync=False)
    try:
        return probe.stat().st_mtime
    finally:
        _remove(probe)


def _remove(path: Path) -> None:
    """Remove a file; nothing if another process has."""
    with suppress(FsError):
        DEFAULT.unlink(str(path))


def _beat(path: Path, stopped: Event) -> None:
    """Touch a lock's file until it is released, or is another's."""
    while not stopped.wait(_BEAT):
        try:
            os.utime(path)
        except FileNotFoundError:
            return
        except OSError:  # it may work again
            pass
