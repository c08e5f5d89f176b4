"""Reductions over the batches of an epoch of numbers that ``do`` steps return."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jobrun.core.blob_paths import Key
from jobrun.errors import TaskError, ValueRefusedError, with_article
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Tree, Value, one_element

__all__ = ["Reductions"]


class Reductions:
    """The reductions of an epoch, in batch order.

    A mean is kept as the float64 sum of value times rows, and the rows.  A blob is a number in all
    batches of an epoch, or in none: then it keeps the value of the last, and ``last`` is kept here,
    so that a number in a later batch is detected, after a resume too.
    """

    def __init__(self, state: Mapping[str, tuple[str, float, int]]) -> None:
        self._kept: dict[Key, tuple[str, Any, int]] = {}
        for name, (how, value, rows) in state.items():
            node, _, path = name.partition(":")
            self._kept[node, path] = (how, value, int(rows))

    def add(self, key: Key, how: str, value: Value, rows: int, *, asked: bool) -> bool:
        """Add a value; return False if the blob keeps the value of the last batch.

        ``asked`` is whether ``reduce`` names the blob.  Raises TaskError for a blob that is a
        number in some batches only, and for a value that ``reduce`` cannot join.
        """
        if how == "last":
            self._kept.pop(key, None)
            return False
        kept = self._kept.get(key)
        if kept is not None and kept[0] == "mean" and value.kind == "float" and value.note is None:
            assert type(value) is Box  # the loss of most batches
            self._kept[key] = ("mean", kept[1] + value.value * rows, kept[2] + rows)
            return True
        number = _number(value)
        if kept is not None and (number is None) != (kept[0] == "last"):
            raise _not_in_all(key[1], how, value)
        if number is None:
            if asked and not _is_none(value):
                raise _no_number(key[1], how, value)
            self._kept[key] = ("last", 0, rows)
            return False
        if how == "mean":
            number = float(number) * rows
        elif how == "sum":
            number = +number  # also of a single batch, the sum of a bool is an integer
        if kept is not None:
            adds = how == "mean" or how == "sum"
            number = kept[1] + number if adds else _extreme(how, kept[1], number)
            rows += kept[2]
        self._kept[key] = (how, number, rows)
        return True

    def state(self) -> dict[str, tuple[str, float, int]]:
        """Return the state, for a position."""
        return {f"{n}:{p}": (how, v, r) for (n, p), (how, v, r) in self._kept.items()}

    def values(self) -> Iterator[tuple[Key, Value | TaskError]]:
        """Yield the reductions of the whole epoch; an error for one that cannot be a blob."""
        for key, (how, value, rows) in self._kept.items():
            if how == "last":
                continue
            try:
                yield key, adopt([value / rows if how == "mean" else _checked(value)])
            except ValueRefusedError as error:
                yield key, _too_large(key[1], how, error)


def _checked(number: Any) -> Any:
    """Return a number that metrics can take; raises ValueRefusedError beyond 64 bits."""
    if type(number) is int and not -(1 << 63) <= number < 1 << 64:
        raise ValueRefusedError(
            f"an integer of {number.bit_length()} bits cannot be a number",
            hint="64 bits at most; sum floats",
        )
    return number


def _extreme(how: str, kept: Any, number: Any) -> Any:
    """Return the smaller or larger of two numbers, NaN if one is."""
    if math.isnan(kept) or math.isnan(number):
        return math.nan
    return min(kept, number) if how == "min" else max(kept, number)


def _not_in_all(name: str, how: str, value: Value) -> TaskError:
    """Return the error of a blob that is a number in some batches only."""
    now, before = _what(value), "a number"
    if _number(value) is not None:
        now, before = before, "not a number"
    return TaskError(
        f"{name!r} is {now} in this batch, but was {before} in the batches before, so its {how} "
        "over the epoch has no value",
        hint="return a number for every batch, NaN where there is none; or call the step on some "
        f"batches only ('every: {{batches: n}}'), or keep the last ('reduce: {{{name}: last}}')",
    )


def _no_number(name: str, how: str, value: Value) -> TaskError:
    """Return the error of a value that ``reduce`` names and that cannot be reduced."""
    return TaskError(
        f"{name!r} is {_what(value)}, but 'reduce: {{{name}: {how}}}' expects single numbers",
        hint=f"return a number, keep the last value ('reduce: {{{name}: last}}'), or add it up in "
        "a blob under 'update'",
    )


def _too_large(name: str, how: str, error: ValueRefusedError) -> TaskError:
    return TaskError(
        f"the {how} of {name!r} over the epoch is too large: {error.message}",
        hint="return a float: its sum has no such limit",
    )


def _what(value: Value) -> str:
    if isinstance(value, Tree):
        return with_article(value.kind)
    if value.kind == "array":
        return f"an array of shape {value.value.shape}"
    return "None" if value.kind == "none" else with_article(type(value.value).__name__)


def _is_none(value: Value) -> bool:
    return isinstance(value, Box) and value.kind == "none"


def _number(value: Value) -> Any:
    """Return the number of a value that is a single one, else None."""
    if isinstance(value, Box) and value.kind in ("bool", "int", "float"):
        return value.value if value.note is None else one_element(value)
    if isinstance(value, Tree) or value.kind not in ("scalar", "array"):
        return None
    is_one = value.value.ndim == 0 and np.dtype(value.value.dtype).kind in "biuf"
    return one_element(value) if is_one else None
