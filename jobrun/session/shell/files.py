"""Blobs as files that programs read and write, by their ending.

========  =========================================  ==========================================
ending    written                                    read
========  =========================================  ==========================================
``.npy``  an array                                   an array
``.txt``  numbers, one row a line; or a text         float64: one number, else an array
``.csv``  the same with commas; a dict of columns    the same; with a header line, a dict of
                                                     columns of numbers, else of strings
``.json`` numbers, texts, lists, dicts, arrays       numbers, texts, lists, dicts
``.raw``  the bytes of an array, little endian       an array of the dtype that is given
========  =========================================  ==========================================

Numbers are written with all their digits, so that they come back bit for bit.  ``FileForm`` gives a
dtype other than float64, and a shape.  Whole numbers that float64 would round are never read as
such: they need a dtype, and in a column they are strings.
"""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jobrun.errors import TaskError, with_article
from jobrun.model.shell import FileForm

__all__ = ["read_file", "write_file"]

Array = npt.NDArray[Any]

_ROUNDED = 2.0**53
"""From here on float64 does not hold every whole number."""
_EXACT_DIGITS = 15
"""Whole numbers of so many digits are exact in float64."""


def write_file(path: Path, value: Any, form: FileForm) -> None:
    """Write a blob; raises TaskError, naming the file, for a value that the file cannot hold."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        match path.suffix:
            case ".npy":
                np.save(path, _array(value), allow_pickle=False)
            case ".raw":
                array = _of_dtype(_array(value), form)
                dtype = array.dtype.newbyteorder(_byte_order(form))
                path.write_bytes(array.astype(dtype, copy=False).tobytes())
            case ".json":
                path.write_text(json.dumps(value, default=_plain), encoding="utf-8")
            case ".txt":
                path.write_text(_text(value, form), encoding="utf-8", newline="")
            case _:
                _write_csv(path, value, form)
    except (ValueError, TypeError) as error:
        raise TaskError(f"{path.name}: it cannot be written: {error}") from None


def read_file(path: Path, form: FileForm) -> Any:
    """Read a file of a program; raises TaskError, naming the file, if its content is invalid.

    Nothing is ever unpickled.
    """
    try:
        match path.suffix:
            case ".npy":
                return np.load(path, allow_pickle=False)
            case ".raw":
                dtype = np.dtype(form.dtype).newbyteorder(_byte_order(form))
                return _shaped(_native(np.frombuffer(path.read_bytes(), dtype).copy()), form)
            case ".json":
                return json.loads(path.read_text(encoding="utf-8"))
            case ".txt" if form.dtype == "str":
                return path.read_bytes().decode().removesuffix("\n")
            case ".txt":
                return _numbers(path, form, None)
            case _:
                return _read_csv(path, form)
    except (ValueError, EOFError, OSError, OverflowError) as error:
        raise TaskError(f"{path.name}, written by the program, cannot be read: {error}") from None


# Arrays.


def _array(value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.hasobject or isinstance(value, dict):
        raise TypeError(f"{with_article(type(value).__name__)} is not an array of numbers")
    return array


def _of_dtype(array: Array, form: FileForm) -> Array:
    """Return the array in the requested dtype.

    Raises TypeError for a cast to another kind, ValueError for whole numbers that do not fit.
    """
    if form.dtype is None or form.dtype == "str":
        return array
    cast = array.astype(form.dtype, casting="same_kind")
    if cast.dtype.kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"it holds whole numbers that do not fit into {form.dtype}")
    return cast


def _byte_order(form: FileForm) -> Literal["<", ">"]:
    """Return the byte order: little endian, unless the dtype says otherwise."""
    return ">" if form.dtype is not None and form.dtype.startswith(">") else "<"


def _native(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _shaped(array: Array, form: FileForm) -> Array:
    return array if form.shape is None else array.reshape(form.shape)


def _plain(value: Any) -> Any:
    """Return an array or numpy scalar as a value of JSON."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        return value.tolist()
    raise TypeError(f"{with_article(type(value).__name__)} is not a JSON value")


# Text.


def _rows(value: Any, form: FileForm) -> list[list[str]]:
    """Return an array as rows of strings: a vector has one number per line."""
    array = _of_dtype(_array(value), form)
    if array.ndim > 2:
        raise ValueError(f"an array of {array.ndim} dimensions has no rows and columns; use .npy")
    if array.dtype.kind not in "biufU":
        raise TypeError(
            f"values of dtype {array.dtype} cannot be written as text that reads back exactly"
        )
    if array.dtype.kind == "b":
        array = array.astype(np.int8)
    rows = array.reshape(-1, 1) if array.ndim < 2 else array
    texts: list[list[str]] = rows.astype(str).tolist()
    return texts


def _text(value: Any, form: FileForm) -> str:
    if isinstance(value, str):
        return value if value.endswith("\n") else value + "\n"
    return "".join(" ".join(row) + "\n" for row in _rows(value, form))


def _write_csv(path: Path, value: Any, form: FileForm) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not isinstance(value, dict):
            writer.writerows(_rows(value, form))
            return
        columns = [_rows(v, form) for v in value.values()]
        if any(len(row) != 1 for rows in columns for row in rows):
            raise ValueError("a column of a table is one-dimensional")
        if len({len(rows) for rows in columns}) > 1:
            named = zip(value, columns, strict=True)
            lengths = ", ".join(f"{name!r} has {len(rows)}" for name, rows in named)
            raise ValueError(f"the columns of a table are equally long: {lengths}")
        writer.writerow(value)
        for cells in zip(*columns, strict=True):
            writer.writerow([cell for row in cells for cell in row])


def _numbers(path: Path, form: FileForm, delimiter: str | None) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        array = np.loadtxt(path, form.dtype or np.float64, delimiter=delimiter, encoding="utf-8")
    if form.dtype is None and np.any(np.abs(array) >= _ROUNDED):
        _refuse_rounded(path, delimiter)
    if form.shape is None and array.ndim == 0:
        return array.item() if form.dtype is None else array[()]
    return _shaped(array, form)


def _refuse_rounded(path: Path, delimiter: str | None) -> None:
    """Raise ValueError if a file holds a whole number that float64 would round."""
    cells = np.loadtxt(path, np.str_, delimiter=delimiter, encoding="utf-8", ndmin=1).flat
    for cell in cells:
        if _is_rounded(cell):
            raise ValueError(f"float64 would round {cell}: name a dtype, such as int64")


def _read_csv(path: Path, form: FileForm) -> Any:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if all(_is_number(cell) for cell in header):
            return _numbers(path, form, ",")
        if twice := next((name for name in header if header.count(name) > 1), None):
            raise ValueError(f"two columns are named {twice!r}")
        rows = []
        for row in reader:
            if row and len(row) != len(header):
                text = f"line {reader.line_num} has {len(row)} cells, the header {len(header)}"
                raise ValueError(text)
            rows += [row] if row else []
    cells = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {name: _column(name, c, form) for name, c in zip(header, cells, strict=True)}


def _column(name: str, cells: Sequence[str], form: FileForm) -> Array:
    """Return a column of numbers if all cells are numbers, else of strings."""
    if form.dtype is None and (not all(map(_is_number, cells)) or any(map(_is_rounded, cells))):
        return np.array(cells)
    array: Array = np.array(list(cells), np.str_)
    try:
        return array.astype(form.dtype or np.float64)
    except ValueError:
        wrong = next(cell for cell in array if not _is_of(cell, form))
        text = f"column {name!r} holds {str(wrong)!r}, which is not {form.dtype}"
        raise ValueError(text) from None


def _is_of(cell: np.str_, form: FileForm) -> bool:
    try:
        np.array(cell).astype(form.dtype)
    except ValueError:
        return False
    return True


def _is_number(text: str) -> bool:
    """Return whether a cell is a number; Python's own float takes ``1_0`` and other digits too."""
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and "_" not in text


def _is_rounded(text: str) -> bool:
    """Return whether a cell is a whole number that float64 would round."""
    try:
        return len(text) > _EXACT_DIGITS and int(text) != float(text)
    except (ValueError, OverflowError):
        return False
