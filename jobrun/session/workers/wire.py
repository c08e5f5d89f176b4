"""Plain values as messages: a JSON node that describes a value, and one area of bytes beside it.

Arrays and numpy scalars lie in the area, each at a multiple of 64 bytes; all else is in the
node.  There, None, bools, integers and strings stand for themselves, and every other value is a
list that begins with its kind.  Types, dtypes, key orders and all bits are kept.  Other values are
refused: no message can run code of its sender.

A list of arrays of one dtype and shape, as a column of several batches mostly is, has one node for
all of them: measured, to pack and unpack 16 batches of 4 KiB takes 1.6 µs each in place of 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
        self._stacks: list[tuple[int, list[Array]]] = []
        self._places: dict[int, list[Any]] = {}
        self.node = self._node(value)

    def fill(self, area: Array) -> None:
        """Write the arrays into the first ``size`` bytes of ``area``, which is of uint8."""
        for offset, array in self._arrays:
            np.ndarray(array.shape, array.dtype, area, offset)[...] = array
        for offset, arrays in self._stacks:
            stack = _stack(area, arrays[0].dtype, arrays[0].shape, len(arrays), offset)
            for number, array in enumerate(arrays):
                stack[number] = array

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
            if kind is list and len(value) > 1 and type(value[0]) is np.ndarray:
                return self._list_of_arrays(value)
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

    def _list_of_arrays(self, value: list[Any]) -> list[Any]:
        """Return the node of a list that begins with an array: one for all, where they are alike.

        Not where one stands at several places, and not without a dimension or a byte.
        """
        first, places = value[0], self._places
        dtype, shape = first.dtype, first.shape
        if not (
            shape
            and first.nbytes
            and all(type(a) is np.ndarray and a.dtype is dtype and a.shape == shape for a in value)
            and places.keys().isdisjoint(ids := {*map(id, value)})
            and len(ids) == len(value)
        ):
            return ["list", *map(self._node, value)]
        text, stride, offset = _dtype_text(dtype), _aligned(first.nbytes), _aligned(self.size)
        self.size = offset + stride * len(value)
        self._stacks.append((offset, value))
        for number, array in enumerate(value):
            places[id(array)] = ["array", text, [*shape], offset + stride * number]
        return ["arrays", text, [*shape], len(value), offset]

    def _put(self, array: Array) -> tuple[str, list[int], int]:
        """Return the place of an array, with its dtype and shape."""
        offset = _aligned(self.size)
        self.size = offset + array.nbytes
        self._arrays.append((offset, array))
        return _dtype_text(array.dtype), list(array.shape), offset


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _stack(
    area: Array, dtype: np.dtype[Any], shape: Sequence[int], count: int, offset: int
) -> Array:
    """Return ``count`` arrays at an offset of ``area`` as one array with a further dimension."""
    one = np.ndarray(shape, dtype, area, offset)
    return np.ndarray((count, *shape), dtype, area, offset, (_aligned(one.nbytes), *one.strides))


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
    if kind == "arrays":
        return _unpack_stack(area, seen, *rest)
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


def _unpack_stack(
    area: Array, seen: dict[int, Array], dtype: Any, shape: list[int], count: int, offset: int
) -> list[Array]:
    stack = _stack(area, _known(dtype), shape, count, offset)
    stack.setflags(write=False)
    arrays, stride = list(stack), stack.strides[0]
    seen.update(zip(range(offset, offset + stride * count, stride), arrays, strict=True))
    return arrays


def _view(area: Array, dtype: Any, shape: list[int], offset: int) -> Array:
    view: Array = np.ndarray(shape, _known(dtype), area, offset)
    view.setflags(write=False)
    return view


def _known(described: Any) -> np.dtype[Any]:
    return _dtype(described) if isinstance(described, str) else dtype_of(described)


@lru_cache(maxsize=256)
def _dtype(text: str) -> np.dtype[Any]:
    return dtype_of(text)
