"""From a path to a source: the format by its ending, many files by a pattern."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from glob import glob, has_magic
from pathlib import Path

from jobrun.data.joined import concat
from jobrun.data.numpy_files import npy_table, npz_table
from jobrun.data.source import Source
from jobrun.data.text_files import CsvFile, JsonLinesFile, TextLines
from jobrun.data.zarr_source import zarr_table
from jobrun.errors import DataError, did_you_mean

__all__ = ["open_files"]

_Opener = Callable[[Path, Mapping[str, str], Mapping[str, str]], Source]

_OPENERS: Mapping[str, _Opener] = {
    ".npy": npy_table,
    ".npz": npz_table,
    ".csv": CsvFile,
    ".tsv": CsvFile,
    ".jsonl": JsonLinesFile,
    ".txt": TextLines,
}


def open_files(
    path: Path, wanted: Mapping[str, str], types: Mapping[str, str] | None = None
) -> Source:
    """The source of a file, or of all files of a pattern in the order of their names.

    ``wanted`` maps columns to their names in the file (empty: all), ``types`` gives columns of text
    files their type.  Raises DataError for what is missing or damaged.
    """
    if os.path.exists(path) or not has_magic(str(path)):
        return _open(path, wanted, types or {})
    found = sorted(glob(str(path), recursive=True))
    if not found:
        here = ", ".join(sorted(_neighbours(path))[:8])
        hint = f"in {path.parent}: {here}" if here else f"there is nothing in {path.parent}"
        raise DataError(f"no file matches {path}", hint=hint)
    first = _open(Path(found[0]), wanted, types or {})
    types = {**_found_types(first), **(types or {})}
    return concat([first, *(_open(Path(p), wanted, types) for p in found[1:])], str(path))


def _found_types(source: Source) -> Mapping[str, str]:
    """The types of columns of a text file, to which the files after it are held."""
    return source.types if isinstance(source, CsvFile | JsonLinesFile) else {}


def _open(path: Path, wanted: Mapping[str, str], types: Mapping[str, str]) -> Source:
    if not os.path.exists(path):
        near = did_you_mean(path.name, _neighbours(path))
        if not os.path.isdir(path.parent):
            near = f"there is no folder {path.parent}"
        raise DataError(f"there is no file {path}", hint=near)
    return _opener(path)(path, wanted, types)


def _opener(path: Path) -> _Opener:
    """Of a file by its ending; a folder is a zarr store under any name.  Raises DataError."""
    ending = path.suffix.lower()
    if ending in _OPENERS:
        return _OPENERS[ending]
    if os.path.isfile(path):
        what = f"of an ending, {ending!r}, that is not known" if ending else "without an ending"
        known = ", ".join(_OPENERS)
        raise DataError(
            f"{path} is a file {what}", hint=f"there are {known}; a folder is a zarr store"
        )
    return zarr_table


def _neighbours(path: Path) -> list[str]:
    try:
        return [p.name for p in path.parent.iterdir()]
    except OSError:
        return []
