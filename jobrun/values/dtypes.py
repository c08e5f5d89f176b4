"""dtypes that survive a save, and the conversion of arrays to them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.values.buffers import copy_array

__all__ = ["MAX_LEVELS", "is_foreign", "plain_dtype", "why_not_saved"]

Array = npt.NDArray[Any]
DType = np.dtype[Any]

MAX_LEVELS = 32
"""The largest nesting of structures in a dtype that is saved."""

_KINDS = frozenset("biufcmMSUV")
_LARGEST_FLOAT = {"f": 8, "c": 16}
"""Bytes of the largest float and complex number that all machines share."""


def is_foreign(dtype: DType) -> bool:
    """Return whether a dtype is not numpy's own, but one of ml_dtypes, say."""
    return dtype.isbuiltin == 2


@lru_cache(maxsize=1024)
def why_not_saved(dtype: DType) -> str:
    """Return why arrays of ``dtype`` cannot be saved, as a sentence; empty if they can."""
    if dtype.hasobject:
        return "it holds Python objects"
    parts = _simple_parts(dtype, MAX_LEVELS)
    if parts is None:
        return f"its structures are nested more than {MAX_LEVELS} levels deep"
    if any(map(_is_long_double, parts)):
        return "its bits differ between machines; convert it to float64 or complex128"
    if not all(map(_has_form, parts)):
        return "it has no form on disk that this jobrun knows"
    if _packed(dtype) != dtype:
        return "it cannot be described by names, types and shapes of its fields (padding, overlaps)"
    return ""


def _simple_parts(dtype: DType, levels: int) -> list[DType] | None:
    """Return the dtypes without fields that a dtype consists of; None if it is nested too deep."""
    if dtype.subdtype is not None:
        return _simple_parts(dtype.subdtype[0], levels)
    if dtype.names is None:
        return [dtype]
    found: list[DType] = []
    for name in dtype.names:
        below = _simple_parts(dtype[name], levels - 1) if levels else None
        if below is None:
            return None
        found += below
    return found


def _is_long_double(dtype: DType) -> bool:
    most = _LARGEST_FLOAT.get(dtype.kind, dtype.itemsize)
    return not is_foreign(dtype) and dtype.itemsize > most


def _has_form(dtype: DType) -> bool:
    """Return whether a dtype without fields is one of numpy, or of the real ones of ml_dtypes."""
    known = not is_foreign(dtype) or dtype.type.__module__.partition(".")[0] == "ml_dtypes"
    return known and dtype.kind in _KINDS


# The form that survives.


def plain_dtype(array: Array) -> Array:
    """Return ``array`` with a dtype that survives a save: packed fields, no titles, no metadata."""
    dtype = array.dtype
    if dtype.names is None and dtype.metadata is None and dtype.type is not np.record:
        return array
    wanted = _packed(dtype)
    if wanted == dtype and dtype.metadata is None and dtype.type is not np.record:
        return array
    return copy_array(array).view(wanted) if wanted.names is None else _repacked(array, wanted)


def _packed(dtype: DType) -> DType:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_packed(base), shape))
    if dtype.names is None:
        return dtype if dtype.metadata is None else np.dtype(dtype.str)
    return np.dtype([(n, _packed(dtype[n])) for n in dtype.names])


def _repacked(array: Array, wanted: DType) -> Array:
    """Copy field by field: padding between fields is not data."""
    result = np.zeros(array.shape, wanted)
    for name in wanted.names or ():
        if result[name].dtype.names is not None:
            result[name] = _repacked(array[name], result[name].dtype)
        else:
            result[name] = array[name]
    return result
