"""Datasets of HDF5 files as tables.

A dataset that is stored in one piece, uncompressed, is mapped as a ``.npy`` is; of others the last
chunks that were read are kept.  Checksums (Fletcher-32) are verified where the file has them.
Strings of any length are texts, decoded as UTF-8; those of a fixed length are numpy's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.data.chunked_table import ChunkedTable
from jobrun.data.mapped import FileRows
from jobrun.data.select import Matrices, expand, names_in
from jobrun.data.source import Permutation, Table
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions

__all__ = ["hdf5_table"]


def hdf5_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return datasets of a file, by their names in it (``group/x``; empty: those of the root).

    Raises DataError for what cannot be read.
    """
    try:
        h5py = imported("h5py")
    except ImportError as error:
        raise DataError(
            f"{path} is read by h5py, which is not installed", hint="pip install 'jobrun[hdf5]'"
        ) from error
    try:
        file = h5py.File(path, "r")
        found = _datasets(file, h5py)
    except Exception as error:  # of many kinds, by what is wrong with the file
        raise DataError(f"{path} cannot be read: {error}") from error
    if not wanted:
        found = {name: array for name, array in found.items() if "/" not in name}
    if not found:
        raise DataError(f"{path} holds no dataset with rows")
    plan = expand(wanted, sorted(found), f"{path} holds no dataset")
    arrays = {n: found[n] for n in names_in(plan)}
    texts = {n for n, a in arrays.items() if h5py.check_string_dtype(a.dtype) and a.dtype.hasobject}
    table = _mapped(path, arrays) or ChunkedTable(
        {n: _Texts(a) if n in texts else a for n, a in arrays.items()}, str(path), _take, texts
    )
    return table if all(c == g for c, g in plan.items()) else Matrices(table, plan)


def _datasets(file: Any, h5py: Any) -> dict[str, Any]:
    """Return the datasets with rows of a file, by their paths."""
    found: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape:
            found[name] = node

    file.visititems(visit)
    return found


def _mapped(path: Path, arrays: Mapping[str, Any]) -> Table | None:
    """Return a table of datasets that each lie in one piece of the file; else None."""
    pieces = {name: array.id.get_offset() for name, array in arrays.items()}
    if any(
        piece is None or array.chunks or array.external or array.dtype.hasobject or not array.size
        for array, piece in zip(arrays.values(), pieces.values(), strict=True)
    ):
        return None
    columns = {n: FileRows(path, a.dtype, a.shape, pieces[n]) for n, a in arrays.items()}
    return ArrayTable(columns, str(path))


class _Texts:
    """A dataset of strings, decoded as it is read."""

    def __init__(self, array: Any) -> None:
        self.shape, self.chunks, self.dtype = array.shape, array.chunks, array.dtype
        self._decoded = array.asstr()

    def __getitem__(self, rows: Any) -> Any:
        return self._decoded[rows]


def _take(array: Any, rows: Permutation) -> Any:
    """Return rows by their numbers: h5py takes them in rising order, each once."""
    chosen, places = np.unique(rows, return_inverse=True)
    return array[chosen][places]
