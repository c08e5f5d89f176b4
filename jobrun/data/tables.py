"""Tables of arrays: blobs of the workspace, ``.npy`` and ``.npz`` files.

A column is an array; its first axis is the rows.  All columns of a table have the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from jobrun.data.mapped import PAGES, FileRows, map_of, take_mapped
from jobrun.data.source import Columns, Permutation, Table
from jobrun.errors import DataError
from jobrun.values.boxes import Box, Tree, Value, leaves

__all__ = ["ArrayTable", "blob_columns", "check_lengths", "check_rows"]


class ArrayTable(Table):
    """Columns that are arrays: in memory, mapped, or in a file; see ``jobrun.data.mapped``."""

    def __init__(
        self, columns: Mapping[str, npt.NDArray[Any] | FileRows], name: str = "the source"
    ) -> None:
        self.name = name
        self._files = {c: a for c, a in columns.items() if isinstance(a, FileRows)}
        self.arrays = {c: a.array if isinstance(a, FileRows) else a for c, a in columns.items()}
        self.rows = check_rows(self.arrays, name)
        self.dtypes = {c: a.dtype.str for c, a in self.arrays.items()}
        self._maps = {c: m for c, m in ((c, map_of(a)) for c, a in self.arrays.items()) if m}
        if not self._maps and not self._files:
            self.row_bytes = sum(a.nbytes for a in self.arrays.values()) // self.rows
        self._unaligned = any(not a.flags.aligned for a in self.arrays.values())

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.arrays)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return views of the arrays; copies where a view would not be plain."""
        if step == 1:
            columns = {c: a[low:high] for c, a in self.arrays.items()}
        else:
            columns = {c: _copy(a[low:high:step]) for c, a in self.arrays.items()}
        if self._maps:
            if self._unaligned:
                columns = {c: a if a.flags.aligned else _copy(a) for c, a in columns.items()}
            for column, mapped in self._maps.items():
                PAGES.touch(mapped, columns[column].nbytes * step)
        return columns

    def take(self, rows: Permutation) -> Columns:
        """Return copies of the rows."""
        return {c: self._taken(c, rows) for c in self.arrays}

    def _taken(self, column: str, rows: Permutation) -> npt.NDArray[Any]:
        array = self.arrays[column]
        if column in self._files:
            chosen = self._files[column].take(rows)
        elif column in self._maps:
            chosen = take_mapped(array, self._maps[column], rows)
        else:
            chosen = array.take(rows, axis=0)  # half of the time of np.take
        chosen.setflags(write=False)
        return chosen


def _copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    copied = array.copy()
    copied.setflags(write=False)
    return copied


def blob_columns(blobs: Mapping[str, str], read: Callable[[str], Value]) -> Columns:
    """Return the columns of blobs (``{column: blob}``).

    Raises DataError for one that is not an array.
    """
    columns: Columns = {}
    for column, name in blobs.items():
        value = read(name)
        if not isinstance(value, Box) or value.kind != "array" or value.value.ndim == 0:
            raise DataError(
                f"column {column!r}: blob {name!r} is {_what(value)}, not an array of rows",
                hint=_remedy(name, value),
            )
        columns[column] = value.value
    return columns


def _what(value: Value) -> str:
    if value.note is not None:
        return f"a {value.note.name}"
    return "a single value" if value.kind == "array" else f"of kind {value.kind!r}"


def _remedy(name: str, value: Value) -> str:
    """Return the hint for a blob that is not an array: the first array in it, as of a table."""
    paths = (path for path, box in leaves(value, name) if box.kind == "array" and box.value.ndim)
    first = next(paths, None) if isinstance(value, Tree) else None
    inside = f"; name an array in it, e.g. {first!r}" if first is not None else ""
    return f"a pipe reads arrays whose first axis is the rows{inside}"


def check_rows(columns: Columns, name: str) -> int:
    """Return the number of rows.

    Raises DataError if columns differ, or there is nothing to read.
    """
    return check_lengths({c: a.shape for c, a in columns.items()}, name)


def check_lengths(shapes: Mapping[str, tuple[int, ...]], name: str) -> int:
    """Return the number of rows of columns of these shapes; raises DataError as ``check_rows``."""
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
