"""Tables of arrays that are stored in chunks.

Chunks are decoded whole, so the rows of the last chunks that were read are kept: a batch smaller
than a chunk does not decode it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from jobrun.data.source import TEXT, Columns, Permutation, Table, finished
from jobrun.data.tables import check_lengths
from jobrun.errors import DataError

__all__ = ["ChunkedTable"]


class ChunkedTable(Table):
    """Columns that are arrays of zarr or h5py: with ``shape``, ``dtype``, ``chunks`` and slices.

    ``take(array, rows)`` returns rows of one by their numbers.  Those of ``texts`` hold Python's
    strings.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        name: str,
        take: Callable[[Any, Permutation], Any],
        texts: Collection[str] = (),
    ) -> None:
        self.name = name
        self._take = take
        self._arrays = dict(arrays)
        self.rows = check_lengths({c: a.shape for c, a in arrays.items()}, name)
        self.dtypes = {c: TEXT if c in texts else np.dtype(a.dtype).str for c, a in arrays.items()}
        for column, array in arrays.items():
            if column not in texts and np.dtype(array.dtype).kind not in "biufcmMSU":
                raise DataError(
                    f"{name}: column {column!r} is of dtype {array.dtype}",
                    hint="columns are arrays of numbers or strings",
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
            found[column] = rows[low - start : high - start : step]
        return finished(found)

    def _rows(self, column: str, low: int, high: int) -> tuple[int, Any]:
        """Return decoded rows that hold ``low`` to ``high``, with the number of the first."""
        start, stop, rows = self._kept.get(column, (0, 0, None))
        if rows is None or low < start or high > stop:
            array = self._arrays[column]
            size = array.chunks[0] if array.chunks else max(1, high - low)
            start = low // size * size
            stop = min(-(-high // size) * size, self.rows)
            rows = self._read(column, lambda: array[start:stop])
            self._kept[column] = (start, stop, rows)
        return start, rows

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers."""
        found: Columns = {}
        for column, array in self._arrays.items():
            found[column] = self._read(column, lambda array=array: self._take(array, rows))
        return finished(found)

    def _read(self, column: str, read: Any) -> Any:
        try:
            return read()
        except Exception as error:  # of many kinds, by store and codec
            raise DataError(f"{self.name}: column {column!r} cannot be read: {error}") from error
