"""Sources of columns: blobs of the workspace, ``.npz`` and ``.npy`` files.

A column is an array; its first axis is the rows.  All columns of a pipe have the same rows.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.errors import DataError, did_you_mean
from jobrun.values import Box, Value, adopt

__all__ = ["Columns", "blob_columns", "check_rows", "file_columns"]

Columns = dict[str, npt.NDArray[Any]]


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


def file_columns(path: Path, wanted: Mapping[str, str]) -> Columns:
    """The columns of a ``.npz`` or ``.npy`` (``{column: name in the file}``; empty: all).

    A ``.npy`` in C order is mapped into memory, not read.  Raises DataError for a file that is
    missing, damaged, or holds Python objects: nothing is ever unpickled.
    """
    try:
        if path.suffix == ".npy":
            return _npy_columns(path, wanted)
        return _npz_columns(path, wanted)
    except FileNotFoundError:
        near = did_you_mean(path.name, _neighbours(path))
        raise DataError(f"there is no file {path}", hint=near) from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        if any(t in str(error) for t in ("pickle", "Object arrays", "Python objects")):
            raise DataError(
                f"{path} holds Python objects, which are never unpickled",
                hint="save it again as arrays of numbers or fixed strings",
            ) from None
        raise DataError(f"{path} cannot be read: {error}") from error


def _npy_columns(path: Path, wanted: Mapping[str, str]) -> Columns:
    if len(wanted) > 1:
        raise DataError(f"{path} holds one array, but {len(wanted)} columns are wanted")
    array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    plain = array.flags.c_contiguous and array.dtype.names is None
    return {next(iter(wanted), path.stem): array if plain else _adopted([array])}


def _npz_columns(path: Path, wanted: Mapping[str, str]) -> Columns:
    columns: Columns = {}
    archive = np.load(path, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(f"{path} is no .npz archive")
    with archive:
        names = list(archive.files)
        for column, name in (wanted or {n: n for n in names}).items():
            if name not in names:
                hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
                raise DataError(f"{path} holds no array {name!r}", hint=hint)
            columns[column] = _adopted([archive[name]])
    return columns


def _adopted(cell: list[Any]) -> npt.NDArray[Any]:
    """The array in ``cell``: plain, C-contiguous and read-only, as all that a task is given."""
    value = adopt(cell)
    assert isinstance(value, Box)
    adopted: npt.NDArray[Any] = value.value
    return adopted


def _neighbours(path: Path) -> list[str]:
    try:
        return [p.name for p in path.parent.iterdir()]
    except OSError:
        return []


def check_rows(columns: Columns, pipe: str) -> int:
    """The number of rows; raises DataError if columns differ, or there is nothing to read."""
    lengths = {}
    for column, array in columns.items():
        if array.ndim == 0:
            raise DataError(f"pipe {pipe!r}: column {column!r} is a single value and has no rows")
        lengths[column] = len(array)
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{c} {n}" for c, n in lengths.items())
        raise DataError(f"pipe {pipe!r}: the columns differ in rows: {text}")
    rows = next(iter(lengths.values()), 0)
    if rows == 0:
        raise DataError(f"pipe {pipe!r}: the source has no rows")
    return rows
