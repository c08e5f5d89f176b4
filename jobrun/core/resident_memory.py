"""Memory of this process and of the machine, as the system counts it."""

from __future__ import annotations

import re
import resource
import sys

__all__ = ["memory_available", "memory_now", "memory_peak"]


def memory_now() -> int | None:
    """Return the bytes of memory that this process holds; None where the system does not tell."""
    return _status("VmRSS")


def memory_peak() -> int | None:
    """Return the most bytes of memory that this process ever held."""
    peak = _status("VmHWM")
    if peak is None and sys.platform == "darwin":  # elsewhere it may be that of the parent
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak


def memory_available() -> int | None:
    """Return the bytes that processes could still use; None where the system does not tell."""
    return _row("/proc/meminfo", "MemAvailable")


def _status(name: str) -> int | None:
    """Return a row of Linux's status of this process, in bytes."""
    return _row("/proc/self/status", name)


def _row(path: str, name: str) -> int | None:
    """Return a row of a file of Linux's process file system, in bytes."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None
