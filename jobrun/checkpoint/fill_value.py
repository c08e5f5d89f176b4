"""Fill values: one element as the JSON of a zarr array's ``fill_value``, and back, bit for bit.

Scalars and 0-d arrays are stored there and need no chunk.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.json_floats import special_name

__all__ = ["from_fill", "to_fill"]

Array = npt.NDArray[Any]

_NAN = {size: np.array(np.nan, f"<f{size}").tobytes() for size in (2, 4, 8)}


def to_fill(array: Array) -> Any:
    """Return a 0-d array as JSON, or None if its bits could not be read back from that."""
    dtype, kind = array.dtype, array.dtype.kind
    if dtype.isbuiltin != 2 and kind in "biuf":
        return _float_to_json(array) if kind == "f" else array.item()
    bits = array.tobytes()
    if dtype.isbuiltin == 2:
        return int.from_bytes(bits, "little")
    if kind == "c":
        fill = [_float_to_json(array.real), _float_to_json(array.imag)]
        return None if None in fill else fill
    if kind in "mM":
        return int.from_bytes(bits, "little", signed=True)
    if kind == "U":
        return _text_to_json(bits)
    return base64.b64encode(bits).decode("ascii")


def _float_to_json(array: Array) -> Any:
    """Return a float; None for a NaN other than the usual one, whose bits no reader keeps."""
    number = array.item()
    if math.isfinite(number):
        return number
    unusual = math.isnan(number) and array.tobytes() != _NAN[array.itemsize]
    return None if unusual else special_name(number)


def _text_to_json(bits: bytes) -> str | None:
    """Return the string of a fixed-width element; None if invalid (numpy does not check)."""
    try:
        return bits.decode("utf-32-le").rstrip("\0")
    except UnicodeDecodeError:
        return None


def from_fill(fill: Any, dtype: np.dtype[Any]) -> Array:
    """Return the inverse of ``to_fill``, a 0-d array; raises ValueError or TypeError."""
    if dtype.isbuiltin == 2:
        bits = int(fill).to_bytes(dtype.itemsize, "little")
    elif dtype.kind == "f":
        return np.array(float(fill), dtype)
    elif dtype.kind == "c":
        parts = [float(part) for part in fill]
        bits = np.array(parts, f"<f{dtype.itemsize // 2}").tobytes()
    elif dtype.kind in "mM":
        bits = int(fill).to_bytes(8, "little", signed=True)
    elif dtype.kind in "SV":
        bits = base64.b64decode(fill, validate=True)
        if len(bits) != dtype.itemsize:
            raise ValueError(f"{len(bits)} bytes, but an element has {dtype.itemsize}")
    else:
        return np.array(fill, dtype)
    return np.array(np.frombuffer(bits, dtype)[0], dtype)
