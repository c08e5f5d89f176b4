"""Opening files as sources: the format by the ending, many files by a pattern."""

from __future__ import annotations

import os
from dataclasses import replace
from glob import glob, has_magic
from importlib import import_module
from pathlib import Path

from jobrun.core.late_imports import importing
from jobrun.core.suggestions import did_you_mean
from jobrun.core.text import either
from jobrun.data.formats import FORMATS, PACKED, FileFormat, endings, format_of
from jobrun.data.joined import concat
from jobrun.data.source import Source
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions
from jobrun.storage.regular_file import refuse_not_file

__all__ = ["open_files"]

_FOLDER = next(form for form in FORMATS if form.folder)


def open_files(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Source:
    """Return the source of a file, or of all files of a pattern in the order of their names.

    ``wanted`` maps columns to their names in the file (empty: all).  Raises DataError for what is
    missing or damaged, and for options that a file of this format does not have.
    """
    if os.path.exists(path) or not has_magic(str(path)):
        return _open(path, wanted, options)
    found = sorted(glob(str(path), recursive=True))
    if not found:
        here = ", ".join(sorted(_neighbours(path))[:8])
        hint = f"in {path.parent}: {here}" if here else f"there is nothing in {path.parent}"
        raise DataError(f"no file matches {path}", hint=hint)
    first = _open(Path(found[0]), wanted, options)
    options = replace(options, types={**first.inferred_types, **options.types})
    return concat([first, *(_open(Path(p), wanted, options) for p in found[1:])], str(path))


def _open(path: Path, wanted: ColumnNames, options: FileOptions) -> Source:
    if not os.path.exists(path):
        near = did_you_mean(path.name, _neighbours(path))
        if not os.path.isdir(path.parent):
            near = f"there is no folder {path.parent}"
        raise DataError(f"there is no file {path}", hint=near)
    found = _format(path)
    if not os.path.isdir(path):
        _refuse_special(path)
    for option in options.given:
        if option not in found.options:
            raise DataError(
                f"{path}: {option!r} is for {either(endings(option))} files", hint="leave it out"
            )
    module, _, name = found.opener.partition(":")
    with importing():
        opener = getattr(import_module(module), name)
    source: Source = opener(path, wanted, options)
    return source


def _refuse_special(path: Path) -> None:
    try:
        refuse_not_file(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: it {error.strerror}") from error


def _format(path: Path) -> FileFormat:
    """Return the format of a file by its ending; a folder of any name is a zarr store."""
    found = format_of(path.name)
    if found is not None:
        return found
    if os.path.isfile(path):
        what = f"with the unknown ending {path.suffix!r}" if path.suffix else "without an ending"
        raise DataError(
            f"{path} is a file {what}",
            hint=f"known endings: {', '.join(endings())} (text also with {PACKED}); a folder is a "
            "zarr store",
        )
    return _FOLDER


def _neighbours(path: Path) -> list[str]:
    try:
        return [p.name for p in path.parent.iterdir()]
    except OSError:
        return []
