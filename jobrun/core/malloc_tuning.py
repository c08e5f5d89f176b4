"""The allocator of the C library: one heap for all threads, which keeps what was freed.

glibc returns the free memory at the end of a heap to the system, and gives each thread a heap of
its own, in pieces of 64 MiB.  So a batch that replaces its arrays finds their memory, or faults in
every page again, depending on what lies at the end of the heap.  Measured, 256 MiB in arrays of
8 MiB replaced in each of 8 batches: 0.62 to 0.73 s and 15,000 to 66,000 faults an epoch; a plain
loop in turn 0.52 s without a fault and 0.75 s with 131,000; with what is set here 0.51 s and none.

The most memory that a run holds stays the same.  Arrays of 32 MiB and more are no part of a heap.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of ``mallopt``, from ``malloc.h`` of glibc."""

_KEPT = 1 << 30
"""Bytes at the end of the heap above which free memory is returned."""
_LARGEST = 32 << 20
"""Bytes from which on arrays are mapped by themselves: the most that glibc allows."""

_OF_USER = (
    "GLIBC_TUNABLES",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)
"""Variables of the environment with which a user decides about it."""


def keep_freed_memory() -> None:
    """Let all threads that begin from now on share a heap, which keeps up to 1 GiB of freed memory.

    Does nothing without glibc, or where the environment sets its allocator.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OF_USER):
        return
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "gnu_get_libc_version"):
        return
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, _KEPT)
    libc.mallopt(_ARENA_MAX, 1)
