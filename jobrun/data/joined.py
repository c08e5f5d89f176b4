"""Sources joined to one: ``zip`` puts columns side by side, ``concat`` rows one after another.

Of tables they are tables, else streams.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from jobrun.data.source import (
    Columns,
    Cursor,
    Permutation,
    Slow,
    Source,
    Stream,
    Table,
    TableStream,
    count_rows,
    ignore_slow,
)
from jobrun.errors import DataError

__all__ = ["concat", "zipped"]


def zipped(sources: Sequence[Source], name: str) -> Source:
    """Return the columns of all sources; as many rows as the shortest has.

    Raises DataError where two have a column of one name.
    """
    owner: dict[str, str] = {}
    for source in sources:
        for column in source.columns:
            if column in owner:
                text = f"{name}: both {owner[column]} and {source.name} have a column {column!r}"
                raise DataError(text, hint="rename one of them under 'from'")
            owner[column] = source.name
    tables = [s for s in sources if isinstance(s, Table)]
    if len(tables) == len(sources):
        return _ZipTable(tables, name)
    return _ZipStream([_as_stream(s) for s in sources], name)


def concat(sources: Sequence[Source], name: str) -> Source:
    """Return the rows of the sources one after another.

    Raises DataError where they have not the same columns, of the same dtypes.
    """
    if len(sources) == 1:
        return sources[0]
    first = sources[0]
    for other in sources[1:]:
        if set(other.columns) != set(first.columns):
            raise DataError(
                f"{other.name} has the columns {', '.join(other.columns)}, "
                f"but {first.name} has {', '.join(first.columns)}"
            )
        _check_dtypes(first.name, first.dtypes, other.name, other.dtypes)
    tables = [s for s in sources if isinstance(s, Table)]
    if len(tables) == len(sources):
        return _ConcatTable(tables, name)
    return _ConcatStream([_as_stream(s) for s in sources], name)


def _check_dtypes(
    first: str, dtypes: Mapping[str, str], other: str, others: Mapping[str, str]
) -> None:
    for column, dtype in dtypes.items():
        now = others.get(column, dtype)
        if now != dtype:
            raise DataError(
                f"column {column!r} is of dtype {now} in {other}, but of {dtype} in {first}"
            )


def _as_stream(source: Source) -> Stream:
    if isinstance(source, Stream):
        return source
    assert isinstance(source, Table)
    return TableStream(source)


class _ZipTable(Table):
    def __init__(self, tables: Sequence[Table], name: str) -> None:
        self.name = name
        self.rows = min(t.rows for t in tables)
        self.dtypes = {c: d for t in tables for c, d in t.dtypes.items()}
        self._tables = tables

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for t in self._tables for c in t.columns)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        return {c: a for t in self._tables for c, a in t.slice(low, high, step).items()}

    def take(self, rows: Permutation) -> Columns:
        return {c: a for t in self._tables for c, a in t.take(rows).items()}


class _ZipStream(Stream):
    def __init__(self, streams: Sequence[Stream], name: str) -> None:
        self.name = name
        self.streams = streams

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for s in self.streams for c in s.columns)

    @property
    def dtypes(self) -> Mapping[str, str]:  # type: ignore[override]
        return {c: d for s in self.streams for c, d in s.dtypes.items()}

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        marks = mark or [None] * len(self.streams)
        cursors = [s.open(row, m, slow) for s, m in zip(self.streams, marks, strict=True)]
        return _ZipCursor(cursors, row)


class _ZipCursor(Cursor):
    def __init__(self, cursors: Sequence[Cursor], row: int) -> None:
        self.row = row
        self._cursors = cursors

    def read(self, rows: int) -> Columns:
        """Return as many rows as the shortest has left; the others are then of no more use."""
        parts = [c.read(rows) for c in self._cursors]
        count = min(count_rows(p) for p in parts)
        self.row += count
        return {c: a[:count] for p in parts for c, a in p.items()}

    def mark(self) -> Any:
        return [c.mark() for c in self._cursors]

    def close(self) -> None:
        for cursor in self._cursors:
            cursor.close()


class _ConcatTable(Table):
    def __init__(self, tables: Sequence[Table], name: str) -> None:
        self.name = name
        self.dtypes = tables[0].dtypes
        self._tables = tables
        self._ends = list(accumulate(t.rows for t in tables))
        self.rows = self._ends[-1]

    @property
    def columns(self) -> tuple[str, ...]:
        return self._tables[0].columns

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        index = bisect_right(self._ends, low)
        start = self._ends[index - 1] if index else 0
        if index == len(self._ends) or high <= self._ends[index]:
            return self._tables[min(index, len(self._ends) - 1)].slice(
                low - start, high - start, step
            )
        return self.take(np.arange(low, high, step))

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers: those of each table at once, put back into their order."""
        owners = np.searchsorted(self._ends, rows, side="right")
        parts: list[_Part] = []
        for index in np.unique(owners).tolist():
            places = np.flatnonzero(owners == index)
            start = self._ends[index - 1] if index else 0
            table = self._tables[index]
            parts.append((table.name, places, table.take(rows[places] - start)))
        return {c: _put_back(c, parts, len(rows)) for c in self.columns if parts}


_Part = tuple[str, Permutation, Columns]
"""The name of a table, the places of its rows in the whole, and these rows."""


def _put_back(column: str, parts: Sequence[_Part], rows: int) -> Any:
    """Return a column of rows from several tables; texts are as wide as the widest of them."""
    arrays = [columns[column] for _, _, columns in parts]
    dtype = max((a.dtype for a in arrays), key=lambda dtype: dtype.itemsize)
    whole = np.empty((rows, *arrays[0].shape[1:]), dtype)
    for (name, places, _), array in zip(parts, arrays, strict=True):
        if array.shape[1:] != whole.shape[1:]:
            raise _other_shape(name, column, array, whole)
        whole[places] = array
    whole.setflags(write=False)
    return whole


def _other_shape(name: str, column: str, part: Any, whole: Any) -> DataError:
    return DataError(
        f"{name}: rows of column {column!r} are of shape {part.shape[1:]}, "
        f"but those before them are of {whole.shape[1:]}"
    )


class _ConcatStream(Stream):
    def __init__(self, streams: Sequence[Stream], name: str) -> None:
        self.name = name
        self.streams = streams

    @property
    def columns(self) -> tuple[str, ...]:
        return self.streams[0].columns

    @property
    def dtypes(self) -> Mapping[str, str]:  # type: ignore[override]
        return self.streams[0].dtypes

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        index, inner, inner_mark = mark or (0, 0, None)
        cursor = _ConcatCursor(self, 0 if mark is None else row, index, slow)
        cursor.current = self.streams[index].open(inner, inner_mark, slow)
        if mark is None:
            cursor.skip(row)
        return cursor


class _ConcatCursor(Cursor):
    """A place in one of the streams; its mark is (which one, row in it, its mark)."""

    current: Cursor

    def __init__(self, source: _ConcatStream, row: int, index: int, slow: Slow) -> None:
        self.row = row
        self._source = source
        self._index = index
        self._slow = slow

    def read(self, rows: int) -> Columns:
        found = self.current.read(rows)
        while count_rows(found) < rows and self._index + 1 < len(self._source.streams):
            self.current.close()
            self._index += 1
            stream = self._source.streams[self._index]
            self.current = stream.open(0, None, self._slow)
            more = self.current.read(rows - count_rows(found))
            first = self._source.streams[0]
            _check_dtypes(first.name, first.dtypes, stream.name, stream.dtypes)
            found = _joined(found, more, stream.name)
        self.row += count_rows(found)
        return found

    def mark(self) -> Any:
        return [self._index, self.current.row, self.current.mark()]

    def close(self) -> None:
        self.current.close()


def _joined(found: Columns, more: Columns, name: str) -> Columns:
    """Return the rows of both, one after another."""
    if not count_rows(found):
        return {c: more[c] for c in found} or more
    if not count_rows(more):
        return found
    for column, array in found.items():
        if array.shape[1:] != more[column].shape[1:]:
            raise _other_shape(name, column, more[column], array)
    return {c: np.concatenate([a, more[c]]) for c, a in found.items()}
