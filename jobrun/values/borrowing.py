"""What a task is given to update: writable arrays, private to it.

The stored ones if the value has no other holder (a second name, a snapshot, a view somebody kept),
else copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from jobrun.values.adapted import put_together
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.buffers import BUFFERS
from jobrun.values.holders import SOLE, box_held_alone, held_alone, owns_memory, references

__all__ = ["borrow", "reclaim"]

Array = npt.NDArray[Any]


def borrow(items: dict[str, Value], key: str, sole: bool = True) -> Any:
    """What a task is given to update: writable and private to it, tied arrays as one object.

    ``items[key]`` is the value; ``sole`` says whether ``items`` has no other holder.  Where the
    stored array itself is handed out, its box is emptied, so that nobody can read a half-updated
    value: the caller puts the new value in its place, or ends the run.
    """
    return _Taking(items, key, sole).take(items, key, sole)


class _Taking:
    """One call of ``borrow``: the tied arrays that were handed out, and who else holds these."""

    __slots__ = ("_counts", "_path", "_root", "_taken")

    def __init__(self, items: dict[str, Value], key: str, sole: bool) -> None:
        self._root = (items, key, sole)
        self._counts: dict[int, int] | None = None
        # The trees that are being handed out now; these frames hold them too.
        self._path: list[int] = []
        self._taken: dict[int, Array] = {}

    def take(self, items: dict[str, Value], key: str, sole: bool) -> Any:
        """Hand out ``items[key]``; ``sole`` says whether the way to it is held by us alone."""
        refs = references(items, key)
        value = items[key]
        taken: Any
        if type(value) is Box:
            if value.kind != "array":
                taken = value.value
            elif value.tied:
                taken = self._tied(value, sole, refs)
            else:
                taken = _take_array(value, sole and refs == SOLE)
        else:
            assert isinstance(value, Tree)
            sole = sole and refs == SOLE
            self._path.append(id(value))
            taken = [self.take(value.items, k, sole) for k in value.items]
            self._path.pop()
            if value.kind == "dict":
                taken = dict(zip(value.names, taken, strict=True))
        return taken if value.note is None else put_together(value.note, taken)

    def _tied(self, box: Box, sole: bool, refs: int) -> Array:
        """The one array of all places of a tied box, which nobody but these places may hold."""
        found = self._taken.get(id(box))
        if found is None:
            if sole and self._counts is None:
                self._counts = {}
                _count_ties(*self._root, self._counts, self._path)
            count = (self._counts or {}).get(id(box), -1)
            found = _take_array(box, sole and refs == SOLE - 1 + count)
            self._taken[id(box)] = found
        return found


def _count_ties(
    items: dict[str, Value], key: str, sole: bool, counts: dict[int, int], path: Sequence[int]
) -> None:
    """Count the places of the tied boxes below ``items[key]``."""
    refs = references(items, key)
    value = items[key]
    if isinstance(value, Box):
        counts[id(value)] = counts.get(id(value), 0) + sole
    elif sole and (refs == SOLE or id(value) in path):
        for inner in value.items:
            _count_ties(value.items, inner, sole, counts, path)


def _take_array(box: Box, sole: bool) -> Array:
    if sole and box_held_alone(box):
        array: Array = box.value
        if owns_memory(array):
            box.value = None
            if array.base is not None:
                array.base.setflags(write=True)
            array.setflags(write=True)
            return array
    return BUFFERS.copy(box.value)


def reclaim(items: dict[str, Value], key: str, sole: bool = True) -> None:
    """Keep the memory of arrays under ``items[key]`` that nobody else holds, for later copies.

    They are emptied; ``sole`` says whether ``items`` has no other holder.
    """
    sole = sole and held_alone(items, key)
    value = items[key]
    if isinstance(value, Tree):
        for name in value.items:
            reclaim(value.items, name, sole)
        return
    if not sole or value.kind != "array" or not BUFFERS.wants(value.value.nbytes):
        return
    if box_held_alone(value) and owns_memory(value.value):
        array, value.value = value.value, None
        BUFFERS.give(array if array.flags.owndata else array.base)
