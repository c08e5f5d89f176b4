"""Arrays in files, in little memory: what is mapped counts once it was touched.

Rows in order are views of the mapped file.  The pages that were read are given back after every
32 MiB, since they would count as memory of this process; the kernel may keep them cached.

Rows in any order are read from the file, one by one: around each row that is touched in a mapping,
the kernel maps up to 2 MiB of what it has cached.  (Measured on 1 GiB, batches of 256 rows of 4
KiB: 427 MiB at the peak by way of the mapping, given back after each batch, and 1 MiB by reading,
which is no slower.)  Only small files are read by way of their mapping, which is then faster, and
arrays that others have mapped, a few rows at a time.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.data.source import Permutation
from jobrun.errors import DataError

__all__ = ["MANY", "PAGES", "FileRows", "Pages", "map_of", "take_mapped"]

MANY = 32 << 20
"""So many bytes of pages are given back; a smaller file may stay mapped as a whole."""

_AROUND = 2 << 20
"""The most bytes that the kernel maps around a row that is touched."""


class Pages:
    """The pages of mapped files that were touched: given back, all of them, once they are many.

    Of each mapping no more is counted than there is of it.  May be called from any thread.
    """

    def __init__(self, most: int = MANY) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._touched: weakref.WeakKeyDictionary[mmap.mmap, int] = weakref.WeakKeyDictionary()

    def touch(self, mapped: mmap.mmap, size: int) -> None:
        """Count bytes of a mapping that were, or are about to be, touched."""
        with self._lock:
            self._touched[mapped] = min(self._touched.get(mapped, 0) + size, len(mapped))
            if sum(self._touched.values()) < self._most:
                return
            for touched in self._touched:
                touched.madvise(mmap.MADV_DONTNEED)
            self._touched.clear()


PAGES = Pages()
"""Of this process."""


def map_of(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """Return the file that an array maps, which nobody can write to by way of it; or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode != "r":
            return None  # its pages may hold what is in no file
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def take_mapped(array: npt.NDArray[Any], mapped: mmap.mmap, rows: Permutation) -> npt.NDArray[Any]:
    """Return copies of rows of an array in a mapping, of which little is touched at once."""
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    step = max(1, len(rows) if len(mapped) <= MANY else MANY // _AROUND)
    for low in range(0, len(rows), step):
        some = rows[low : low + step]
        np.take(array, some, axis=0, out=found[low : low + step], mode="clip")
        PAGES.touch(mapped, len(some) * _AROUND)
    return found


class FileRows:
    """An array in a file: mapped as ``array``, in C order from byte ``offset`` on.

    Raises OSError or ValueError for a file that cannot be opened or is too short.
    """

    def __init__(
        self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int
    ) -> None:
        self._name = str(path)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._offset = offset
        self._width = dtype.itemsize * prod(shape[1:])
        with open(self._file, "rb", closefd=False) as file:
            self.array = np.asarray(np.memmap(file, dtype, "r", offset, shape))

    def take(self, rows: Permutation) -> npt.NDArray[Any]:
        """Return rows by their numbers, read from the file; raises DataError."""
        width = self._width
        found = np.empty(len(rows) * width, np.uint8)
        memory = found.data
        for index, place in enumerate((rows * width + self._offset).tolist()):
            self._read(memory[index * width : (index + 1) * width], place)
        return found.view(self.array.dtype).reshape(len(rows), *self.array.shape[1:])

    def _read(self, row: memoryview, place: int) -> None:
        try:
            got = os.preadv(self._file, [row], place)
        except OSError as error:
            raise DataError(f"{self._name} cannot be read: {error}") from error
        if got < len(row):
            if not got:
                raise DataError(f"{self._name} became shorter while it was read")
            self._read(row[got:], place + got)
