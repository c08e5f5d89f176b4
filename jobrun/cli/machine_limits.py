"""Limits of the machine that any line of code may meet: no memory, threads or current directory.

They are neither bugs of jobrun nor faults of a job, and are met in too many places to be expected
in each.
"""

from __future__ import annotations

import errno
import os

from jobrun.errors import JobrunError, UsageError

__all__ = ["limit_error"]

_HINTS = {
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "other programs have too many files open",
    errno.ENOSPC: "free space on the disk, and run the command again",
    errno.EDQUOT: "free space within your quota, and run the command again",
    errno.EAGAIN: "raise the limit of processes (ulimit -u)",
    errno.ENOMEM: "",
}
_NO_THREAD = "can't start new thread"
_MEMORY = "free memory, or raise its limit (ulimit -v, that of the container)"


def limit_error(error: Exception) -> JobrunError | None:
    """Return the error that names the limit of the machine an exception stands for, or None."""
    found = _named(error)
    if found is not None:
        found.__cause__, found.__traceback__ = error, error.__traceback__
    return found


def _named(error: Exception) -> JobrunError | None:
    if isinstance(error, MemoryError):
        return JobrunError(f"there is not enough memory: {error}".rstrip(": "), hint=_MEMORY)
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        hint = f"{_HINTS[errno.EAGAIN]}, or {_MEMORY}"
        return JobrunError("the system starts no more threads", hint=hint)
    if isinstance(error, FileNotFoundError) and not _is_somewhere():
        return UsageError("the current directory was removed", hint="cd to one that exists")
    if isinstance(error, OSError) and error.errno in _HINTS:
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
        hint = _HINTS[error.errno] or _MEMORY
        return JobrunError(error.strerror or os.strerror(error.errno), where=where, hint=hint)
    return None


def _is_somewhere() -> bool:
    """Return whether the current directory exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
