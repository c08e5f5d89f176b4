"""The columns of a file that are read: by name, or by a pattern that makes a matrix of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any, TypeVar

import numpy as np

from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.data.source import (
    TEXT,
    Columns,
    Cursor,
    Permutation,
    Slow,
    Stream,
    Table,
    ignore_slow,
)
from jobrun.errors import DataError
from jobrun.model.rows import ColumnNames

__all__ = [
    "Matrices",
    "MatrixStream",
    "Plan",
    "common_dtype",
    "expand",
    "grouped",
    "names_in",
    "stacked",
]

Plan = dict[str, str | tuple[str, ...]]
"""The column of the file that each column is, or those of the matrix that it is."""

_SHOWN = 12

A = TypeVar("A")


def expand(wanted: ColumnNames, names: Sequence[str], lacks: str) -> Plan:
    """Return the names in a file that each column takes; all of them if none is chosen.

    Raises DataError, which begins with ``lacks``, for what is not there.
    """
    if not wanted:
        return {name: name for name in names}
    plan: Plan = {}
    known = frozenset(names)
    for column, name in wanted.items():
        if isinstance(name, str) and name not in known:
            matching = tuple(n for n in names if fnmatchcase(n, name))
            plan[column] = matching or (name,)
        else:
            plan[column] = name
    for name in names_in(plan):
        if name not in known:
            raise DataError(f"{lacks} {name!r}", hint=did_you_mean_or_all(name, names))
    return plan


def names_in(plan: Plan) -> list[str]:
    """Return the names that a plan takes from the file, each once."""
    return list(
        dict.fromkeys(n for g in plan.values() for n in ((g,) if isinstance(g, str) else g))
    )


def stacked(columns: Columns, plan: Plan) -> Columns:
    """Return the columns of a plan, from the columns of the file.

    Those of a matrix are put side by side.
    """
    found: Columns = {}
    for column, group in plan.items():
        if isinstance(group, str):
            found[column] = columns[group]
            continue
        parts = [a.reshape(len(a), prod(a.shape[1:])) for a in (columns[n] for n in group)]
        found[column] = np.concatenate(parts, axis=1)
        found[column].setflags(write=False)
    return found


def grouped(make: Callable[[dict[str, A]], Table], arrays: dict[str, A], plan: Plan) -> Table:
    """Return a table of a plan over arrays, or what gives them, by their names in the file."""
    if all(isinstance(group, str) for group in plan.values()):
        return make({c: arrays[group] for c, group in plan.items() if isinstance(group, str)})
    return Matrices(make(arrays), plan)


class Matrices(Table):
    """A table of which some columns are several columns of another, side by side."""

    def __init__(self, table: Table, plan: Plan) -> None:
        self.name = table.name
        self.rows = table.rows
        self._table = table
        self._plan = plan
        self.dtypes = {
            column: table.dtypes[group]
            if isinstance(group, str)
            else common_dtype(table.dtypes, group, table.name)
            for column, group in plan.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._plan)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return rows by their numbers, evenly."""
        return stacked(self._table.slice(low, high, step), self._plan)

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers."""
        return stacked(self._table.take(rows), self._plan)


class MatrixStream(Stream):
    """A stream of which some columns are several columns of another, side by side."""

    def __init__(self, stream: Stream, plan: Plan) -> None:
        self.name = stream.name
        self.rows = stream.rows
        self._stream = stream
        self._plan = plan

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._plan)

    @property
    def dtypes(self) -> Mapping[str, str]:  # type: ignore[override]
        """The dtype of each column, as far as those of its parts are known."""
        known = self._stream.dtypes
        found: dict[str, str] = {}
        for column, group in self._plan.items():
            if isinstance(group, str):
                found.update({column: known[group]} if group in known else {})
            elif all(name in known for name in group):
                found[column] = common_dtype(known, group, self.name)
        return found

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Return a cursor before a row: that of the other stream."""
        return _MatrixCursor(self, self._stream.open(row, mark, slow), self._plan)


class _MatrixCursor(Cursor):
    def __init__(self, source: MatrixStream, cursor: Cursor, plan: Plan) -> None:
        self.row = cursor.row
        self._source = source
        self._cursor = cursor
        self._plan = plan

    def read(self, rows: int) -> Columns:
        found = self._cursor.read(rows)
        self.row = self._cursor.row
        _ = self._source.dtypes  # which refuses parts that are not of numbers
        return stacked(found, self._plan)

    def mark(self) -> Any:
        return self._cursor.mark()

    def close(self) -> None:
        self._cursor.close()


def common_dtype(dtypes: Mapping[str, str], group: Sequence[str], name: str) -> str:
    """Return the dtype of a matrix; raises DataError for a column that is not of numbers."""
    for column in group:
        if dtypes[column] == TEXT or np.dtype(dtypes[column]).kind not in "biufc":
            raise DataError(f"{name}: a matrix is of numbers, which column {column!r} is not")
    return np.result_type(*(dtypes[n] for n in group)).str
