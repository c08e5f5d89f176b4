"""Zarr arrays and groups as tables.

Chunks are decoded whole, so the rows of the last chunks that were read are kept: a batch smaller
than a chunk does not decode it again.  zarr-python is imported when a store is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.core.late_imports import importing
from jobrun.data.select import Matrices, expand, names_in
from jobrun.data.source import Columns, Permutation, Table
from jobrun.data.tables import check_lengths
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, FileOptions

__all__ = ["zarr_table"]


def zarr_table(path: Path, wanted: Mapping[str, str], options: FileOptions = NO_OPTIONS) -> Table:
    """Return an array, under any name, or the arrays of a group; raises DataError."""
    with importing():
        import zarr

    try:
        node = zarr.open(store=str(path), mode="r")
        if isinstance(node, zarr.Array):
            if len(wanted) > 1:
                raise DataError(f"{path} holds one array, but 'from' names {len(wanted)} columns")
            return ZarrTable({next(iter(wanted), path.stem): node}, str(path))
        arrays = dict(node.arrays())
    except DataError:
        raise
    except FileNotFoundError as error:  # what is there is something else
        raise DataError(f"{path} is neither a zarr array nor a group") from error
    except Exception as error:  # of many kinds, by store and codec
        raise DataError(f"{path} cannot be read: {error}") from error
    plan = expand(wanted, sorted(arrays), f"{path} holds no array")
    table = ZarrTable({n: arrays[n] for n in names_in(plan)}, str(path))
    return table if all(c == g for c, g in plan.items()) else Matrices(table, plan)


class ZarrTable(Table):
    """Columns that are zarr arrays."""

    def __init__(self, arrays: Mapping[str, Any], name: str) -> None:
        self.name = name
        self._arrays = dict(arrays)
        self.rows = check_lengths({c: a.shape for c, a in arrays.items()}, name)
        self.dtypes = {c: np.dtype(a.dtype).str for c, a in arrays.items()}
        for column, array in arrays.items():
            if np.dtype(array.dtype).kind not in "biufcmMSU":
                raise DataError(
                    f"{name}: column {column!r} is of dtype {array.dtype}",
                    hint="columns are arrays of numbers or fixed strings",
                )
        self._kept: dict[str, tuple[int, int, Any]] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._arrays)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return rows by their numbers, evenly."""
        found: Columns = {}
        for column in self._arrays:
            start, rows = self._rows(column, low, high)
            found[column] = np.ascontiguousarray(rows[low - start : high - start : step])
            found[column].setflags(write=False)
        return found

    def _rows(self, column: str, low: int, high: int) -> tuple[int, Any]:
        """Return decoded rows that hold ``low`` to ``high``, with the number of the first."""
        start, stop, rows = self._kept.get(column, (0, 0, None))
        if rows is None or low < start or high > stop:
            array = self._arrays[column]
            size = array.chunks[0]
            start = low // size * size
            stop = min(-(-high // size) * size, self.rows)
            rows = self._read(column, lambda: array[start:stop])
            self._kept[column] = (start, stop, rows)
        return start, rows

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers."""
        found: Columns = {}
        for column, array in self._arrays.items():
            taken = self._read(column, lambda array=array: array.oindex[rows])
            found[column] = np.ascontiguousarray(taken)
            found[column].setflags(write=False)
        return found

    def _read(self, column: str, read: Any) -> Any:
        try:
            return read()
        except Exception as error:  # of many kinds, by store and codec
            raise DataError(f"{self.name}: column {column!r} cannot be read: {error}") from error
