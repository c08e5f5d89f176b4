"""The protocol of sources: rows by column, either as a table or as a stream.

A ``Table`` knows its length and gives any row at any time; a place in it is a number.  A ``Stream``
is read from front to back and learns its length at its end; a ``Cursor`` is a place in it.  A
cursor's mark is a small JSON value by which another cursor begins at the same row; without one, the
rows before it are skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.errors import DataError

__all__ = [
    "TEXT",
    "Columns",
    "Cursor",
    "Permutation",
    "Slow",
    "Source",
    "Stream",
    "Table",
    "TableStream",
    "finished",
    "ignore_slow",
]

Columns = dict[str, npt.NDArray[Any]]
Permutation = npt.NDArray[np.intp]
Slow = Callable[[str], None]
"""Takes a sentence about what is slow, or odd, for a warning."""

TEXT = "text"
"""The dtype of a column of texts, whose arrays are as wide as their longest text."""

_SKIPPED_AT_ONCE = 1024


def ignore_slow(text: str) -> None:
    """Ignore what is slow."""


class Source(ABC):
    """Rows by column; ``name`` is what messages call it."""

    name: str
    rows: int | None
    """The number of rows; None: not known."""
    dtypes: Mapping[str, str]
    """The dtype of each column, as far as it is known."""
    inferred_types: Mapping[str, str] = {}
    """The types (as in ``FileOptions``) that were inferred; later files of a pattern keep them."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""


class Table(Source):
    """A source of which any row can be had."""

    rows: int
    row_bytes: int | None = None
    """The bytes of a row, where all rows lie in memory; None: to have them takes more than that."""

    @abstractmethod
    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return the rows ``low``, ``low + step``, … below ``high``, read-only."""

    @abstractmethod
    def take(self, rows: Permutation) -> Columns:
        """Return the rows of these numbers, in their order, read-only."""


class Stream(Source):
    """A source that is read from front to back."""

    rows: int | None = None

    @abstractmethod
    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Return a cursor before row ``row``, of which ``mark`` is what ``Cursor.mark`` gave there.

        ``slow`` is called if the place is found by skipping, and that takes a while.  Raises
        DataError if there are fewer rows.
        """


class Cursor(ABC):
    """A place in a stream, before row ``row``."""

    row: int

    @abstractmethod
    def read(self, rows: int) -> Columns:
        """Return the next ``rows`` rows; fewer only at the end of the source.

        All columns are empty, or none is.

        Columns of texts are arrays of Python's strings; see ``finished``.
        """

    @abstractmethod
    def mark(self) -> Any:
        """Return what finds this place again; None if nothing but skipping does."""

    def skip(self, rows: int) -> None:
        """Pass over rows; raises DataError if there are fewer."""
        while rows > 0:
            columns = self.read(min(rows, _SKIPPED_AT_ONCE))
            count = count_rows(columns)
            if count == 0:
                raise DataError(
                    f"the source ended after {self.row} rows, but {self.row + rows} of them "
                    "had been read when this run was saved",
                    hint="restore the old data, or start over with --fresh",
                )
            rows -= count

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what is open."""


def count_rows(columns: Columns) -> int:
    """Return the rows of columns of one length."""
    return len(next(iter(columns.values()), ()))


def finished(columns: Columns) -> Columns:
    """Return columns as tasks are given them: texts as numpy's fixed strings, all read-only."""
    found: Columns = {}
    for column, array in columns.items():
        if array.dtype.kind == "O":
            array = np.array(array.tolist(), dtype=bytes if _holds_bytes(array) else str)
        elif not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        array.setflags(write=False)
        found[column] = array
    return found


def _holds_bytes(array: npt.NDArray[Any]) -> bool:
    return len(array) > 0 and isinstance(array.flat[0], bytes)


class TableStream(Stream):
    """A table read from front to back, for those that join it with streams."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.name = table.name
        self.dtypes = table.dtypes
        self.rows = table.rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.table.columns

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Return a cursor before a row, which needs no mark."""
        if row > self.table.rows:
            raise DataError(
                f"{self.name} has {self.table.rows} rows, but {row} had been read of this pass"
            )
        return _TableCursor(self.table, row)


class _TableCursor(Cursor):
    def __init__(self, table: Table, row: int) -> None:
        self._table = table
        self.row = row

    def read(self, rows: int) -> Columns:
        high = min(self.row + rows, self._table.rows)
        columns = self._table.slice(self.row, high)
        self.row = high
        return {
            c: np.asarray(a, dtype=object) if a.dtype.kind in "US" else a
            for c, a in columns.items()
        }

    def mark(self) -> Any:
        return None
