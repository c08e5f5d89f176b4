"""The fresh folders of programs, in the temporary directory.

Each is locked as long as it is used, so that the folder of a killed process is recognised, and is
removed at the next start, with the processes that its program has left running.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jobrun.core.children import end_marked
from jobrun.storage.fs import DEFAULT

__all__ = ["remove_leftovers", "task_folder"]

_PREFIX = "jobrun-task-"
_TRIES = 20


@contextmanager
def task_folder() -> Iterator[Path]:
    """Provide an empty folder, which is removed at the end."""
    for last in (False,) * _TRIES + (True,):
        with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
            fd = _locked(name)
            if fd is None and not last:  # taken for a leftover before it was locked
                continue
            try:  # without a lock on a file system that has none, where no leftover is removed
                yield Path(name)
                return
            finally:
                if fd is not None:
                    os.close(fd)


def _locked(path: str) -> int | None:
    """Return a descriptor of a directory that holds its lock; None if another process has it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except OSError:  # it is being removed
        return False


def remove_leftovers() -> None:
    """Remove the folders of programs whose jobrun process is gone, and kill what runs there."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(_PREFIX) or not _is_ours(entry):
                continue
            fd = _locked(entry.path)
            if fd is not None:
                end_marked(entry.path)
                with suppress(OSError):
                    DEFAULT.remove_tree(entry.path)
                os.close(fd)
