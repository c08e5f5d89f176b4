"""Tables of pandas, polars and pyarrow as sources of rows.

Columns of numbers are read where they are.  Values that are missing are as in files of Arrow: see
``jobrun.data.arrow_columns``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.data.arrow_columns import column_dtype, to_array
from jobrun.data.select import Matrices, expand, names_in
from jobrun.data.source import Columns, Table, finished
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError
from jobrun.model.rows import ColumnNames

__all__ = ["frame_table", "is_frame"]

_FRAMES: Final = (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table"))


def is_frame(made: Any) -> bool:
    """Return whether an object is a table of one of the libraries; imports none of them."""
    return any(
        (kind.__module__.partition(".")[0], kind.__name__) in _FRAMES for kind in type(made).__mro__
    )


def frame_table(frame: Any, wanted: ColumnNames, name: str) -> Table:
    """Return columns of a table (``{column: name or pattern}``).

    Raises DataError for what is not there, or not of numbers or texts.
    """
    names = [n for n in getattr(frame, "column_names", frame.columns) if isinstance(n, str)]
    plan = expand(wanted, names, f"{name}: there is no column")
    try:
        found: Columns = {n: _column(frame[n], n) for n in names_in(plan)}
    except DataError as error:
        raise DataError(f"{name}: {error.message}", hint=error.hint) from None
    except ImportError as error:
        raise DataError(
            f"{name}: its columns are read by pyarrow, which is not installed",
            hint="pip install 'jobrun[parquet]'",
        ) from error
    table = ArrayTable(finished(found), name)
    return table if all(c == g for c, g in plan.items()) else Matrices(table, plan)


def _column(column: Any, name: str) -> Any:
    """Return a column of any of the libraries as an array; TEXT as Python's strings."""
    library = type(column).__module__.partition(".")[0]
    if library == "pyarrow":
        return _of_arrow(column, name)
    if library == "polars":
        return _of_polars(column, name)
    return _of_pandas(column, name)


def _of_arrow(column: Any, name: str) -> Any:
    pa = imported("pyarrow")
    chunks = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return to_array(chunks, column_dtype(chunks.type, name), name)


def _of_polars(column: Any, name: str) -> Any:
    """Return a series of polars, which may come without pyarrow, as an array."""
    pl = imported("polars")
    dtype = column.dtype
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        texts = np.empty(len(column), object)
        texts[:] = column.cast(pl.String).fill_null("").to_list()
        return texts
    whole = not column.null_count() and not dtype.is_decimal()
    if whole and (dtype.is_numeric() or dtype == pl.Boolean):
        return column.to_numpy()
    return _of_arrow(column.to_arrow(), name)


def _of_pandas(column: Any, name: str) -> Any:
    """Return a series of pandas, which may come without pyarrow, as an array."""
    values = column
    if hasattr(values, "cat"):
        values = values.astype(values.cat.categories.dtype)
    if getattr(values.dtype, "tz", None) is not None:
        values = values.dt.tz_convert(None)
    dtype = values.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        return values.to_numpy()
    numbers = getattr(dtype, "numpy_dtype", None)
    absent = np.asarray(values.isna())
    if isinstance(numbers, np.dtype) and numbers.kind in "biuf":
        if numbers.kind != "f" and absent.any():
            row = int(np.flatnonzero(absent)[0])
            raise DataError(
                f"row {row + 1}, column {name!r}: there is no value",
                hint=f"fill it in, e.g. with .fillna(), or with .astype({{{name!r}: float}})",
            )
        return (
            values.to_numpy(numbers, na_value=np.nan) if absent.any() else values.to_numpy(numbers)
        )
    texts = np.where(absent, "", values.to_numpy(object)).astype(object)
    for row, text in enumerate(texts):
        if type(text) is not str:
            raise DataError(
                f"row {row + 1}, column {name!r}: a {type(text).__name__} is not a number or text"
            )
    return texts
