"""What a blob can be.  The only way into a workspace.

A blob is a value that is replaced, never silently changed.  numpy does not give that for free; here
it is made true:

- ``adopt`` takes what a task returned.  Arrays become plain, C-contiguous and read-only.  An array
  is frozen in place only if nobody else holds it or its memory (reference counts, calibrated when
  this module is imported); otherwise it is copied.
- ``plain`` gives tasks read-only *views*, never the stored array, so that neither ``resize`` nor
  the flag of the owner can be reached by accident.
- ``take`` gives a task that updates a blob writable arrays, private to it: the stored ones if the
  value has no other holder (a second name, a snapshot, a view somebody kept), else copies.

Kinds are kept, since they decide the next dtype and the order of sums: a Python float, a numpy
scalar and a 0-d array are three things.  A dict or list is a ``Tree`` of leaves; tuples become
lists, so that a running and a resumed job see the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from jobrun.buffers import Buffers, copy_array
from jobrun.errors import ValueRefusedError
from jobrun.names import is_name
from jobrun.plain_dtype import plain_dtype

__all__ = [
    "SCALAR_KINDS",
    "Box",
    "Tree",
    "Value",
    "adopt",
    "adopt_items",
    "checksum",
    "copy_array",
    "held_alone",
    "is_locked",
    "leaves",
    "lend",
    "one_element",
    "plain",
    "reclaim",
    "take",
]

Array = npt.NDArray[Any]

SCALAR_KINDS: Final = frozenset({"scalar", "bool", "int", "float", "str", "none"})
"""Kinds of leaves that are no arrays and can be saved."""

_PYTHON_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    float: "float",
    str: "str",
    type(None): "none",
}
_PLAIN_SUBCLASSES: Final = (np.memmap, np.matrix, np.recarray, np.char.chararray)
_DEEPEST: Final = 64


class Box:
    """A stored value that is no container.

    ``kind`` is ``array`` (an exact, C-contiguous, read-only ndarray), ``scalar`` (a numpy scalar),
    ``bool``, ``int``, ``float``, ``str``, ``none``, or ``opaque`` (anything else; never saved).
    ``version`` is the id of the checkpoint that first wrote the value, -1 if none has yet: it is
    set by the writer once that checkpoint is durable.  One object under two names shares a box.
    ``seen`` is what ``--check`` last found the content to be, None if it never looked.
    """

    __slots__ = ("kind", "seen", "value", "version")

    def __init__(self, value: Any, kind: str, version: int = -1) -> None:
        self.value = value
        self.kind = kind
        self.version = version
        self.seen: int | None = None

    def __repr__(self) -> str:
        return f"Box({self.value!r}, {self.kind!r}, version={self.version})"


class Tree:
    """A stored dict or list (``kind``): ``items`` in key order, a list under ``"0"``, ``"1"``, ….

    A tree in a workspace is never changed; a new leaf makes a new tree.
    """

    __slots__ = ("items", "kind")

    def __init__(self, kind: str, items: dict[str, Box | Tree]) -> None:
        self.kind = kind
        self.items = items

    def __repr__(self) -> str:
        return f"Tree({self.kind!r}, {self.items!r})"


Value = Box | Tree


BUFFERS: Final = Buffers()

# Who holds an object.


def _refs(container: Any, key: Any) -> int:
    """References to ``container[key]``; the object must not be bound to a name of the caller."""
    return sys.getrefcount(container[key])


def held_alone(container: Any, key: Any) -> bool:
    """Whether nobody but ``container`` holds ``container[key]``."""
    return _refs(container, key) == _SOLE


def _box_refs(box: Box) -> int:
    return sys.getrefcount(box.value)


def _base_refs(array: Array) -> int:
    return sys.getrefcount(array.base)


def _calibrate() -> tuple[int, int, int]:
    """What the three counts are for an object that nobody else holds.

    They differ between interpreters.  Where counting does not tell one holder from two, -1 is
    given, which no count equals: then everything is copied.
    """
    cell = [np.empty(1)]
    box = Box(np.empty(1), "array")
    view = np.empty((2, 1)).reshape(2)
    sole = (_refs(cell, 0), _box_refs(box), _base_refs(view))
    held = (cell[0], box.value, view.base)
    shared = (_refs(cell, 0), _box_refs(box), _base_refs(view))
    if all(b == a + 1 for a, b in zip(sole, shared, strict=True)) and held:
        return sole
    return (-1, -1, -1)


_SOLE, _SOLE_IN_BOX, _SOLE_BASE = _calibrate()


def _owns(array: Array) -> bool:
    """Whether freezing ``array`` freezes its memory: nobody else can reach it."""
    if array.flags.owndata:
        return True
    return (
        type(array.base) is np.ndarray
        and array.base.flags.owndata
        and _base_refs(array) == _SOLE_BASE
    )


def _wasteful(array: Array) -> bool:
    """Whether ``array`` is a small part of what it would keep in memory."""
    return isinstance(array.base, np.ndarray) and array.base.nbytes > 2 * array.nbytes


# Into the workspace.


class _Adoption:
    """One call of ``adopt``: the values that its objects may be views of, and what was seen."""

    __slots__ = ("_known", "given", "keep_maps", "seen")

    def __init__(self, given: Sequence[Value], keep_maps: bool) -> None:
        self.given = given
        self.keep_maps = keep_maps
        self._known: dict[tuple[Any, ...], Box] | None = None
        # The object is kept beside its value, so that its id stays its own.
        self.seen: dict[int, tuple[object, Value]] = {}

    def adopt(self, container: Any, key: Any, sole: bool, depth: int) -> Value:
        """Adopt ``container[key]``; ``sole`` says whether the way to it is held by us alone."""
        sole = sole and _refs(container, key) == _SOLE
        obj = container[key]
        kind = type(obj)
        if kind is np.ndarray:
            return self._array(obj, sole)
        python_kind = _PYTHON_KINDS.get(kind)
        if python_kind is not None:
            return Box(obj, python_kind)
        if kind is int:
            return Box(_checked_int(obj), "int")
        if isinstance(obj, np.generic):
            return _numpy_scalar(obj)
        if kind is dict or kind is list or kind is tuple:
            return self._container(obj, sole, depth)
        if isinstance(obj, np.ndarray):
            return self._subclass(obj)
        return self._once(obj, lambda: Box(obj, "opaque"))

    def _once(self, obj: Any, make: Any) -> Value:
        """One object under two names shares a box."""
        found = self.seen.get(id(obj))
        if found is None:
            found = self.seen[id(obj)] = (obj, make())
        return found[1]

    def _array(self, array: Array, sole: bool) -> Value:
        dtype = array.dtype
        if dtype.hasobject:
            return self._once(array, lambda: Box(array, "opaque"))
        if not (sole and _owns(array)):
            return self._held_array(array)
        if dtype.isbuiltin != 1 or dtype.metadata is not None:
            array = plain_dtype(array)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned) or _wasteful(array):
            array = copy_array(array)
        return Box(_freeze(array), "array")

    def _held_array(self, array: Array) -> Value:
        """An array whose memory somebody else holds: a box we know, or a copy."""
        if self.given and not array.flags.writeable:
            if self._known is None:
                self._known = {_place(box.value): box for box in self._shareable()}
            box = self._known.get(_place(array))
            if box is not None:
                # The memory is shared and the box is not: its version is that of its own name.
                known = box.value
                return self._once(known, lambda: Box(known, "array"))
        return self._once(array, lambda: Box(_freeze(copy_array(plain_dtype(array))), "array"))

    def _shareable(self) -> Iterator[Box]:
        """The given arrays that a second blob may share.

        Not a memory map, but in ``setup``: what a file holds may change, a blob may not.
        """
        for value in self.given:
            for _, box in leaves(value):
                if box.kind == "array" and box.value is not None:
                    base = box.value.base
                    if base is None or type(base) is np.ndarray or self.keep_maps:
                        yield box

    def _subclass(self, array: Array) -> Value:
        if isinstance(array, np.ma.MaskedArray):
            raise ValueRefusedError(
                "a masked array cannot be a blob",
                hint="return array.filled(value), or data and mask as two blobs",
            )
        if not isinstance(array, _PLAIN_SUBCLASSES) or array.dtype.hasobject:
            return self._once(array, lambda: Box(array, "opaque"))
        if self.keep_maps and isinstance(array, np.memmap) and _constant_map(array):
            return self._once(array, lambda: Box(np.asarray(array), "array"))
        return self._once(
            array, lambda: Box(_freeze(copy_array(plain_dtype(np.asarray(array)))), "array")
        )

    def _container(self, obj: Any, sole: bool, depth: int) -> Value:
        if depth > _DEEPEST:
            raise ValueRefusedError(
                f"a value nested more than {_DEEPEST} levels deep (or in itself) cannot be a blob"
            )
        if type(obj) is not dict:
            return Tree(
                "list", {str(i): self.adopt(obj, i, sole, depth + 1) for i in range(len(obj))}
            )
        if not all(type(k) is str and is_name(k) for k in obj):
            return self._once(obj, lambda: Box(obj, "opaque"))
        return Tree("dict", {k: self.adopt(obj, k, sole, depth + 1) for k in obj})


def adopt(cell: list[Any], given: Sequence[Value] = (), keep_maps: bool = False) -> Value:
    """Take the only element of ``cell`` as a value for the workspace.

    The object is handed over in a list so that its holders can be counted.  ``given`` holds the
    values whose views the task was given: an input that is returned shares its box.
    ``keep_maps`` leaves read-only memory maps as they are (for ``setup``, which is never saved).
    Raises ValueRefusedError for masked arrays, integers beyond 64 bits, and endless nesting; what
    only cannot be *saved* becomes opaque, see ``jobrun.storable``.
    """
    value = _Adoption(given, keep_maps).adopt(cell, 0, True, 0)
    cell.clear()
    return value


def adopt_items(
    cell: list[Any], keys: Sequence[Any], given: Sequence[Value] = (), keep_maps: bool = False
) -> list[Value]:
    """Take the items ``keys`` of the only element of ``cell``, a dict or tuple; see ``adopt``."""
    adoption = _Adoption(given, keep_maps)
    sole = held_alone(cell, 0)
    values = [adoption.adopt(cell[0], key, sole, 0) for key in keys]
    cell.clear()
    return values


def _freeze(array: Array) -> Array:
    if array.base is not None and isinstance(array.base, np.ndarray):
        array.base.setflags(write=False)
    array.setflags(write=False)
    return array


def _place(array: Array) -> tuple[Any, ...]:
    """What two arrays have in common that are views of the same elements."""
    return (array.ctypes.data, array.shape, array.strides, array.dtype)


def _constant_map(array: Array) -> bool:
    return not array.flags.writeable and array.flags.c_contiguous


def _checked_int(value: int) -> int:
    if -(1 << 63) <= value < (1 << 64):
        return value
    raise ValueRefusedError(
        f"an integer of {value.bit_length()} bits cannot be a blob",
        hint="64 bits at most; keep larger ones as text",
    )


def _numpy_scalar(value: np.generic) -> Box:
    if value.dtype.hasobject:
        return Box(value, "opaque")
    if isinstance(value, np.void) and value.dtype.names is not None:
        # A structured scalar is a window into its array, also to np.array(); a copy cuts the tie.
        packed = _freeze(plain_dtype(np.asarray(value).copy()))
        return Box(packed[()], "scalar")
    return Box(value, "scalar")


# Out of the workspace.


def plain(value: Value) -> Any:
    """What a task is given to read: read-only views of arrays, dicts and lists of those."""
    return lend(value, [])


def lend(value: Value, lent: list[Any]) -> Any:
    """Return what ``plain`` returns, and add each dict and list that was made for it to ``lent``.

    Not those that are opaque values: they are the user's own objects.
    """
    if type(value) is Box:
        if value.kind == "array":
            return value.value.view()
        return value.value
    assert isinstance(value, Tree)
    made: Any
    if value.kind == "dict":
        made = {k: lend(v, lent) for k, v in value.items.items()}
    else:
        made = [lend(v, lent) for v in value.items.values()]
    lent.append(made)
    return made


def take(items: dict[str, Value], key: str, sole: bool = True) -> Any:
    """What a task is given to update: writable and private to it.

    ``items[key]`` is the value; ``sole`` says whether ``items`` has no other holder.  Where the
    stored array itself is handed out, its box is emptied, so that nobody can read a half-updated
    value: the caller puts the new value in its place, or ends the run.
    """
    sole = sole and _refs(items, key) == _SOLE
    value = items[key]
    if type(value) is Box:
        return _take_array(value, sole) if value.kind == "array" else value.value
    assert isinstance(value, Tree)
    taken = {k: take(value.items, k, sole) for k in value.items}
    return taken if value.kind == "dict" else list(taken.values())


def _take_array(box: Box, sole: bool) -> Array:
    if sole and _box_refs(box) == _SOLE_IN_BOX:
        array: Array = box.value
        if _owns(array):
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
    if _box_refs(value) == _SOLE_IN_BOX and _owns(value.value):
        array, value.value = value.value, None
        BUFFERS.give(array if array.flags.owndata else array.base)


def leaves(value: Value, path: str = "") -> Iterator[tuple[str, Box]]:
    """Every leaf with its path, in key order."""
    if isinstance(value, Box):
        yield path, value
        return
    for key, item in value.items.items():
        yield from leaves(item, f"{path}/{key}" if path else key)


def one_element(value: Value) -> Any:
    """The value as a Python number, bool or str if it has exactly one element, else None."""
    if isinstance(value, Tree) or value.kind in ("none", "opaque"):
        return None
    if value.kind == "array" or value.kind == "scalar":
        return value.value.item() if value.value.size == 1 else None
    return value.value


def checksum(box: Box) -> int:
    """Return a crc32c over dtype, shape and elements of an array, 0 for any other kind."""
    if box.kind != "array":
        return 0
    array = box.value
    crc = crc32c.crc32c(f"{array.dtype.str} {array.shape}".encode())
    if array.size == 0 or array.dtype.itemsize == 0:
        return crc
    return crc32c.crc32c(array.reshape(-1).view(np.uint8).data, crc)


def is_locked(value: Value) -> bool:
    """Return whether all arrays of ``value`` are read-only, as ``adopt`` left them."""
    if isinstance(value, Box):
        return value.kind != "array" or not value.value.flags.writeable
    for item in value.items.values():  # this loop without a call a leaf: it runs after each task
        if type(item) is Box:
            if item.kind == "array" and item.value.flags.writeable:
                return False
        elif not is_locked(item):
            return False
    return True
