"""What a blob can be.  The only way into a workspace.

A blob is a value that is replaced, never silently changed.  numpy does not give that for free; here
it is made true:

- ``adopt`` takes what a task returned.  Arrays become plain, C-contiguous and read-only.  An array
  is frozen in place only if nobody else holds it or its memory (reference counts, calibrated when
  this module is imported); otherwise it is copied.
- ``view`` gives tasks read-only *views*, never the stored array, so that neither ``resize`` nor
  the flag of the owner can be reached by accident.
- ``borrow`` gives a task that updates a blob writable arrays, private to it: the stored ones if the
  value has no other holder (a second name, a snapshot, a view somebody kept), else copies.

Kinds are kept, since they decide the next dtype and the order of sums: a Python float, a numpy
scalar and a 0-d array are three things.  A dict or list is a ``Tree`` of leaves; tuples become
lists, so that a running and a resumed job see the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import crc32c
import numpy as np
import numpy.typing as npt

from jobrun.core.names import is_name
from jobrun.core.tree_keys import Key
from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.base import Note
from jobrun.values.buffers import Buffers, copy_array
from jobrun.values.dtypes import plain_dtype

__all__ = [
    "SCALAR_KINDS",
    "Box",
    "Tree",
    "Value",
    "adopt",
    "adopt_items",
    "borrow",
    "checksum",
    "copy_array",
    "held_alone",
    "is_locked",
    "leaves",
    "lend",
    "one_element",
    "overlapping",
    "reclaim",
    "view",
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
_MOST_WORK: Final = 10_000
"""Steps after which two arrays that may overlap are taken to do so."""


class Box:
    """A stored value that is no container.

    ``kind`` is ``array`` (an exact, C-contiguous, read-only ndarray), ``scalar`` (a numpy scalar),
    ``bool``, ``int``, ``float``, ``str``, ``none``, or ``opaque`` (anything else; never saved).
    ``version`` is the id of the checkpoint that first wrote the value, -1 if none has yet: it is
    set by the writer once that checkpoint is durable.  One object at two places of a tree shares a
    box; under two names of separate blobs it shares memory alone, since these are never tied.
    ``seen`` is what ``--check`` last found the content to be, None if it never looked.  ``tied``:
    the box may stand at several places of one tree, which then are one array, also for an update.
    ``note`` names the adapter that makes of it what a task is given, None if it is that itself.
    """

    __slots__ = ("kind", "note", "seen", "tied", "value", "version")

    def __init__(self, value: Any, kind: str, version: int = -1) -> None:
        self.value = value
        self.kind = kind
        self.version = version
        self.note: Note | None = None
        self.seen: int | None = None
        self.tied = False

    def __repr__(self) -> str:
        return f"Box({self.value!r}, {self.kind!r}, version={self.version})"


class Tree:
    """A stored dict or list (``kind``): ``items`` in key order, a list under ``"0"``, ``"1"``, ….

    A tree in a workspace is never changed; a new leaf makes a new tree.  ``keys`` are the keys of
    the dict where they are not the names of ``items``, which then are those of folders.  ``note``
    names the adapter that makes of it what a task is given, None if it is a dict or list itself.
    """

    __slots__ = ("items", "keys", "kind", "note")

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
    """One call of ``adopt``: the values that its objects may be views of, and what was seen.

    Within one tree (``begin``), arrays that are one in memory become one box: they are *tied*.  Of
    writable arrays, which are the task's own, the memory decides; of read-only ones the object,
    since separate blobs may share memory in a run that a resumed one has twice.
    """

    __slots__ = ("_copies", "_counts", "_known", "_path", "_tied", "given", "keep_maps", "seen")

    def __init__(self, given: Sequence[Value], keep_maps: bool) -> None:
        self.given = given
        self.keep_maps = keep_maps
        self._known: dict[tuple[Any, ...], Box] | None = None
        # The object is kept beside its value, so that its id, or its memory, stays its own.
        self.seen: dict[int, tuple[object, Value]] = {}
        self._copies: dict[tuple[Any, ...], tuple[Array, Array]] = {}
        self._tied: dict[Any, tuple[Array, Box]] = {}
        self._counts: dict[int, int] | None = None
        # The containers that are being adopted now; these frames hold them too.
        self._path: list[int] = []

    def begin(self, container: Any, key: Any, sole: bool, updated: str = "") -> Value:
        """Adopt ``container[key]``, a tree of its own; see ``adopt`` for ``updated``."""
        self._tied = {}
        self._counts = None
        value = self.adopt(container, key, sole, 0, (container, key, sole))
        if updated and len(self._tied) > 1:
            self._refuse_overlaps(value, updated)
        return value

    def adopt(self, container: Any, key: Any, sole: bool, depth: int, root: Any) -> Value:
        """Adopt ``container[key]``; ``sole`` says whether the way to it is held by us alone."""
        refs = _refs(container, key)
        obj = container[key]
        kind = type(obj)
        if kind is np.ndarray:
            return self._array(obj, sole, refs, root)
        python_kind = _PYTHON_KINDS.get(kind)
        if python_kind is not None:
            return Box(obj, python_kind)
        if kind is int:
            return Box(_checked_int(obj), "int")
        if isinstance(obj, np.generic):
            return _numpy_scalar(obj)
        if kind is dict or kind is list or kind is tuple:
            return self._container(obj, sole and refs == _SOLE, depth, root)
        if isinstance(obj, np.ndarray):
            return self._subclass(obj)
        return self._once(obj, lambda: Box(obj, "opaque"))

    def _once(self, obj: Any, make: Any) -> Value:
        """One object under two names shares a box."""
        found = self.seen.get(id(obj))
        if found is None:
            found = self.seen[id(obj)] = (obj, make())
        return found[1]

    def _array(self, array: Array, sole: bool, refs: int, root: Any) -> Value:
        dtype = array.dtype
        if dtype.hasobject:
            return self._once(array, lambda: Box(array, "opaque"))
        if refs != _SOLE:
            tied = self._find_tied(array)
            if tied is not None:
                return tied
            sole = sole and refs == _SOLE - 1 + self._count(root).get(id(array), -1)
        if not (sole and _owns(array)):
            return self._held_array(array)
        own = plain_dtype(array) if dtype.isbuiltin != 1 or dtype.metadata is not None else array
        flags = own.flags
        if not (flags.c_contiguous and flags.aligned) or _wasteful(own):
            own = copy_array(own)
        if refs == _SOLE:
            return Box(_freeze(own), "array")
        return self._tie(array, lambda: _freeze(own))

    def _count(self, root: Any) -> dict[int, int]:
        """How often each array stands in the containers of a tree that nobody else holds."""
        if self._counts is None:
            self._counts = {}
            container, key, sole = root
            _count_arrays(container, key, sole, self._counts, self._path)
        return self._counts

    def _held_array(self, array: Array, store: Callable[[], Array] | None = None) -> Value:
        """An array whose memory somebody else holds: a box we know, or one of what is stored."""
        return self._find_tied(array) or self._tie(array, store or (lambda: self._stored(array)))

    def _find_tied(self, array: Array) -> Box | None:
        """The box of an array of this tree that is one with ``array``."""
        found = self._tied.get(id(array))
        if found is None and array.flags.writeable:
            found = self._tied.get(_place(array))
        if found is None:
            return None
        found[1].tied = True
        return found[1]

    def _tie(self, array: Array, store: Callable[[], Array]) -> Box:
        """A box for an array that may stand at other places of the tree too."""
        place = _place(array) if array.flags.writeable else None
        box = Box(store(), "array")
        if array.nbytes:
            self._tied[id(array)] = (array, box)
            if place is not None:
                self._tied[place] = (array, box)
        return box

    def _stored(self, array: Array) -> Array:
        """Memory of the workspace with the elements of an array: known, copied before, or new."""
        place = _place(array)
        if self.given and not array.flags.writeable:
            if self._known is None:
                self._known = {_place(box.value): box for box in self._shareable()}
            known = self._known.get(place)
            if known is not None:
                # The memory is shared and the box is not: its version is that of its own name.
                stored: Array = known.value
                return stored
        copied = self._copies.get(place)
        if copied is None:
            copied = self._copies[place] = (array, _freeze(copy_array(plain_dtype(array))))
        return copied[1]

    def _refuse_overlaps(self, value: Value, name: str) -> None:
        """Raise ValueRefusedError if writable arrays of a tree share memory without being one."""
        held = [pair for place, pair in self._tied.items() if isinstance(place, tuple)]
        pair = overlapping([array for array, _ in held])
        if pair is None:
            return
        paths = {id(box): path for path, box in reversed(list(leaves(value, name)))}
        a, b = (paths[id(held[number][1])] for number in pair)
        raise ValueRefusedError(
            f"{a!r} and {b!r} overlap in memory, and {name!r} is updated in place: a change of one "
            "would not be seen in the other",
            hint="make one of them a copy (x.copy()), or keep the whole array and slice it",
        )

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
            return self._held_array(array, lambda: np.asarray(array))
        return self._held_array(array, lambda: _freeze(copy_array(plain_dtype(np.asarray(array)))))

    def _container(self, obj: Any, sole: bool, depth: int, root: Any) -> Value:
        if depth > _DEEPEST:
            raise ValueRefusedError(
                f"a value nested more than {_DEEPEST} levels deep (or in itself) cannot be a blob"
            )
        is_dict = type(obj) is dict
        if is_dict and not all(type(k) is str and is_name(k) for k in obj):
            return self._once(obj, lambda: Box(obj, "opaque"))
        keys = obj if is_dict else range(len(obj))
        self._path.append(id(obj))
        items = {str(k): self.adopt(obj, k, sole, depth + 1, root) for k in keys}
        self._path.pop()
        return Tree("dict" if is_dict else "list", items)


def _count_arrays(
    container: Any, key: Any, sole: bool, counts: dict[int, int], path: Sequence[int]
) -> None:
    """Count the places of arrays below ``container[key]``; below one somebody else holds, none.

    ``path`` are the ids of containers that are known to be held by nobody else.
    """
    refs = _refs(container, key)
    obj = container[key]
    if type(obj) is np.ndarray:
        counts[id(obj)] = counts.get(id(obj), 0) + sole
    elif type(obj) in (dict, list, tuple) and sole and (refs == _SOLE or id(obj) in path):
        for inner in obj if type(obj) is dict else range(len(obj)):
            _count_arrays(obj, inner, sole, counts, path)


def overlapping(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """Return the places of the first two arrays that share an element in memory, or None."""
    bounds = [np.lib.array_utils.byte_bounds(array) for array in arrays]
    order = sorted(range(len(arrays)), key=lambda number: bounds[number])
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            if bounds[b][0] >= bounds[a][1]:
                break
            if _shares_elements(arrays[a], arrays[b]):
                return min(a, b), max(a, b)
    return None


def _shares_elements(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def adopt(
    cell: list[Any], given: Sequence[Value] = (), keep_maps: bool = False, updated: str = ""
) -> Value:
    """Take the only element of ``cell`` as a value for the workspace.

    The object is handed over in a list so that its holders can be counted.  ``given`` holds the
    values whose views the task was given: an input that is returned shares its memory.
    ``keep_maps`` leaves read-only memory maps as they are (for ``setup``, which is never saved).
    ``updated`` is the name of the blob if a task updates it in place: then arrays of a tree that
    overlap, but are not one, are refused.
    Raises ValueRefusedError for masked arrays, integers beyond 64 bits, and endless nesting; what
    only cannot be *saved* becomes opaque, see ``jobrun.values.storable``.
    """
    value = _Adoption(given, keep_maps).begin(cell, 0, True, updated)
    cell.clear()
    return value


def adopt_items(
    cell: list[Any],
    keys: Sequence[Any],
    given: Sequence[Value] = (),
    keep_maps: bool = False,
    updated: Sequence[str] = (),
) -> list[Value]:
    """Take the items ``keys`` of the only element of ``cell``, a dict or tuple; see ``adopt``.

    ``updated`` has a name, or an empty text, for each.
    """
    adoption = _Adoption(given, keep_maps)
    sole = held_alone(cell, 0)
    names = updated or [""] * len(keys)
    pairs = zip(keys, names, strict=True)
    values = [adoption.begin(cell[0], key, sole, name) for key, name in pairs]
    cell.clear()
    return values


def _freeze(array: Array) -> Array:
    if array.base is not None and isinstance(array.base, np.ndarray):
        array.base.setflags(write=False)
    array.setflags(write=False)
    return array


def _place(array: Array) -> tuple[Any, ...]:
    """What two arrays have in common that are views of the same elements."""
    strides = tuple(0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True))
    return (array.__array_interface__["data"][0], array.shape, strides, array.dtype)


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


def view(value: Value) -> Any:
    """What a task is given to read: read-only views of arrays, dicts and lists of those."""
    return lend(value, [])


def lend(value: Value, lent: list[Any]) -> Any:
    """Return what ``view`` returns, and add each dict and list that was made for it to ``lent``.

    Not those that are opaque values: they are the user's own objects.  Tied arrays are one object.
    """
    return _lend(value, lent, {})


def _lend(value: Value, lent: list[Any], tied: dict[int, Any]) -> Any:
    if type(value) is Box:
        if value.kind != "array":
            return value.value
        if value.tied:
            return tied.setdefault(id(value), value.value.view())
        return value.value.view()
    assert isinstance(value, Tree)
    made: Any
    if value.kind == "dict":
        made = {k: _lend(v, lent, tied) for k, v in value.items.items()}
    else:
        made = [_lend(v, lent, tied) for v in value.items.values()]
    lent.append(made)
    return made


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
        refs = _refs(items, key)
        value = items[key]
        if type(value) is Box:
            if value.kind != "array":
                return value.value
            if value.tied:
                return self._tied(value, sole, refs)
            return _take_array(value, sole and refs == _SOLE)
        assert isinstance(value, Tree)
        sole = sole and refs == _SOLE
        self._path.append(id(value))
        taken = {k: self.take(value.items, k, sole) for k in value.items}
        self._path.pop()
        return taken if value.kind == "dict" else list(taken.values())

    def _tied(self, box: Box, sole: bool, refs: int) -> Array:
        """The one array of all places of a tied box, which nobody but these places may hold."""
        found = self._taken.get(id(box))
        if found is None:
            if sole and self._counts is None:
                self._counts = {}
                _count_ties(*self._root, self._counts, self._path)
            count = (self._counts or {}).get(id(box), -1)
            found = _take_array(box, sole and refs == _SOLE - 1 + count)
            self._taken[id(box)] = found
        return found


def _count_ties(
    items: dict[str, Value], key: str, sole: bool, counts: dict[int, int], path: Sequence[int]
) -> None:
    """As ``_count_arrays``, of the tied boxes below ``items[key]``."""
    refs = _refs(items, key)
    value = items[key]
    if isinstance(value, Box):
        counts[id(value)] = counts.get(id(value), 0) + sole
    elif sole and (refs == _SOLE or id(value) in path):
        for inner in value.items:
            _count_ties(value.items, inner, sole, counts, path)


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
