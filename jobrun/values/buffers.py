"""Memory that saves have released, for the copies that updates need while a save is in flight.

An ``update:`` of an array that a save still holds copies it.  Into fresh memory that costs several
times a copy into reused memory (page faults: measured 400 to 700 ms against 55 to 100
for 256 MiB).  When the save is over, the array that was replaced meanwhile is free, and is just
what the next copy needs.  No more is kept than copies have needed: a job that never copies
keeps nothing.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["BUFFERS", "Buffers", "copy_array", "empty_array"]

Array = npt.NDArray[Any]

_SMALLEST = 1 << 16
_HUGE_PAGE = 2 << 20
_ADVISED = 4 << 20
"""Size in bytes from which numpy requests huge pages."""


def copy_array(array: Array) -> Array:
    """Return a C-contiguous copy in memory of its own; the one copy function of jobrun.

    Not ``np.array``: it gives a timedelta64 without a unit the byte order of the machine.  It and
    the method ``copy``, which takes half the time for a small array, change a string dtype of width
    0 to width 1; the class itself takes a dtype as it is.
    """
    if array.itemsize:
        return array.copy()
    copy: Array = np.ndarray(array.shape, array.dtype)
    copy[...] = array
    return copy


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a C-contiguous array in fresh memory, with uninitialised elements.

    A large one begins where a huge page does, if that wastes no more than an eighth of it: where
    the allocator puts it, a quarter of 8 MiB is ordinary pages, and the system takes longer to
    provide 512 of these than one huge page.  Measured, 64 x 8 MiB read by four threads: 100 ms
    where the allocator puts them, 60 ms so.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < _ADVISED or -nbytes % _HUGE_PAGE > nbytes // 8:
        return np.ndarray(shape, dtype)
    owner = np.empty(nbytes + _HUGE_PAGE, np.uint8)
    first = -owner.__array_interface__["data"][0] % _HUGE_PAGE
    return np.ndarray(shape, dtype, buffer=owner, offset=first)


class Buffers:
    """A pool of arrays by size; thread-safe."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[Array]] = defaultdict(list)
        self._wanted: Counter[int] = Counter()
        self._lock = threading.Lock()

    def copy(self, array: Array) -> Array:
        """Return a writable copy of a C-contiguous array, in reused memory if there is some."""
        result = self.room(array.shape, array.dtype)
        result[...] = array
        return result

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return a C-contiguous array to be filled, in reused memory if there is some."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < _SMALLEST:
            return np.ndarray(shape, dtype)
        with self._lock:
            self._wanted[nbytes] += 1
            free = self._free[nbytes]
            owner = free.pop() if free else None
        if owner is None:
            owner = np.empty(nbytes, np.uint8)
        return np.ndarray(shape, dtype, buffer=owner)

    def give(self, owner: Array) -> None:
        """Return the memory of an array, which owns it and has no other holder, to the pool."""
        with self._lock:
            if self._wanted[owner.nbytes] > 0:
                self._wanted[owner.nbytes] -= 1
                owner.setflags(write=True)
                self._free[owner.nbytes].append(owner)

    def wants(self, size: int) -> bool:
        """Return whether an array of ``size`` bytes would be kept."""
        return self._wanted[size] > 0

    def release(self) -> None:
        """Drop all kept memory, until copies are made again."""
        with self._lock:
            self._free.clear()
            self._wanted.clear()

    @property
    def free(self) -> int:
        """The kept bytes."""
        with self._lock:
            return sum(size * len(arrays) for size, arrays in self._free.items())


BUFFERS: Final = Buffers()
"""The pool of this process."""
