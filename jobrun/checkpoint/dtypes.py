"""dtypes: as JSON for the manifest, and as zarr data types.

A dtype that zarr knows has zarr's name.  Others (those of ml_dtypes, sub-array fields, widths of
zero) are stored as unsigned integers or bytes of the same bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.fill_value import to_fill
from jobrun.core.late_imports import importing
from jobrun.errors import DamagedError, ValueRefusedError
from jobrun.values.dtypes import MAX_LEVELS, is_foreign, why_not_saved

__all__ = [
    "BYTES",
    "DType",
    "Storage",
    "describe",
    "dtype_of",
    "dtype_text",
    "storage_of",
    "swapped",
]

DType = np.dtype[Any]

BYTES = "uint8"
"""zarr's data type of values that are stored as bytes."""

_OWN = re.compile(r"[<>|][biufcSUVmM][0-9]{0,10}(\[[0-9]{0,19}[A-Za-z]{1,2}\])?")
"""The forms of numpy's ``dtype.str``, except for structured dtypes."""
_FOREIGN = re.compile(r"(bfloat|float|int|uint|complex)[0-9][0-9a-z_]*")
_SHOWN = 80

_UNSIGNED = (1, 2, 4, 8)
"""Bytes of the unsigned integers."""
_WORDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}


# dtypes as JSON.


def describe(dtype: DType) -> Any:
    """Return a dtype as JSON: numpy's ``str``, a name of ml_dtypes, or a list of fields.

    A field is ``[name, dtype]`` or ``[name, dtype, shape]``.
    """
    if dtype.names is not None:
        assert dtype.fields is not None or not dtype.names
        return [_describe_field(name, dtype[name]) for name in dtype.names]
    return dtype.name if is_foreign(dtype) else dtype.str


def _describe_field(name: str, dtype: DType) -> list[Any]:
    if dtype.subdtype is None:
        return [name, describe(dtype)]
    base, shape = dtype.subdtype
    return [name, describe(base), list(shape)]


def dtype_of(description: Any) -> DType:
    """Return the inverse of ``describe``.

    Raises DamagedError if there is no such dtype; a name of ml_dtypes needs that package.
    """
    try:
        if type(description) is str:  # without a further call: once for each of many values
            return _named(description)
        return _dtype_of(description, MAX_LEVELS)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError, SyntaxError) as error:
        raise DamagedError(f"{str(description)[:_SHOWN]} describes no dtype") from error


def _dtype_of(description: Any, levels: int) -> DType:
    if isinstance(description, list):
        if not levels:
            raise ValueError("structures are nested too deep")
        fields = [
            (name, _dtype_of(base, levels - 1), _counts(shape[0]))
            if shape
            else (name, _dtype_of(base, levels - 1))
            for name, base, *shape in description
        ]
        return np.dtype(fields)
    if not isinstance(description, str):
        raise TypeError(description)
    return _named(description)


@lru_cache(maxsize=256)
def _named(description: str) -> DType:
    if _OWN.fullmatch(description):
        return np.dtype(description)
    if not _FOREIGN.fullmatch(description):
        raise ValueError(description)
    try:
        with importing():
            import ml_dtypes
    except ImportError:
        raise DamagedError(
            f"the dtype {description} needs the package ml_dtypes",
            hint="pip install ml_dtypes",
        ) from None
    foreign: DType = np.dtype(getattr(ml_dtypes, description))
    return foreign


def dtype_text(description: Any) -> str:
    """Return a described dtype for display: ``float32``, ``>f8``, ``bfloat16``, or all fields."""
    if isinstance(description, str) and description[:1] not in "<>|=":
        return description
    try:
        return str(dtype_of(description))
    except DamagedError:  # of a package that is not installed
        return str(description)


def _counts(shape: Any) -> tuple[int, ...]:
    if type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(shape)
    return tuple(shape)


# How a dtype is stored.


@dataclass(frozen=True, slots=True)
class Storage:
    """The form in which arrays of a dtype are stored.

    ``data_type`` is zarr's name, ``memory`` a dtype whose bytes in memory are those on disk,
    ``extra`` the dimensions that zarr sees after the array's own (the bytes of one element), and
    ``zero`` the fill value of arrays with chunks.
    """

    data_type: Any
    memory: DType
    zero: Any
    extra: tuple[int, ...] = ()

    @property
    def itemsize(self) -> int:
        """The bytes of one element as zarr sees it."""
        return 1 if self.extra else self.memory.itemsize


@lru_cache(maxsize=1024)
def storage_of(dtype: DType) -> Storage:
    """Return the form in which arrays of ``dtype`` are stored.

    Raises ValueRefusedError for dtypes that cannot be saved: see ``why_not_saved``.
    """
    if why := why_not_saved(dtype):
        raise ValueRefusedError(f"dtype {dtype} cannot be saved: {why}")
    if is_foreign(dtype) and dtype.itemsize in _UNSIGNED:
        return Storage(f"uint{8 * dtype.itemsize}", dtype, 0)
    data_type = _data_type(dtype)
    if data_type is None:
        return Storage(BYTES, dtype, 0, (dtype.itemsize,))
    little = dtype.newbyteorder("<")
    return Storage(data_type, little, to_fill(np.zeros((), little)))


def swapped(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Return a copy of ``array`` as ``dtype``, which differs from its own in byte order only.

    Not by ``astype`` or ``np.empty``: numpy gives a timedelta64 without a unit the byte order of
    the machine, and U0 the width 1; ``np.ndarray`` takes a dtype as it is.
    """
    copy = np.ndarray(array.shape, dtype)
    if dtype.names is None:
        copy.view(array.dtype)[...] = array
        return copy.byteswap(inplace=True)
    for name in dtype.names:
        field = array[name]
        copy[name] = field if field.dtype == copy[name].dtype else swapped(field, copy[name].dtype)
    return copy


def _data_type(dtype: DType) -> Any:
    """Return zarr's name of a dtype; None if zarr-python reads none back as the same dtype."""
    if is_foreign(dtype) or dtype.subdtype is not None or dtype.itemsize == 0:
        return None
    if dtype.names is not None:
        fields = [[name, _data_type(dtype[name])] for name in dtype.names]
        if any(data_type is None for _, data_type in fields):
            return None
        return {"name": "structured", "configuration": {"fields": fields}}
    kind, size = dtype.kind, dtype.itemsize
    if kind == "b":
        return "bool"
    if kind in _WORDS:
        return f"{_WORDS[kind]}{8 * size}"
    if kind in "mM":
        unit, factor = np.datetime_data(dtype)
        if unit == "generic":  # zarr-python 3.1 cannot open such a datetime64
            return "int64"
        name = "numpy.datetime64" if kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": factor}}
    name = {"S": "null_terminated_bytes", "U": "fixed_length_utf32", "V": "raw_bytes"}[kind]
    return {"name": name, "configuration": {"length_bytes": size}}
