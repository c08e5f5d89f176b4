"""The formats of the files that pipes read: one row each.

The spec language, the checks of a job and the opening of files all ask this table, so a format is
its module, its row here, its test, and its row in ``docs/data.md``.  This module imports no
library: a module of a format is imported when the first file of it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

__all__ = ["COLUMN_TYPES", "FORMATS", "PACKED", "FileFormat", "endings", "format_of"]

PACKED = ".gz"
"""The ending after that of a streamed file which is compressed by gzip."""

COLUMN_TYPES = ("int", "float", "text")
"""The types of a column that ``types`` may name."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of files, known by its endings, which are in lower case.

    ``opener`` is ``module:name`` of what opens a file: called with a Path, ``{column: name in the
    file}`` (empty: all) and a ``FileOptions``, it returns a ``Source`` or raises DataError.
    ``streamed`` files are read from front to back, and may be compressed: ``.csv.gz``.  ``options``
    are the fields of ``FileOptions`` that the format knows; a file of another one is refused with
    them.  A ``folder`` may be part of a longer path: ``d.zarr/x``.
    """

    endings: tuple[str, ...]
    opener: str
    streamed: bool = False
    options: tuple[str, ...] = ()
    folder: bool = False


FORMATS = (
    FileFormat((".npz",), "jobrun.data.numpy_files:npz_table"),
    FileFormat((".npy",), "jobrun.data.numpy_files:npy_table"),
    FileFormat((".csv", ".tsv"), "jobrun.data.text_files:CsvFile", True, ("types", "cell_limit")),
    FileFormat((".jsonl",), "jobrun.data.text_files:JsonLinesFile", True, ("types",)),
    FileFormat((".txt",), "jobrun.data.text_files:TextLines", True, ("types",)),
    FileFormat((".parquet",), "jobrun.data.arrow_files:parquet_table", False, ("types",)),
    FileFormat((".feather", ".arrow"), "jobrun.data.arrow_files:feather_table", False, ("types",)),
    FileFormat((".h5", ".hdf5"), "jobrun.data.hdf5_files:hdf5_table"),
    FileFormat((".zarr",), "jobrun.data.zarr_source:zarr_table", folder=True),
)
"""All formats, in the order in which messages list them."""

_BY_ENDING = {ending: form for form in FORMATS for ending in form.endings}


def format_of(path: str) -> FileFormat | None:
    """Return the format of a path or pattern by its ending, in any case; None if it is unknown."""
    found = _by_ending(PurePath(path))
    if found is not None:
        return found
    above = (_by_ending(PurePath(part)) for part in PurePath(path).parts)
    return next((form for form in above if form is not None and form.folder), None)


def _by_ending(path: PurePath) -> FileFormat | None:
    packed = path.suffix.lower() == PACKED
    found = _BY_ENDING.get((PurePath(path.stem) if packed else path).suffix.lower())
    return None if found is None or (packed and not found.streamed) else found


def endings(option: str = "") -> list[str]:
    """Return the endings of all formats, or of those that know an option."""
    return [e for form in FORMATS for e in form.endings if not option or option in form.options]
