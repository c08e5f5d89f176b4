"""Tables of arrays: blobs of the workspace, ``.npy`` and ``.npz`` files.

A column is an array; its first axis is the rows.  All columns of a table have the same rows.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.data.source import Columns, Permutation, Table
from jobrun.errors import DataError
from jobrun.values import Box, Value

__all__ = ["ArrayTable", "blob_columns", "check_lengths", "check_rows"]

_RELEASE_BYTES = 32 << 20
_AROUND = 128 << 10
"""What the kernel maps around a row that is touched, at most: 64 KiB around each of two pages."""


class ArrayTable(Table):
    """Columns that are arrays, in memory or mapped.

    Of mapped ones, the pages that were read are given back after every 32 MiB, since they would
    count as memory of this process; the kernel may keep them cached.  Around each row of a shuffled
    batch the kernel maps more than the row, 64 KiB or a whole huge page, until the batch is made.
    """

    def __init__(self, columns: Columns, name: str = "the source") -> None:
        self.name = name
        self.arrays = columns
        self.rows = check_rows(columns, name)
        self.dtypes = {c: a.dtype.str for c, a in columns.items()}
        self._maps = [m for m in map(_map_of, columns.values()) if m is not None]
        self._unaligned = any(not a.flags.aligned for a in columns.values())
        self._touched = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.arrays)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Views of the arrays; copies where a view would not be plain."""
        if step == 1:
            columns = {c: a[low:high] for c, a in self.arrays.items()}
        else:
            columns = {c: _copy(a[low:high:step]) for c, a in self.arrays.items()}
        if self._maps:
            if self._unaligned:
                columns = {c: a if a.flags.aligned else _copy(a) for c, a in columns.items()}
            self._touch(sum(a.nbytes for a in columns.values()) * step)
        return columns

    def take(self, rows: Permutation) -> Columns:
        """Copies of the rows."""
        columns = {c: _taken(a, rows) for c, a in self.arrays.items()}
        if self._maps:
            most = len(rows) * _AROUND
            self._touch(sum(a.nbytes + most for a in columns.values()))
        return columns

    def _touch(self, size: int) -> None:
        self._touched += size
        if self._touched >= _RELEASE_BYTES:
            self._touched = 0
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)


def _map_of(array: npt.NDArray[Any]) -> mmap.mmap | None:
    """The file that an array maps, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copied = array.copy()
    copied.setflags(write=False)
    return copied


def _taken(array: npt.NDArray[Any], rows: Permutation) -> npt.NDArray[Any]:
    chosen = np.take(array, rows, axis=0)
    chosen.setflags(write=False)
    return chosen


def blob_columns(blobs: Mapping[str, str], read: Callable[[str], Value]) -> Columns:
    """The columns of blobs (``{column: blob}``); raises DataError for one that is no array."""
    columns: Columns = {}
    for column, name in blobs.items():
        value = read(name)
        kind = value.kind
        if not isinstance(value, Box) or kind != "array" or value.value.ndim == 0:
            raise DataError(
                f"column {column!r}: blob {name!r} is {_article(kind)}, not an array of rows",
                hint="a pipe reads arrays whose first axis is the rows",
            )
        columns[column] = value.value
    return columns


def _article(kind: str) -> str:
    return "a single value" if kind == "array" else f"of kind {kind!r}"


def check_rows(columns: Columns, name: str) -> int:
    """The number of rows; raises DataError if columns differ, or there is nothing to read."""
    return check_lengths({c: a.shape for c, a in columns.items()}, name)


def check_lengths(shapes: Mapping[str, tuple[int, ...]], name: str) -> int:
    """The number of rows of columns of these shapes; raises DataError as ``check_rows``."""
    lengths = {}
    for column, shape in shapes.items():
        if not shape:
            raise DataError(f"{name}: column {column!r} is a single value and has no rows")
        lengths[column] = shape[0]
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{c} {n}" for c, n in lengths.items())
        raise DataError(f"{name}: the columns differ in rows: {text}")
    rows = next(iter(lengths.values()), 0)
    if rows == 0:
        raise DataError(f"{name}: the source has no rows")
    return rows
