"""Text files as streams: ``.csv``, ``.tsv``, ``.jsonl`` and lines of ``.txt``, all also as ``.gz``.

They are read row by row and never as a whole; a mark is the byte at which a row begins: of a
compressed file, the byte of its content, up to which a resumed run decompresses it again.  Text is
UTF-8, with or without a byte order mark; lines end in LF or CRLF.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import Any

from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.data.column_types import CELL_KINDS, INFERRED, VALUE_KINDS, Kind, cell_kind, value_kind
from jobrun.data.csv_parser import CELL_LIMIT, records
from jobrun.data.formats import PACKED
from jobrun.data.select import Plan, common_dtype, expand, names_in, stacked
from jobrun.data.source import Columns, Cursor, Slow, Stream, ignore_slow
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions
from jobrun.storage.regular_file import size_text

__all__ = ["CsvFile", "JsonLinesFile", "TextFile", "TextLines"]

_BOM = b"\xef\xbb\xbf"
_WRONG = (ValueError, TypeError, OverflowError)
_UNREADABLE = (OSError, EOFError, zlib.error)
_SLOW_SECONDS = 2.0

_LONGEST_LINE = 64 << 20
"""Bytes of a line.  A compressed file of 1 MB may be one line of 1 GB."""


class TextFile(Stream):
    """A file of rows; ``wanted`` maps columns to names or patterns in the file (empty: all).

    Raises DataError for a file that cannot be read, and has no rows.
    """

    def __init__(self, path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> None:
        self.path = path
        self.name = str(path)
        self._options = options
        lines = _Lines(path, 0)
        try:
            names = self._begin(lines)
            self._start = lines.offset
            first = _taken(self._records(lines), INFERRED, self.name, 0)
        finally:
            lines.close()
        if not first:
            raise DataError(f"{self.name}: there are no rows")
        names = names or self._names_of(first)
        self._places = {name: place for place, name in enumerate(names)}
        self.check(first, 0)
        self._plan: Plan = expand(wanted, [*self._places], f"{self.name} has no column")
        self._check_types(options.types, names)
        self._names = names_in(self._plan)
        self._kinds = {n: self._kind(n, first, options.types) for n in self._names}
        types = ((n, self._type(k)) for n, k in self._kinds.items())
        self.inferred_types = {n: t for n, t in types if t}
        given = {n: k.dtype for n, k in self._kinds.items()}
        self.dtypes = {
            column: given[group]
            if isinstance(group, str)
            else common_dtype(given, group, self.name)
            for column, group in self._plan.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._plan)

    def open(self, row: int = 0, mark: Any = None, slow: Slow = ignore_slow) -> Cursor:
        """Return a cursor at the byte ``mark``, before row ``row``.

        Without a mark, rows are skipped.
        """
        if row and mark is None:
            cursor = _TextCursor(self, 0, self._start)
            cursor.skip(row)
            return cursor
        began = time.monotonic()
        cursor = _TextCursor(self, row, mark if row else self._start)
        if time.monotonic() - began >= _SLOW_SECONDS:
            slow(
                f"{self.name} was decompressed again up to row {row}, where the run continues; "
                "an uncompressed file spares that"
            )
        return cursor

    def array(self, name: str, values: Sequence[Any], row: int) -> Any:
        """Return the values of a column of the file from ``row`` on.

        Raises DataError with the row.
        """
        kind = self._kinds[name]
        try:
            return kind.to_array(values)
        except _WRONG:
            index = kind.first_wrong(values)
            raise self._wrong(name, values[index], kind, row + index) from None

    def _wrong(self, name: str, value: Any, kind: Kind, row: int) -> DataError:
        got = "there is no value" if value in ("", None) else f"{_short(value)} is not {kind.what}"
        where = f"{self.name}: row {row + 1}, column {name!r}: {got}"
        if value in ("", None):
            return DataError(f"{where}, expected {kind.what}", hint=self._remedy(name, kind))
        return DataError(where, hint=self._remedy(name, kind))

    def _remedy(self, name: str, kind: Kind) -> str:
        other = {"<i8": "float", "<f8": "text"}.get(kind.dtype)
        if other is None:
            return ""
        return (
            f"the first {INFERRED} rows say what a column holds; "
            f"'types: {{{name}: {other}}}' says otherwise"
        )

    def _check_types(self, types: Mapping[str, str], names: Sequence[str]) -> None:
        for name in types:
            if name not in names:
                hint = did_you_mean_or_all(name, names)
                raise DataError(f"'types' names {name!r}: no column of {self.name}", hint=hint)

    def _kind(self, name: str, first: Sequence[Any], types: Mapping[str, str]) -> Kind:
        if name in types:
            return self._kinds_by_name()[types[name]]
        try:
            place = self._places[name]
            return self._infer([self.value(r, name, place) for r in first])
        except ValueError as error:
            raise DataError(f"{self.name}: column {name!r}: {error}") from None

    def _type(self, kind: Kind) -> str:
        """Return the name of a kind under ``types``; of others, which have none, nothing."""
        return next((n for n, k in self._kinds_by_name().items() if k is kind), "")

    # What the formats differ in.

    def _begin(self, lines: _Lines) -> list[str]:
        """Read what stands before the rows; gives the names of the columns, if they are there."""
        return []

    def _names_of(self, first: Sequence[Any]) -> list[str]:
        """Return the names of the columns, from the first rows."""
        return []

    @abstractmethod
    def _records(self, lines: _Lines) -> Iterator[Any]:
        """Return the rows as they stand in the file."""

    @staticmethod
    @abstractmethod
    def value(record: Any, name: str, index: int) -> Any:
        """Return the value of a column in a row."""

    @staticmethod
    def _kinds_by_name() -> Mapping[str, Kind]:
        return CELL_KINDS

    @staticmethod
    def _infer(values: Sequence[Any]) -> Kind:
        return cell_kind(values)

    def check(self, records: Sequence[Any], row: int) -> None:
        """Refuse rows that are not like the others."""

    def values(self, records: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield the columns of rows, by their names in the file."""
        for name in self._names:
            place = self._places[name]
            yield name, [self.value(r, name, place) for r in records]

    def read(self, records: Sequence[Any], row: int) -> Columns:
        """Return the columns of rows of which the first is number ``row``; raises DataError."""
        self.check(records, row)
        found = {name: self.array(name, values, row) for name, values in self.values(records)}
        columns = stacked(found, self._plan)
        return {
            c: a.astype(self.dtypes[c], copy=False) if a.dtype.kind != "O" else a
            for c, a in columns.items()
        }

    def records(self, lines: _Lines) -> Iterator[Any]:
        """Return the rows as they stand in the file, from a place on."""
        return self._records(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


class _Lines:
    """The lines of a file as texts, from a byte on."""

    def __init__(self, path: Path, offset: int) -> None:
        self.path = path
        try:
            packed = path.suffix.lower() == PACKED
            self._file: Any = GzipFile(path) if packed else path.open("rb")
            start = self._file.read(4) if offset == 0 else b""
            if offset == 0:
                self._refuse_utf16(start)
                offset = len(_BOM) if start.startswith(_BOM) else 0
            reached = self._file.seek(offset)
            size = reached if packed else os.fstat(self._file.fileno()).st_size
            self._bounded = packed or size > _LONGEST_LINE
        except _UNREADABLE as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        if offset > size:
            raise DataError(
                f"{path} is shorter than it was when this run was saved",
                hint="restore the old data, or start over with --fresh",
            )

    def _refuse_utf16(self, start: bytes) -> None:
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{self.path} is UTF-16 or UTF-32", hint="save it as UTF-8")

    @property
    def offset(self) -> int:
        """The byte at which the next line begins."""
        return int(self._file.tell())

    def __iter__(self) -> Iterator[str]:
        lines = self._short_lines() if self._bounded else self._file
        return map(bytes.decode, lines)  # as UTF-8

    def _short_lines(self) -> Iterator[bytes]:
        """Yield the lines; raises ValueError before one that is too long fills the memory."""
        readline = self._file.readline
        while line := readline(_LONGEST_LINE + 1):
            if len(line) > _LONGEST_LINE:
                raise ValueError(f"a line is longer than {size_text(_LONGEST_LINE)}, the limit")
            yield line

    def close(self) -> None:
        self._file.close()


def _taken(records: Iterator[Any], most: int, name: str, row: int) -> list[Any]:
    """Return the next rows as they stand in the file, of which the first is number ``row``."""
    found: list[Any] = []
    try:
        found.extend(islice(records, most))
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: row {row + len(found) + 1} is not UTF-8: {error}") from None
    except (ValueError, RecursionError, *_UNREADABLE) as error:
        raise DataError(f"{name}: row {row + len(found) + 1} cannot be read: {error}") from None
    return found


class _TextCursor(Cursor):
    """A place in a text file."""

    def __init__(self, source: TextFile, row: int, offset: int) -> None:
        self.row = row
        self._source = source
        self._lines = _Lines(source.path, offset)
        self._records = source.records(self._lines)

    def read(self, rows: int) -> Columns:
        records = _taken(self._records, rows, self._source.name, self.row)
        columns = self._source.read(records, self.row)
        self.row += len(records)
        return columns

    def mark(self) -> Any:
        return self._lines.offset

    def close(self) -> None:
        self._lines.close()


class CsvFile(TextFile):
    """A ``.csv`` or ``.tsv`` with a header; blank lines are no rows."""

    def _reader(self, lines: Iterator[str]) -> Iterator[list[str]]:
        delimiter = "\t" if self.path.name.lower().endswith((".tsv", ".tsv" + PACKED)) else ","
        return records(lines, delimiter, self._options.cell_limit or CELL_LIMIT)

    def _begin(self, lines: _Lines) -> list[str]:
        try:
            names = next(self._reader(iter(lines)), None)
        except ValueError as error:
            raise DataError(f"{self.name}: the header cannot be read: {error}") from None
        if names is None:
            raise DataError(f"{self.name} is empty", hint="its first line names the columns")
        names = [n.strip() for n in names]
        counts = Counter(names)
        for name in names:
            if not name or counts[name] > 1:
                what = f"names {name!r} twice" if name else "has a column without a name"
                raise DataError(f"{self.name}: the header {what}")
        return names

    def _records(self, lines: _Lines) -> Iterator[list[str]]:
        return self._reader(iter(lines))

    @staticmethod
    def value(record: Any, name: str, index: int) -> Any:
        """Return the value of a column in a row."""
        return record[index]

    def check(self, records: Sequence[Any], row: int) -> None:
        """Check that every row has as many cells as the header."""
        width = len(self._places)
        if {*map(len, records)} <= {width}:
            return
        index = next(n for n, record in enumerate(records) if len(record) != width)
        raise DataError(
            f"{self.name}: row {row + index + 1} has {len(records[index])} cells, "
            f"but the header names {width} columns"
        )

    def values(self, records: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield the columns of rows, by their names in the file."""
        columns: Sequence[Sequence[str]] = list(zip(*records, strict=True))
        for name in self._names:
            yield name, columns[self._places[name]] if columns else ()


class JsonLinesFile(TextFile):
    """A ``.jsonl``: an object a line, of numbers, texts, truth values and lists of numbers."""

    def _records(self, lines: _Lines) -> Iterator[dict[str, Any]]:
        for line in lines:
            if line.isspace():
                continue
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("a line is an object, {…}")
            yield record

    def _names_of(self, first: Sequence[Any]) -> list[str]:
        return list(dict.fromkeys(name for record in first for name in record))

    @staticmethod
    def value(record: Any, name: str, index: int) -> Any:
        """Return the value of a column in a row."""
        return record.get(name)

    @staticmethod
    def _kinds_by_name() -> Mapping[str, Kind]:
        return VALUE_KINDS

    @staticmethod
    def _infer(values: Sequence[Any]) -> Kind:
        return value_kind(values)


class TextLines(TextFile):
    """A ``.txt``: one column, ``line`` or any other name, of the lines without their ends."""

    def __init__(self, path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> None:
        if len(wanted) > 1:
            raise DataError(f"{path} holds one column, but 'from' names {len(wanted)}")
        self._column = next(iter(wanted), "line")
        super().__init__(path, {}, options)

    def _begin(self, lines: _Lines) -> list[str]:
        return [self._column]

    def _records(self, lines: _Lines) -> Iterator[str]:
        return (line.removesuffix("\n").removesuffix("\r") for line in lines)

    @staticmethod
    def value(record: Any, name: str, index: int) -> Any:
        """Return the line."""
        return record

    @staticmethod
    def _infer(values: Sequence[Any]) -> Kind:
        return CELL_KINDS["text"]
