"""Columns of Arrow as arrays: what a type becomes, and how.

Numbers, truth values, dates, times and spans keep their dtype; strings, and categories of them, are
texts.  Lists of one length are rows of a matrix.  Where a value is missing, a float is NaN, a time
NaT, a text empty; other columns refuse it, since their dtype would depend on the rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from jobrun.core.late_imports import imported
from jobrun.data.source import TEXT
from jobrun.errors import DataError

__all__ = ["column_dtype", "to_array"]

TYPES: Final = {"int": "<i8", "float": "<f8", "text": TEXT}
_REMEDY: Final = "'types: {%s: float}' makes it NaN"


def column_dtype(type_: Any, name: str, given: str | None = None) -> str:
    """Return the dtype that a column of an Arrow type has, or is given as a type of ``types``.

    Of lists it is that of their elements.  Raises DataError for a type that is none of rows.
    """
    if given is not None:
        return TYPES[given]
    pa = imported("pyarrow")
    types = pa.types
    if types.is_dictionary(type_):
        return column_dtype(type_.value_type, name)
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return TEXT
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_):
        dtype: np.dtype[Any] = np.dtype(type_.to_pandas_dtype())
        return dtype.str
    if types.is_timestamp(type_) or types.is_duration(type_):
        return np.dtype(f"{'M' if types.is_timestamp(type_) else 'm'}8[{type_.unit}]").str
    if types.is_date(type_):
        return np.dtype("M8[D]").str
    if _is_list(type_):
        inner = column_dtype(type_.value_type, name)
        if np.dtype(inner if inner != TEXT else "O").kind in "biuf":
            return inner
    raise DataError(
        f"column {name!r} is of type {type_}, which is neither numbers nor texts",
        hint="leave it out with 'from', or convert it when the file is written",
    )


def _is_list(type_: Any) -> bool:
    types = imported("pyarrow").types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def to_array(chunks: Any, dtype: str, name: str, row: int = 0) -> Any:
    """Return a ChunkedArray as an array of ``dtype`` (TEXT: of Python's strings).

    ``row`` is the number of its first row.  Raises DataError for a value that is missing or does
    not fit.
    """
    pa = imported("pyarrow")
    array = chunks.combine_chunks() if chunks.num_chunks != 1 else chunks.chunk(0)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_list(array.type):
        return _matrix(array, dtype, name, row)
    if dtype == TEXT:
        return _texts(array)
    wanted = np.dtype(dtype)
    if array.null_count and wanted.kind not in "fmM":
        first = int(np.flatnonzero(~array.is_valid().to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"row {row + first + 1}, column {name!r}: there is no value, expected "
            f"{'true or false' if wanted.kind == 'b' else 'a whole number'}",
            hint=_REMEDY % name if wanted.kind != "b" else "",
        )
    try:
        return _cast(array, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise DataError(f"column {name!r} is not of dtype {wanted}: {error}") from error


def _cast(array: Any, dtype: np.dtype[Any]) -> Any:
    pa = imported("pyarrow")
    if dtype.kind in "iuf" and not pa.types.is_temporal(array.type):
        array = array.cast(pa.from_numpy_dtype(dtype))
    return np.ascontiguousarray(array.to_numpy(zero_copy_only=False).astype(dtype, copy=False))


def _texts(array: Any) -> Any:
    pa = imported("pyarrow")
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        array = array.cast(pa.large_string())
    found = np.empty(len(array), object)
    found[:] = ["" if text is None else text for text in array.to_pylist()]
    return found


def _matrix(array: Any, dtype: str, name: str, row: int) -> Any:
    """Return lists of one length as the rows of an array."""
    if array.null_count:
        raise DataError(f"column {name!r}, from row {row + 1} on: a list is missing")
    inner = array.flatten()
    widths = {inner_length(array)} if not len(array) else {*_widths(array)}
    if len(widths) > 1:
        raise DataError(
            f"column {name!r}, from row {row + 1} on: its lists are of {min(widths)} to "
            f"{max(widths)} elements",
            hint="a column of rows has lists of one length",
        )
    values = to_array(imported("pyarrow").chunked_array([inner]), dtype, name, row)
    return values.reshape(len(array), widths.pop())


def inner_length(array: Any) -> int:
    """Return the length of the lists of a type of fixed size; 0 for other ones."""
    return int(getattr(array.type, "list_size", 0))


def _widths(array: Any) -> list[int]:
    size = inner_length(array)
    if size:
        return [size]
    lengths = imported("pyarrow.compute").list_value_length(array)
    return np.unique(lengths.to_numpy(zero_copy_only=False)).tolist()  # type: ignore[no-any-return]
