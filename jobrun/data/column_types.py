"""The kinds of the columns of text files: what values are, and how they become arrays.

A kind is found once, from the first rows, or given under ``types``; later values are held to it, so
that the dtype of a batch never depends on which rows are in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.data.source import TEXT

__all__ = ["CELL_KINDS", "INFERRED", "Kind", "cell_kind", "value_kind"]

INFERRED = 1000
"""From how many rows the kinds are found."""

MISSING = frozenset(("", "NA", "N/A", "NaN", "nan", "null", "NULL"))

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a column: its dtype, and ``to_array``, which makes an array of values.

    ``to_array`` raises ValueError, TypeError or OverflowError; ``first_wrong`` then finds the
    value.  ``what`` names one value.
    """

    dtype: str
    what: str
    to_array: Callable[[Sequence[Any]], Array]

    def first_wrong(self, values: Sequence[Any]) -> int:
        """Return the index of the first value that is not of this kind."""
        for index, value in enumerate(values):
            try:
                self.to_array([value])
            except (ValueError, TypeError, OverflowError):
                return index
        return 0


def _objects(values: Sequence[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


# Cells of .csv and .tsv, which are texts.


def _is_plain(cells: Sequence[str]) -> bool:
    """Return whether Python's numbers are those of a file.

    It knows ``1_000`` and other digits too.
    """
    text = "".join(cells)
    return text.isascii() and "_" not in text


def _cells_to_int(cells: Sequence[str]) -> Array:
    if not _is_plain(cells):
        raise ValueError("no whole number")
    return np.array(list(map(int, cells)), np.int64)


def _cells_to_float(cells: Sequence[str]) -> Array:
    if not _is_plain(cells):
        raise ValueError("no number")
    try:
        return np.array(list(map(float, cells)), np.float64)
    except ValueError:
        present = (math.nan if c.strip() in MISSING else float(c) for c in cells)
        return np.array(list(present), np.float64)


CELL_KINDS = {
    "int": Kind("<i8", "a whole number", _cells_to_int),
    "float": Kind("<f8", "a number", _cells_to_float),
    "text": Kind(TEXT, "a text", _objects),
}


def cell_kind(cells: Sequence[str]) -> Kind:
    """Return the narrowest kind of the cells of a column: int, float, else text."""
    present = [c for c in cells if c.strip() not in MISSING]
    names = ("int", "float") if len(present) == len(cells) else ("float",)
    if names == ("float",) and _rounded(_whole(present)):
        return CELL_KINDS["text"]
    for name in names if present else ():
        try:
            CELL_KINDS[name].to_array(cells)
        except OverflowError:
            return CELL_KINDS["text"]  # a float would not keep all its digits
        except ValueError:
            continue
        return CELL_KINDS[name]
    return CELL_KINDS["text"]


def _whole(cells: Sequence[str]) -> list[int]:
    """Return the numbers of the cells if all are whole, else none."""
    try:
        return list(map(int, cells)) if _is_plain(cells) else []
    except ValueError:
        return []


def _rounded(numbers: Iterable[int]) -> bool:
    """Return whether a float does not keep all digits of a number, as of an identifier."""
    try:
        return any(int(float(number)) != number for number in numbers)
    except OverflowError:
        return True


# Values of .jsonl, which have a type.


def _typed(allowed: set[type], dtype: type) -> Callable[[Sequence[Any]], Array]:
    def to_array(values: Sequence[Any]) -> Array:
        if not allowed.issuperset(map(type, values)):
            raise TypeError("of another type")
        return np.array([math.nan if v is None else v for v in values], dtype)

    return to_array


def _texts(values: Sequence[Any]) -> Array:
    if not {str}.issuperset(map(type, values)):
        raise TypeError("of another type")
    return _objects(values)


VALUE_KINDS = {
    "int": Kind("<i8", "a whole number", _typed({int}, np.int64)),
    "float": Kind("<f8", "a number", _typed({int, float, type(None)}, np.float64)),
    "text": Kind(TEXT, "a text", _texts),
}
_BOOL = Kind("|b1", "true or false", _typed({bool}, np.bool_))


def value_kind(values: Sequence[Any]) -> Kind:
    """Return the kind of the values of a column; raises ValueError where there is none."""
    for kind in (_BOOL, *VALUE_KINDS.values()):
        try:
            kind.to_array(values)
        except OverflowError:
            raise ValueError("it holds whole numbers beyond 64 bits") from None
        except (TypeError, ValueError):
            continue
        if kind is VALUE_KINDS["float"] and _rounded(_present(values)):
            raise ValueError("floats, which rows without a value need, would round its numbers")
        return kind
    first = next((v for v in values if isinstance(v, list)), None)
    if first is None:
        raise ValueError("its values are not of one kind")
    return _list_kind(values, np.asarray(first).shape)


def _present(values: Sequence[Any]) -> list[int]:
    """Return the values that are there if all are whole numbers, else none."""
    present = [v for v in values if v is not None]
    return present if {int}.issuperset(map(type, present)) else []


def _list_kind(values: Sequence[Any], shape: tuple[int, ...]) -> Kind:
    """Return lists of numbers, all of one shape."""
    natural = np.array(values)  # raises ValueError where the shapes differ
    if natural.dtype.kind not in "biuf" or natural.shape[1:] != shape:
        raise ValueError("its lists are not of numbers")
    dtype: Any = np.dtype(np.bool_ if natural.dtype.kind == "b" else np.int64)
    if natural.dtype.kind == "f":
        dtype = np.dtype(np.float64)

    def to_array(values: Sequence[Any]) -> Array:
        array = np.array(values) if len(values) else np.empty((0, *shape), dtype)
        if array.shape[1:] != shape or not np.can_cast(array.dtype, dtype, "safe"):
            raise ValueError("of another shape or type")
        return array.astype(dtype, copy=False)

    return Kind(dtype.str, f"a list of shape {shape}", to_array)
