"""Values for tasks to update: writable arrays, private to the task.

The stored arrays if the value has no other holder (a second name, a snapshot, a kept view), else
copies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from jobrun.values.adapted import put_together
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.buffers import BUFFERS
from jobrun.values.holders import SOLE, box_held_alone, held_alone, owns_memory, references
from jobrun.values.own_arrays import lend_own

__all__ = ["borrow", "reclaim"]

Array = npt.NDArray[Any]


def borrow(items: dict[str, Value], key: str, sole: bool = True) -> Any:
    """Return a value for a task to update: writable, private, what is tied as one object.

    ``items[key]`` is the value; ``sole`` says whether ``items`` has no other holder.  If the
    stored array itself is returned, its box is emptied, so that a half-updated value cannot be
    read: the caller puts the new value in its place, or ends the run.
    """
    return _Borrowing(items, key, sole).borrow(items, key, sole)


class _Borrowing:
    """The state of one call of ``borrow``: what was tied and returned so far, and its holders."""

    __slots__ = ("_borrowed", "_counts", "_objects", "_path", "_root")

    def __init__(self, items: dict[str, Value], key: str, sole: bool) -> None:
        self._root = (items, key, sole)
        self._counts: dict[int, int] | None = None
        # The trees that are being handed out now; these frames hold them too.
        self._path: list[int] = []
        self._borrowed: dict[int, Array] = {}
        self._objects: dict[int, Any] = {}

    def borrow(self, items: dict[str, Value], key: str, sole: bool) -> Any:
        """Return ``items[key]``; ``sole``: all trees on the way to it have one holder."""
        refs = references(items, key)
        value = items[key]
        if value.tied and id(value) in self._objects:
            return self._objects[id(value)]
        lent: Any
        if type(value) is Box:
            if value.kind != "array":
                lent = value.value
            elif value.tied:
                lent = self._tied(value, sole, refs)
            else:
                lent = _borrow_array(value, sole and refs == SOLE)
        else:
            assert isinstance(value, Tree)
            sole = sole and refs == SOLE
            lent = lend_own(value) if sole else None
            if lent is None:
                lent = self._items(value, sole)
        if value.note is not None:
            lent = put_together(value.note, lent)
        if value.tied:
            self._objects[id(value)] = lent
        return lent

    def _items(self, tree: Tree, sole: bool) -> dict[Any, Any] | list[Any]:
        """Return what a tree holds, item by item."""
        self._path.append(id(tree))
        lent = [
            self.borrow(tree.items, k, sole) if own is None else own
            for k in tree.items
            for own in [_own_array(tree.items, k) if sole else None]
        ]
        self._path.pop()
        return lent if tree.kind == "list" else dict(zip(tree.names, lent, strict=True))

    def _tied(self, box: Box, sole: bool, refs: int) -> Array:
        """Return the one array of all places of a tied box, copied if anything else holds it."""
        found = self._borrowed.get(id(box))
        if found is None:
            if sole and self._counts is None:
                self._counts = {}
                _count_ties(*self._root, self._counts, self._path)
            count = (self._counts or {}).get(id(box), -1)
            found = _borrow_array(box, sole and refs == SOLE - 1 + count)
            self._borrowed[id(box)] = found
        return found


def _own_array(items: dict[str, Value], key: str) -> Array | None:
    """Return the stored array of ``items[key]``, made writable; None where more is to be decided.

    ``items`` has no other holder.  This is what ``borrow`` does with an array that has none either
    and is not tied: half the time, for a tree of hundreds.
    """
    if sys.getrefcount(items[key]) != SOLE:
        return None
    box = items[key]
    if type(box) is not Box or box.kind != "array" or box.tied or box.note is not None:
        return None
    if not box_held_alone(box):
        return None
    array: Array = box.value
    if not array.flags.owndata or array.base is not None:
        return None
    box.value = None
    array.setflags(write=True)
    return array


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


def _borrow_array(box: Box, sole: bool) -> Array:
    if sole and box_held_alone(box):
        array: Array = box.value
        if owns_memory(array):
            box.value = None
            if array.base is not None:
                array.base.setflags(write=True)
            array.setflags(write=True)
            return array
    return BUFFERS.copy(box.value)


def reclaim(items: dict[str, Value], key: str) -> None:
    """Keep the memory of arrays under ``items[key]`` without another holder, for later copies.

    Their boxes are emptied, and so are trees without another holder, so that of a tied array only
    the last place counts.  ``items`` must have no other holder.
    """
    sole = held_alone(items, key)
    value = items[key]
    if isinstance(value, Tree):
        for name in [*value.items] if sole else ():
            reclaim(value.items, name)
            del value.items[name]
        return
    if not sole or value.kind != "array" or not BUFFERS.wants(value.value.nbytes):
        return
    if box_held_alone(value) and owns_memory(value.value):
        array, value.value = value.value, None
        BUFFERS.give(array if array.flags.owndata else array.base)
