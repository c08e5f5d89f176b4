"""``.npy`` and ``.npz`` files as tables.

A ``.npy`` in C order is mapped, and so is a large array that an ``.npz`` holds uncompressed, once
its checksum is proven.  Nothing is ever unpickled.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.data.mapped import MANY, FileRows
from jobrun.data.select import expand, grouped, names_in
from jobrun.data.source import Table
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box

__all__ = ["npy_table", "npz_table"]

_MAPPED_BYTES = 64 << 20
_CHUNK = 1 << 20
_LOCAL_HEADER = 30
_OBJECTS = ("pickle", "Object arrays", "Python objects")


def npy_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return the one column of a ``.npy``, under any name.

    Raises DataError for what cannot be read.
    """
    if len(wanted) > 1:
        raise DataError(f"{path} holds one array, but 'from' names {len(wanted)} columns")
    try:
        column = _mapped(path, np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise _unreadable(path, error) from error
    return ArrayTable({next(iter(wanted), path.stem): column}, str(path))


def npz_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return columns of a ``.npz`` (``{column: name or pattern}``; empty: all).

    Raises DataError for what cannot be read.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} is not a .npz archive")
        with archive:
            plan = expand(wanted, list(archive.files), f"{path} holds no array")
            arrays = {n: _member(path, archive, n) for n in names_in(plan)}
    except DataError:
        raise
    except Exception as error:  # of many kinds, by the compression too
        raise _unreadable(path, error) from error
    return grouped(lambda columns: ArrayTable(columns, str(path)), arrays, plan)


def _unreadable(path: Path, error: Exception) -> DataError:
    if any(t in str(error) for t in _OBJECTS):
        return DataError(
            f"{path} holds Python objects, which are never unpickled",
            hint="save it again as arrays of numbers or fixed strings",
        )
    return DataError(f"{path} cannot be read: {error}")


def _member(path: Path, archive: Any, name: str) -> npt.NDArray[Any] | FileRows:
    """Return an array of an archive: mapped if it is large and stored as it is, else read."""
    info = next((i for i in archive.zip.infolist() if i.filename in (name, f"{name}.npy")), None)
    stored = info is not None and info.compress_type == zipfile.ZIP_STORED
    if info is None or not stored or info.file_size < _MAPPED_BYTES:
        return _adopted([archive[name]])
    with archive.zip.open(info) as member:
        header = _header(member)
        while header is not None and member.read(_CHUNK):
            pass  # at the end, the checksum is compared
    if header is None:
        return _adopted([archive[name]])
    shape, dtype, start = header
    offset = _data_offset(path, info) + start
    return FileRows(path, dtype, shape, offset)


def _header(member: Any) -> tuple[tuple[int, ...], np.dtype[Any], int] | None:
    """Return shape, dtype, and where the data begins.

    Returns None for an array that is not to be mapped.
    """
    if np.lib.format.read_magic(member) != (1, 0):
        return None
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    if fortran or dtype.hasobject or dtype.names is not None:
        return None
    return shape, dtype, member.tell()


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a stored member begin.

    They follow its local header, which has a length of its own.
    """
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(_LOCAL_HEADER)
    name, extra = header[26:28], header[28:30]
    lengths = int.from_bytes(name, "little") + int.from_bytes(extra, "little")
    return info.header_offset + _LOCAL_HEADER + lengths


def _mapped(path: Path, array: Any) -> npt.NDArray[Any] | FileRows:
    """Return a mapped array as it is, if tasks may be given it so; else a copy in memory."""
    if not array.flags.c_contiguous or array.dtype.names is not None or not array.ndim:
        return _adopted([np.asarray(array)])
    if array.nbytes <= MANY:
        return np.asarray(array)
    return FileRows(path, array.dtype, array.shape, array.offset)


def _adopted(cell: list[Any]) -> npt.NDArray[Any]:
    """Return the array in ``cell``: plain, C-contiguous and read-only, as tasks are given it."""
    value = adopt(cell)
    assert isinstance(value, Box)
    adopted: npt.NDArray[Any] = value.value
    return adopted
