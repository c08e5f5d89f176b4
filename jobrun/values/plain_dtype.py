"""dtypes that survive a save: packed fields, no titles, no metadata."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.values.buffers import copy_array

__all__ = ["plain_dtype"]

Array = npt.NDArray[Any]


def plain_dtype(array: Array) -> Array:
    """``array`` with a dtype that survives a save: packed fields, no titles, no metadata."""
    dtype = array.dtype
    if dtype.names is None and dtype.metadata is None and dtype.type is not np.record:
        return array
    wanted = _packed(dtype)
    if wanted == dtype and dtype.metadata is None and dtype.type is not np.record:
        return array
    return copy_array(array).view(wanted) if wanted.names is None else _repacked(array, wanted)


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_packed(base), shape))
    if dtype.names is None:
        return dtype if dtype.metadata is None else np.dtype(dtype.str)
    assert dtype.fields is not None
    return np.dtype([(n, _packed(dtype.fields[n][0])) for n in dtype.names])


def _repacked(array: Array, wanted: np.dtype[Any]) -> Array:
    """Copy field by field: padding between fields is no data."""
    result = np.zeros(array.shape, wanted)
    for name in wanted.names or ():
        if result[name].dtype.names is not None:
            result[name] = _repacked(array[name], result[name].dtype)
        else:
            result[name] = array[name]
    return result
