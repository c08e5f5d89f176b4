"""Plain values as messages: a JSON node that describes a value, and one area of bytes beside it.

Arrays and numpy scalars lie in the area, each at a multiple of 64 bytes; all else is in the
node.  There, None, bools, integers and strings stand for themselves, and every other value is a
list that begins with its kind.  Types, dtypes, key orders and all bits are kept.  Other values are
refused: no message can run code of its sender.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.dtypes import describe, dtype_of
from jobrun.errors import with_article

__all__ = ["ALIGNMENT", "Packed", "UnsendableError", "unpack"]

Array = npt.NDArray[Any]

ALIGNMENT = 64
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAKE: dict[str, Any] = {name: kind for kind, name in _SEQUENCES.items()}


class UnsendableError(Exception):
    """A value that cannot be sent; ``str()`` is its description: ``a Series``."""


class Packed:
    """A value ready to be sent: its ``node``, and ``size`` bytes that ``fill`` writes."""

    def __init__(self, value: Any) -> None:
        self.size = 0
        self._arrays: list[tuple[int, Array]] = []
        self._places: dict[int, list[Any]] = {}
        self.node = self._node(value)

    def fill(self, area: Array) -> None:
        """Write the arrays into the first ``size`` bytes of ``area``, which is of uint8."""
        for offset, array in self._arrays:
            np.ndarray(array.shape, array.dtype, area, offset)[...] = array

    def _node(self, value: Any) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str:
            return value
        if kind is np.ndarray:
            if id(value) not in self._places:
                self._places[id(value)] = ["array", *self._put(value)]
            return self._places[id(value)]
        if kind is float:
            return ["float", struct.pack("<d", value).hex()]
        if kind in _SEQUENCES:
            return [_SEQUENCES[kind], *map(self._node, value)]
        if kind is dict:
            return ["dict", [*map(self._node, value)], [*map(self._node, value.values())]]
        if isinstance(value, np.generic):
            return ["scalar", *self._put(np.array(value, value.dtype))]
        if kind is bytes or kind is bytearray:
            return [kind.__name__, value.hex()]
        if kind is complex:
            return ["complex", self._node(value.real), self._node(value.imag)]
        raise UnsendableError(with_article(kind.__name__))

    def _put(self, array: Array) -> tuple[str, list[int], int]:
        """Return the place of an array, with its dtype and shape."""
        offset = -(-self.size // ALIGNMENT) * ALIGNMENT
        self.size = offset + array.nbytes
        self._arrays.append((offset, array))
        return _dtype_text(array.dtype), list(array.shape), offset


@lru_cache(maxsize=256)
def _dtype_text(dtype: np.dtype[Any]) -> Any:
    described = describe(dtype)
    if dtype.hasobject or dtype_of(described) != dtype:
        raise UnsendableError(f"an array of dtype {dtype}")
    return described


def unpack(node: Any, area: Array) -> Any:
    """Return the value of a node; its arrays are read-only views of ``area``.

    An array that stood at several places is one object here too.
    """
    return _unpack(node, area, {})


def _unpack(node: Any, area: Array, seen: dict[int, Array]) -> Any:
    if type(node) is not list:
        return node
    kind, *rest = node
    if kind == "array":
        dtype, shape, offset = rest
        view = _view(area, dtype, shape, offset)
        return seen.setdefault(offset, view) if view.nbytes else view
    if kind == "scalar":
        # A structured one is a view of its array: that must be its own.
        return np.array(_view(area, *rest))[()]
    if kind == "float":
        return struct.unpack("<d", bytes.fromhex(rest[0]))[0]
    if kind == "dict":
        keys, values = rest
        return {
            _unpack(k, area, seen): _unpack(v, area, seen)
            for k, v in zip(keys, values, strict=True)
        }
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind == "bytearray":
        return bytearray.fromhex(rest[0])
    if kind == "complex":
        return complex(_unpack(rest[0], area, seen), _unpack(rest[1], area, seen))
    return _MAKE[kind](_unpack(item, area, seen) for item in rest)


def _view(area: Array, dtype: Any, shape: list[int], offset: int) -> Array:
    known = _dtype(dtype) if isinstance(dtype, str) else dtype_of(dtype)
    view: Array = np.ndarray(shape, known, area, offset)
    view.setflags(write=False)
    return view


@lru_cache(maxsize=256)
def _dtype(text: str) -> np.dtype[Any]:
    return dtype_of(text)
