"""The form of ``metrics.csv``, and how it is read: one row per epoch of a run's history.

A metric that is named like one of the file's own columns (``seconds``) is in a column with
``metric:`` in front, which no blob's name can have.  A last line that was not written to its end is
passed over.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobrun.core import json_forms
from jobrun.errors import DamagedError
from jobrun.storage.regular_file import open_run_file, size_text, whole_lines

__all__ = ["FIXED", "EpochRow", "column", "parse", "read_rows", "tail"]

FIXED = ("epoch", "seconds", "elapsed")
_MARK = "metric:"
_WORDS = {"True": True, "False": False}
_BLOCK = 1 << 12
_DIGITS = 100
"""Characters of a number: more than any that was written has."""
_LONGEST_HEADER = 1 << 20
_MOST = 256 << 20
"""Bytes of rows that are read: a million epochs of ten metrics."""


@dataclass(frozen=True, slots=True)
class EpochRow:
    """An epoch: its own seconds, those of the run up to its end, and the metrics it has."""

    epoch: int
    seconds: float | None = None
    elapsed: float | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)


def column(name: str, others: Collection[str] = FIXED) -> str:
    """Return the name of a metric's column, which is none of the ``others``."""
    return _MARK + name if name in others else name


def read_rows(path: Path) -> list[EpochRow]:
    """Return all rows of the file; none if there is no file."""
    return tail(path, -1)


def tail(path: Path, epoch: int) -> list[EpochRow]:
    """Return the last rows: all those after ``epoch``, and a few before; only the end is read.

    Rows that are torn, or whose cells are no numbers, are passed over.  Raises DamagedError, naming
    the file, where it is a link or not a regular file, or longer than what is read.
    """
    try:
        file = open_run_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with file:
        header = next(whole_lines(file, path, _LONGEST_HEADER), b"")
        start, end = file.tell(), file.seek(0, 2)
        size = _BLOCK if epoch >= 0 else end - start
        while True:
            begin = max(start, end - size)
            if end - begin > _MOST:
                what = f"more than {size_text(_MOST)} of rows would have to be read"
                raise DamagedError(what, where=str(path))
            file.seek(begin)
            text = file.read(end - begin)
            if begin > start:
                text = text.partition(b"\n")[2]  # the first line may have begun before
            try:
                rows = list(_parsed(header, text))
            except csv.Error as error:
                raise DamagedError(f"it is not read: {error}", where=str(path)) from error
            if begin == start or (rows and rows[0].epoch <= epoch):
                return rows
            size *= 8


def _parsed(header: bytes, text: bytes) -> Iterator[EpochRow]:
    whole = text[: text.rfind(b"\n") + 1]
    lines = (header + whole).decode("utf-8", "replace").split("\n")
    table = csv.reader(lines)
    names = [n.removeprefix(_MARK) for n in next(table, [])]
    if tuple(names[:3]) != FIXED:
        return
    for cells in table:
        if len(cells) != len(names):
            continue
        try:
            epoch, taken, elapsed = int(cells[0][:_DIGITS]), float(cells[1]), float(cells[2])
        except ValueError:
            continue
        if not (
            json_forms.whole(epoch) and json_forms.seconds(taken) and json_forms.seconds(elapsed)
        ):
            continue
        pairs = zip(names[3:], cells[3:], strict=True)
        values = {name: parse(cell) for name, cell in pairs if cell}
        metrics = {name: value for name, value in values.items() if type(value) is not str}
        yield EpochRow(epoch, taken, elapsed, metrics)


def parse(cell: str) -> Any:
    """Return the number, bool or string in a cell; ``NaN`` and ``Infinity`` are numbers."""
    if cell in _WORDS:
        return _WORDS[cell]
    number = cell[:_DIGITS]
    try:  # no call that fails for most cells: an exception costs more than all the rest
        return int(number) if number.lstrip("-").isdecimal() else float(number)
    except ValueError:
        return cell
