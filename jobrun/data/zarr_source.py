"""Zarr arrays and groups as tables.  zarr-python is imported when a store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobrun.core.late_imports import importing
from jobrun.data.chunked_table import ChunkedTable
from jobrun.data.select import Matrices, expand, names_in
from jobrun.data.source import Permutation, Table
from jobrun.errors import DataError
from jobrun.model.rows import NO_OPTIONS, ColumnNames, FileOptions

__all__ = ["zarr_table"]


def zarr_table(path: Path, wanted: ColumnNames, options: FileOptions = NO_OPTIONS) -> Table:
    """Return an array, under any name, or the arrays of a group; raises DataError."""
    with importing():
        import zarr

    try:
        node = zarr.open(store=str(path), mode="r")
        if isinstance(node, zarr.Array):
            if len(wanted) > 1:
                raise DataError(f"{path} holds one array, but 'from' names {len(wanted)} columns")
            return ChunkedTable({next(iter(wanted), path.stem): node}, str(path), _take)
        arrays = dict(node.arrays())
    except DataError:
        raise
    except FileNotFoundError as error:  # what is there is something else
        raise DataError(f"{path} is neither a zarr array nor a group") from error
    except Exception as error:  # of many kinds, by store and codec
        raise DataError(f"{path} cannot be read: {error}") from error
    plan = expand(wanted, sorted(arrays), f"{path} holds no array")
    table = ChunkedTable({n: arrays[n] for n in names_in(plan)}, str(path), _take)
    return table if all(c == g for c, g in plan.items()) else Matrices(table, plan)


def _take(array: Any, rows: Permutation) -> Any:
    return array.oindex[rows]
