"""Parquet and Feather (Arrow) files as tables, read group by group.

A file is made of groups of rows (row groups, record batches).  Rows in order are decoded a group at
a time, and the last group is kept; so a position is a row, and nothing before it is read again.
Rows in any order need all of the file: it is decoded as a whole if that takes at most 128 MiB.
Of Parquet pages, checksums are verified where the file has them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.data.arrow_columns import column_dtype, to_array
from jobrun.data.select import Matrices, expand, names_in
from jobrun.data.source import Columns, Permutation, Table, finished
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions

__all__ = ["MOST_WHOLE", "ArrowTable", "feather_table", "parquet_table"]

MOST_WHOLE = 128 << 20
"""Bytes that the columns of a file may have in memory to be read in any order."""


_Opened = tuple[Any, list[int], Callable[[int, list[str]], Any]]
"""The schema of a file, the rows of its groups, and what reads columns of a group."""


def parquet_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return columns of a Parquet file; raises DataError for what cannot be read."""
    pq = _library("pyarrow.parquet", path)

    def opened() -> _Opened:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        return file.schema_arrow, groups, lambda n, names: file.read_row_group(n, columns=names)

    return _table(path, wanted, options, opened)


def feather_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return columns of an Arrow file (Feather, version 2); raises DataError."""
    pa = _library("pyarrow", path)

    def opened() -> _Opened:
        first = _opened(pa, path, [0])
        groups = [first.get_batch(n).num_rows for n in range(first.num_record_batches)]
        schema = _opened(pa, path).schema

        def read(number: int, names: list[str]) -> Any:
            fields = sorted(map(schema.get_field_index, names))
            return _opened(pa, path, fields).get_batch(number)

        return schema, groups, read

    return _table(path, wanted, options, opened)


def _opened(pa: Any, path: Path, fields: Sequence[int] = ()) -> Any:
    """Return the reader of an Arrow file that decodes these columns alone; () means all."""
    options = pa.ipc.IpcReadOptions(included_fields=[*fields])
    return pa.ipc.open_file(pa.OSFile(str(path)), options=options)


def _library(name: str, path: Path) -> Any:
    try:
        return imported(name)
    except ImportError as error:
        raise DataError(
            f"{path} is read by pyarrow, which is not installed",
            hint="pip install 'jobrun[parquet]'",
        ) from error


def _table(
    path: Path, wanted: ColumnNames, options: FileOptions, opened: Callable[[], _Opened]
) -> Table:
    try:
        schema, groups, read = opened()
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise DataError(f"{path} cannot be read: {error}") from error
    for name in options.types:
        if name not in schema.names:
            hint = did_you_mean_or_all(name, schema.names)
            raise DataError(f"'types' names {name!r}: no column of {path}", hint=hint)
    plan = expand(wanted, schema.names, f"{path} has no column")
    names = names_in(plan)
    dtypes = {n: _dtype(path, schema, n, options.types.get(n)) for n in names}
    table = ArrowTable(str(path), dtypes, groups, read)
    return table if all(c == g for c, g in plan.items()) else Matrices(table, plan)


def _dtype(path: Path, schema: Any, name: str, given: str | None) -> str:
    try:
        return column_dtype(schema.field(name).type, name, given)
    except DataError as error:
        raise DataError(f"{path}: {error.message}", hint=error.hint) from None


class ArrowTable(Table):
    """Columns of a file of groups: ``read(number, names)`` gives those of a group."""

    def __init__(
        self,
        name: str,
        dtypes: Mapping[str, str],
        groups: Sequence[int],
        read: Callable[[int, list[str]], Any],
    ) -> None:
        self.name = name
        self.dtypes = dict(dtypes)
        self.inferred_types = {}
        self.rows = sum(groups)
        if not self.rows:
            raise DataError(f"{name}: there are no rows")
        self._ends = [*accumulate(groups)]
        self._read = read
        self._kept: tuple[int, Columns] | None = None
        self._whole: Columns | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.dtypes)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return rows by their numbers, evenly; decodes the groups that hold them."""
        parts: list[Columns] = []
        row = low
        while row < high:
            number = bisect_right(self._ends, row)
            start = self._start(number)
            stop = min(high, self._ends[number])
            group = self._group(number, start)
            parts.append({c: a[row - start : stop - start] for c, a in group.items()})
            row = stop
        if not parts:  # at the end, where the last group is the one that is kept
            last = self._group(len(self._ends) - 1, self._start(len(self._ends) - 1))
            parts.append({c: a[:0] for c, a in last.items()})
        return finished({c: a[::step] for c, a in _joined(parts).items()})

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers; decodes the whole file at the first call."""
        if self._whole is None:
            self._whole = self._decoded()
        return finished({c: a[rows] for c, a in self._whole.items()})

    def _decoded(self) -> Columns:
        parts: list[Columns] = []
        size = 0
        for number, end in enumerate(self._ends):
            start = self._start(number)
            if end > start:
                parts.append(self._group(number, start))
                size += sum(_bytes(a) for a in parts[-1].values())
            if size > MOST_WHOLE:
                raise DataError(
                    f"{self.name} has more than {MOST_WHOLE >> 20} MiB in memory, and is decoded "
                    "as a whole to read its rows in any order",
                    hint="'shuffle: {buffer: 100000}' shuffles within blocks of that many rows",
                )
        return _joined(parts)

    def _start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _group(self, number: int, start: int) -> Columns:
        if self._kept is None or self._kept[0] != number:
            try:
                table = self._read(number, [*self.dtypes])
                found = {c: _chunked(table, c) for c in self.dtypes}
            except Exception as error:  # of many kinds, by what is wrong with the file
                raise DataError(f"{self.name} cannot be read: {error}") from error
            self._kept = (number, self._arrays(found, start))
        return self._kept[1]

    def _arrays(self, found: Mapping[str, Any], start: int) -> Columns:
        try:
            return {c: to_array(a, self.dtypes[c], c, start) for c, a in found.items()}
        except DataError as error:
            raise DataError(f"{self.name}: {error.message}", hint=error.hint) from error


def _chunked(table: Any, name: str) -> Any:
    """Return a column of a table or record batch in chunks."""
    column = table.column(name)
    return column if hasattr(column, "num_chunks") else imported("pyarrow").chunked_array([column])


def _joined(parts: Sequence[Columns]) -> Columns:
    if len(parts) == 1:
        return dict(parts[0])
    return {c: np.concatenate([p[c] for p in parts]) for c in parts[0]}


def _bytes(array: Any) -> int:
    """Return the bytes of an array; of one of strings, about those of the strings too."""
    strings = sum(map(len, array)) + 49 * len(array) if array.dtype.hasobject else 0
    return int(array.nbytes) + strings
