"""The stored form of blobs: boxes, which hold one value each, and trees of boxes.

Kinds are kept, since they decide the next dtype and the order of sums: a Python float, a numpy
scalar and a 0-d array are three things.  A dict, list or tuple is a ``Tree`` of leaves.  What an
adapter takes apart (``jobrun.values.adapters``) is stored in its plain form, and each task is given
an object that is assembled for it, so that a running and a resumed job see the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core import crc32c
from jobrun.core.tree_keys import Key
from jobrun.values.adapted import is_number
from jobrun.values.adapters.base import Note

__all__ = [
    "Box",
    "Tree",
    "Value",
    "all_locked",
    "checksum",
    "leaves",
    "one_element",
]

Array = npt.NDArray[Any]


class Box:
    """A stored value that is not a container.

    ``kind`` is ``array`` (an exact, C-contiguous, read-only ndarray), ``scalar`` (a numpy scalar),
    ``bool``, ``int``, ``float``, ``str``, ``none``, ``opaque`` (anything else; never saved), or
    ``live`` (an object that ``state`` names, of which the state is saved).
    ``version`` is the id of the checkpoint that first wrote the value, -1 if none has yet: it is
    set by the writer once that checkpoint is durable.  One object at two places of a tree shares a
    box; under two names of separate blobs it shares memory alone, since these are never tied.
    ``last_checksum`` is that of the last ``--check``, or None.  ``tied``:
    the box may stand at several places of one tree, which then are one array, also for an update.
    ``note`` names the adapter that makes the object for tasks from it, None without adapter.
    """

    __slots__ = ("kind", "last_checksum", "note", "tied", "value", "version")

    def __init__(self, value: Any, kind: str, version: int = -1) -> None:
        self.value = value
        self.kind = kind
        self.version = version
        self.note: Note | None = None
        self.last_checksum: int | None = None
        self.tied = False

    def unsaved(self, value: Any) -> Box:
        """Return a box of the same kind and note for ``value``, which no checkpoint holds."""
        box = Box(value, self.kind)
        box.note = self.note
        return box

    def __repr__(self) -> str:
        return f"Box({self.value!r}, {self.kind!r}, version={self.version})"


class Tree:
    """A stored dict or list (``kind``): ``items`` in key order, a list under ``"0"``, ``"1"``, ….

    A tree in a workspace is never changed; a new leaf makes a new tree.  ``keys`` are the keys of
    the dict if they differ from the names of ``items``, which then are names of folders.  ``note``
    names the adapter that makes the object for tasks from it, None for a plain dict or list.
    ``tied``: the tree may stand at several places of a larger one, which then are one object.
    ``whole``: all items are arrays of numbers that own their memory (``jobrun.values.own_arrays``).
    """

    __slots__ = ("items", "keys", "kind", "note", "tied", "whole")

    def __init__(
        self,
        kind: str,
        items: dict[str, Box | Tree],
        keys: tuple[Key, ...] | None = None,
        note: Note | None = None,
    ) -> None:
        self.kind = kind
        self.items = items
        self.keys = keys
        self.note = note
        self.tied = False
        self.whole = False

    @property
    def names(self) -> Iterable[Key]:
        """The keys of the dict, or the names of the items of a list, in order."""
        return self.items if self.keys is None else self.keys

    def replaced(self, items: dict[str, Box | Tree]) -> Tree:
        """Return the same tree with other items under the same names."""
        return Tree(self.kind, items, self.keys, self.note)

    def __repr__(self) -> str:
        return f"Tree({self.kind!r}, {self.items!r})"


Value = Box | Tree


def leaves(value: Value, path: str = "") -> Iterator[tuple[str, Box]]:
    """Yield every leaf with its path, in key order."""
    if isinstance(value, Box):
        yield path, value
        return
    for key, item in value.items.items():
        yield from leaves(item, f"{path}/{key}" if path else key)


def one_element(value: Value) -> Any:
    """Return the value as a Python number, bool or str if it has exactly one element, else None.

    Dates and times have none: ``item()`` of some units is a number, of others an object.
    """
    if isinstance(value, Tree) or value.kind in ("none", "opaque", "live"):
        return None
    if value.note is not None and not is_number(value.note):
        return None
    if value.kind == "array" or value.kind == "scalar":
        is_one = value.value.size == 1 and value.value.dtype.kind not in "mM"
        return value.value.item() if is_one else None
    return value.value


def checksum(value: Value) -> int:
    """Return a crc32c over dtype, shape and elements of all arrays of ``value``; 0 without any."""
    crc = 0
    for _, box in leaves(value):
        if box.kind == "array":
            array = box.value
            crc = crc32c.crc32c(f"{array.dtype.str} {array.shape}".encode(), crc)
            if array.size and array.dtype.itemsize:
                crc = crc32c.crc32c(array.reshape(-1).view(np.uint8).data, crc)
    return crc


def all_locked(values: Iterable[Value]) -> bool:
    """Return whether all arrays of ``values`` are read-only, as ``adopt`` left them."""
    for value in values:  # this loop without a call a leaf: it runs after each task
        if type(value) is Box:
            if value.kind == "array" and value.value.flags.writeable:
                return False
        elif type(value) is Tree and not all_locked(value.items.values()):
            return False
    return True
