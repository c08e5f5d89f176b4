"""The reduction of a blob over nodes, along a fixed binary tree in the order of the nodes.

A range of n values is split behind the largest power of two below n.  So the bits of a sum do not
depend on where its parts are computed: whoever has all values of a range of the tree computes that
range, and others continue from there.  A mean divides once, at the end.

Arrays are not computed range by range but block by block, each block along the whole tree, so that
what lies between stays in the processor's cache and no memory is needed for it.  Measured, the mean
of 4 x 8 MB in a worker of dask: 4.1 ms range by range, 2.2 ms so (the fastest of 15).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.errors import TaskError, with_article
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.buffers import copy_array, empty_array

__all__ = ["Part", "Range", "kept", "partial_ranges", "reduced", "subtrees"]

Range = tuple[int, int]
"""A range of values, without its end, that is one of the tree."""

Part = Callable[[int, int], Value | None]
"""Returns what a range was reduced to, or (of one value) its value; None if the range is split."""

Array = npt.NDArray[Any]

_NUMBERS = "biufcm"
_NO_NUMBERS = ("numpy.random.", "pandas.", "polars.", "pyarrow.", "python.random.", "scipy.")
"""Prefixes of adapters whose plain form is not only numbers: an index, places, a state."""

_WIDE: dict[str, dict[str, np.dtype[Any]]] = {
    "mean": dict.fromkeys("biu", np.dtype(np.float64)),
    "sum": {"b": np.dtype(np.int64), "i": np.dtype(np.int64), "u": np.dtype(np.uint64)},
    "min": {},
    "max": {},
}
"""The dtype in which integers are added, by kind of dtype."""

_JOIN: dict[str, Callable[..., Any]] = {
    "mean": np.add,
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
}


def reduced(how: str, names: Sequence[str], part: Part) -> Value:
    """Return the ``mean``, ``sum``, ``min`` or ``max`` of the values ``names``, read-only.

    The values are numbers, arrays of one shape and dtype, or trees of those with the same keys.  A
    sum of booleans and integers has 64 bits; a mean of them is computed in float64, as numpy's is,
    since a sum of 64 bits may be too small.  Others keep their dtype.
    Raises TaskError, naming the blobs, for values that do not fit together or are no numbers, and
    for a sum of integers that does not fit into 64 bits: numpy's would wrap around.
    """
    total = _range(how, names, 0, len(names), part)
    return _finished(total, how, names, "")


def _range(how: str, names: Sequence[str], first: int, end: int, part: Part) -> Value:
    """Return what a range of the tree is reduced to; a mean is a sum until it is finished.

    Of arrays that are to be joined, a box holds the _Joined.
    """
    found = part(first, end)
    if found is not None:
        if end - first > 1:
            return found
        return _Leaf(how, names[first]).prepared(found, "")
    middle = first + _half(end - first)
    left = _range(how, names, first, middle, part)
    right = _range(how, names, middle, end, part)
    return _Join(how, names[first], names[middle]).values(left, right, "")


def partial_ranges(
    how: str, names: Sequence[str], owned: Sequence[bool], value: Callable[[int], Value]
) -> dict[Range, Value]:
    """Return what the values that are ``owned`` are reduced to, as read-only values by range."""
    found = {}
    for first, end in subtrees(owned):
        if end == first + 1:
            found[first, end] = value(first)
            continue
        part = _range(how, names, first, end, lambda i, j: value(i) if j == i + 1 else None)
        found[first, end] = _computed(part, names[first:end], "")
    return found


def kept(value: Value) -> Value:
    """Return a value whose arrays are copies, read-only, in memory of their own."""
    if isinstance(value, Tree):
        return value.replaced({key: kept(item) for key, item in value.items.items()})
    if value.kind != "array":
        return value
    array = copy_array(value.value)
    array.setflags(write=False)
    return value.unsaved(array)


def subtrees(owned: Sequence[bool]) -> list[Range]:
    """Return the largest ranges of the tree of which all values are ``owned``."""
    return list(_subtrees(owned, 0, len(owned)))


def _subtrees(owned: Sequence[bool], first: int, end: int) -> Iterator[Range]:
    if all(owned[first:end]):
        yield first, end
    elif end - first > 1:
        middle = first + _half(end - first)
        yield from _subtrees(owned, first, middle)
        yield from _subtrees(owned, middle, end)


def _half(count: int) -> int:
    """Return the largest power of two below ``count``, which is 2 or more."""
    return 1 << (count - 1).bit_length() - 1


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One value, prepared for its reduction."""

    how: str
    name: str

    def prepared(self, value: Value, path: str) -> Value:
        if value.note is not None and value.note.name.startswith(_NO_NUMBERS):
            raise self._refused(path, with_article(value.note.name))
        if isinstance(value, Tree):
            items = value.items.items()
            return value.replaced({k: self.prepared(v, f"{path}/{k}") for k, v in items})
        if value.kind in ("bool", "int", "float"):
            if value.kind == "bool" and self.how in ("mean", "sum"):
                return Box(int(value.value), "int")
            return value
        if value.kind not in ("array", "scalar"):
            raise self._refused(path, with_article(type(value.value).__name__))
        dtype = np.dtype(value.value.dtype)
        if not self._fits(dtype):
            raise self._refused(path, f"of dtype {dtype}")
        wide = _WIDE[self.how].get(dtype.kind)
        if wide is None or wide == dtype:
            return value
        widened = value.value.astype(wide)
        if value.kind == "array":
            widened.setflags(write=False)
        return Box(widened, value.kind)

    def _fits(self, dtype: np.dtype[Any]) -> bool:
        if self.how in ("min", "max"):
            return dtype.kind in "biufmM" or dtype.isbuiltin == 2
        return dtype.kind in _NUMBERS or dtype.isbuiltin == 2  # 2: bfloat16 and the like

    def _refused(self, path: str, what: str) -> TaskError:
        return TaskError(
            f"{self.name}{path} is {what}, which has no {self.how}",
            hint="'reduce' expects numbers, arrays of numbers, and dicts and lists of those",
        )


@dataclass(frozen=True, slots=True)
class _Join:
    """Two values of the tree, of which the first begins with blob ``left``, the other ``right``."""

    how: str
    left: str
    right: str

    def values(self, left: Value, right: Value, path: str) -> Value:
        if isinstance(left, Tree) and isinstance(right, Tree):
            if _described(left) != _described(right):
                raise self._differ(path, f"{_described(left)} and {_described(right)}")
            theirs = dict(zip(right.names, right.items.values(), strict=True))
            if theirs.keys() != {*left.names}:
                odd = sorted(theirs.keys() ^ {*left.names}, key=repr)[0]
                raise self._differ(path, f"only one of them has {odd!r}")
            joined = {
                name: self.values(own, theirs[key], f"{path}/{name}")
                for key, (name, own) in zip(left.names, left.items.items(), strict=True)
            }
            return left.replaced(joined)
        if isinstance(left, Tree) or isinstance(right, Tree):
            raise self._differ(path, f"{_described(left)} and {_described(right)}")
        if _described(left) != _described(right):
            raise self._differ(path, f"{_described(left)} and {_described(right)}")
        if left.kind in ("bool", "int", "float"):
            return Box(_joined_numbers(self.how, left.value, right.value), left.kind)
        whole = self.how == "sum" and left.value.dtype.kind in "iu"
        join = _add_integers if whole else _JOIN[self.how]
        if left.kind == "scalar":
            try:
                return left.unsaved(join(left.value, right.value))
            except OverflowError:
                raise _too_large([self.left, self.right], path) from None
        return left.unsaved(_Joined(join, left.value, right.value))

    def _differ(self, path: str, how: str) -> TaskError:
        return TaskError(
            f"{self.left}{path} and {self.right}{path} cannot be reduced to one value: {how}",
            hint="'reduce' expects the same keys, shapes and dtypes on all nodes",
        )


def _described(value: Value) -> str:
    if isinstance(value, Tree):
        return with_article(value.kind if value.note is None else value.note.name)
    if value.kind == "array":
        return f"{value.value.dtype} of shape {value.value.shape}"
    if value.kind == "scalar":
        return f"a numpy {value.value.dtype}"
    return with_article(value.kind)


def _joined_numbers(how: str, left: Any, right: Any) -> Any:
    if how in ("mean", "sum"):
        return left + right
    if isinstance(left, float) and math.isnan(left):
        return left
    if isinstance(right, float) and math.isnan(right):
        return right
    return min(left, right) if how == "min" else max(left, right)


def _finished(value: Value, how: str, names: Sequence[str], path: str) -> Value:
    """Return the value computed, and divided if it is a mean; arrays are read-only."""
    if isinstance(value, Tree):
        items = value.items.items()
        return value.replaced({k: _finished(v, how, names, f"{path}/{k}") for k, v in items})
    if how == "mean":
        return _divided(value, len(names))
    if value.kind == "int" and not -(1 << 63) <= value.value < 1 << 64:
        raise _too_large(names, path)
    return _computed(value, names, path)


def _computed(value: Value, names: Sequence[str], path: str) -> Value:
    """Return the value with arrays in place of what is joined, read-only."""
    if isinstance(value, Tree):
        items = value.items.items()
        return value.replaced({key: _computed(v, names, f"{path}/{key}") for key, v in items})
    if value.kind == "array" and isinstance(value.value, _Joined):
        try:
            return value.unsaved(_blockwise(value.value, value.value.dtype, None))
        except OverflowError:
            raise _too_large(names, path) from None
    return value


def _too_large(names: Sequence[str], path: str) -> TaskError:
    return TaskError(
        f"the sum of {names[0]}{path} to {names[-1]}{path} has more than 64 bits",
        hint="use floats",
    )


def _add_integers(left: Any, right: Any, out: Array | None = None) -> Any:
    """Return the sum of integers of 64 bits; raises OverflowError where it wraps around."""
    with np.errstate(over="ignore"):  # numpy warns of scalars alone
        total = np.add(left, right)
    if total.dtype.kind == "u":
        wrapped = total < left
    else:
        wrapped = ((left ^ total) & (right ^ total)) < 0
    if wrapped.any():
        raise OverflowError
    if out is None:
        return total
    out[...] = total
    return out


def _divided(value: Box, count: int) -> Box:
    if value.kind in ("int", "float"):
        return Box(value.value / count, "float")
    if value.kind == "scalar":
        quotient = value.value / count
        return (
            value.unsaved(quotient)
            if quotient.dtype == value.value.dtype
            else Box(quotient, "scalar")
        )
    return value.unsaved(_blockwise(value.value, value.value.dtype, count))


# Arrays, block by block.

_BLOCK = 1 << 17
"""Bytes of a block."""


@dataclass(frozen=True, slots=True)
class _Joined:
    """Two arrays, or what is joined of some, to be joined element by element."""

    join: Callable[..., Any]
    left: Array | _Joined
    right: Array | _Joined

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.left.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.shape


def _blockwise(source: Array | _Joined, dtype: np.dtype[Any], divisor: int | None) -> Array:
    """Return the elements of ``source``, divided if there is a divisor, in a new read-only array.

    The bits of an element do not depend on the blocks.
    """
    result = empty_array(source.shape, dtype)
    elements = result.reshape(-1)
    step = max(_BLOCK // max(dtype.itemsize, 1), 1)
    scratch = [np.empty(min(step, elements.size), source.dtype) for _ in range(_depth(source) + 1)]
    for first in range(0, elements.size, step):
        block = elements[first : first + step]
        if divisor is None:
            _fill(source, first, block, scratch)
        else:
            total = _fill(source, first, scratch[0][: block.size], scratch[1:])
            # numpy computes in its own byte order only.
            computed = None if dtype.kind == "m" else dtype.newbyteorder("=")
            np.true_divide(total, divisor, out=block, dtype=computed)
    result.setflags(write=False)
    return result


def _fill(source: Array | _Joined, first: int, block: Array, scratch: Sequence[Array]) -> Array:
    """Return the elements of ``source`` from ``first`` on, in ``block`` if they are computed."""
    if not isinstance(source, _Joined):
        return source.reshape(-1)[first : first + block.size]
    left = _fill(source.left, first, block, scratch)
    right = _fill(source.right, first, scratch[0][: block.size], scratch[1:])
    source.join(left, right, out=block)
    return block


def _depth(source: Array | _Joined) -> int:
    """Return how many blocks are needed beside the result."""
    if not isinstance(source, _Joined):
        return 0
    return max(_depth(source.left), 1 + _depth(source.right))
