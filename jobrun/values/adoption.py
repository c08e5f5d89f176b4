"""Adoption: the only way into a workspace, from a task's result to boxes and trees.

A blob is a value that is replaced, never silently changed.  numpy does not guarantee that; here it
is enforced: arrays become plain, C-contiguous and read-only.  An array is frozen in place only if
nothing else refers to it or its memory (``jobrun.values.holders``); otherwise it is copied.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jobrun.core.names import are_names
from jobrun.core.tree_keys import folder_names, is_key
from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import INTEGER, TUPLE, take_apart
from jobrun.values.boxes import Box, Tree, Value, leaves
from jobrun.values.buffers import copy_array
from jobrun.values.dtypes import plain_dtype
from jobrun.values.holders import SOLE, held_alone, owns_memory, references
from jobrun.values.overlap import overlapping
from jobrun.values.own_arrays import adopt_own, refill_own
from jobrun.values.shared_memory import Held

__all__ = ["adopt", "adopt_items", "simple"]

Array = npt.NDArray[Any]

_PYTHON_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    float: "float",
    str: "str",
    type(None): "none",
}
_CONTAINERS: Final = frozenset({dict, OrderedDict, list, tuple})
"""Types that become trees; an OrderedDict becomes a dict, which has an order too."""

_PLAIN_SUBCLASSES: Final = frozenset({"memmap", "recarray", "chararray"})
"""Classes of numpy that become plain arrays; by name, since numpy 2.5 warns of the last."""

_WHOLE: Final = 0x1 | 0x4 | 0x100
"""``flags.num`` of an array that is C-contiguous, owns its memory, and is aligned."""

_DEEPEST: Final = 64
_MOST_BITS: Final = 1 << 20


def _wasteful(array: Array) -> bool:
    """Return whether ``array`` is a small part of the memory that it would keep alive."""
    return isinstance(array.base, np.ndarray) and array.base.nbytes > 2 * array.nbytes


def _becomes_plain(array: Array) -> bool:
    """Return whether an array of a subclass becomes a plain array."""
    classes = type(array).__mro__
    return any(
        c.__name__ in _PLAIN_SUBCLASSES and c.__module__.startswith("numpy") for c in classes
    )


class _Adoption:
    """The state of one call of ``adopt``: known arrays, and the objects seen so far.

    Within one tree (``begin``), arrays that are one in memory become one box: they are *tied*.
    Writable arrays, which belong to the task, are compared by memory; read-only ones by identity,
    since separate blobs may share memory in a run that a resumed run has twice.
    """

    __slots__ = (
        "_copies",
        "_copy",
        "_counts",
        "_known",
        "_path",
        "_tied",
        "given",
        "held",
        "keep_maps",
        "live",
        "seen",
    )

    def __init__(
        self,
        given: Sequence[Value],
        keep_maps: bool,
        copy: Callable[[Array], Array] = copy_array,
        live: bool = False,
    ) -> None:
        self.given = given
        self.keep_maps = keep_maps
        self.live = live
        self.held: list[Held] = []
        self._copy = copy
        self._known: dict[tuple[Any, ...], Box] | None = None
        # The object is kept beside its value, so that its id, or its memory, stays its own.
        self.seen: dict[int, tuple[object, Value]] = {}
        self._copies: dict[tuple[Any, ...], tuple[Array, Array]] = {}
        self._tied: dict[Any, tuple[Array, Box]] = {}
        self._counts: dict[int, int] | None = None
        # The containers that are being adopted now; these frames hold them too.
        self._path: list[int] = []

    def begin(
        self, container: Any, key: Any, sole: bool, updated: str = "", old: Value | None = None
    ) -> Value:
        """Adopt ``container[key]`` as a tree of its own; see ``adopt`` for the rest."""
        self._tied = {}
        self._counts = None
        value = self.adopt(container, key, sole, 0, (container, key, sole), old)
        if updated and len(self._tied) > 1:
            self._refuse_overlaps(value, updated)
        return value

    def adopt(
        self,
        container: Any,
        key: Any,
        sole: bool,
        depth: int,
        root: Any,
        old: Value | None = None,
    ) -> Value:
        """Adopt ``container[key]``; ``sole``: all containers on the way to it have one holder."""
        refs = references(container, key)
        obj = container[key]
        kind = type(obj)
        if kind is np.ndarray:
            return self._array(obj, sole, refs, root)
        python_kind = _PYTHON_KINDS.get(kind)
        if python_kind is not None:
            return Box(obj, python_kind)
        if kind is int:
            return _integer(obj)
        if isinstance(obj, np.generic):
            return _numpy_scalar(obj)
        if kind in _CONTAINERS:
            sole = sole and refs == SOLE
            if self.live and kind is not tuple:
                return self._once(obj, lambda: self._container(obj, sole, depth, root))
            return (sole and refill_own(obj, old)) or self._container(obj, sole, depth, root, old)
        if isinstance(obj, np.ndarray):
            return self._subclass(obj)
        return self._once(obj, lambda: self._adapted(obj, depth))

    def _once(self, obj: Any, make: Any) -> Value:
        """Return one value for an object at several places; it, or its arrays, are tied."""
        found = self.seen.get(id(obj))
        if found is None:
            found = self.seen[id(obj)] = (obj, make())
        else:
            if isinstance(found[1], Tree):
                found[1].tied = True
            for _, box in leaves(found[1]):
                box.tied = box.tied or box.kind == "array"
        return found[1]

    def _adapted(self, obj: Any, depth: int) -> Value:
        """Take an object apart by its adapter; it is opaque if there is none, or it cannot."""
        try:
            taken = take_apart(obj)
            if taken is None:
                return Box(obj, "opaque")
            cell, made = [taken[0]], taken[1]
            del taken
            value = self.adopt(cell, 0, True, depth + 1, (cell, 0, True))
        except ValueRefusedError:
            return Box(obj, "opaque")
        if any(box.kind == "opaque" for _, box in leaves(value)):
            return Box(obj, "opaque")
        if value.note is not None and value.note != made and isinstance(value, Box):
            value = Box(value.value, value.kind)  # one array as two objects: they share its memory
        value.note = made
        return value

    def _array(self, array: Array, sole: bool, refs: int, root: Any) -> Value:
        dtype = array.dtype
        if dtype.hasobject:
            if dtype.kind == "T":
                return self._once(array, lambda: self._adapted(array, 0))
            return self._once(array, lambda: Box(array, "opaque"))
        if refs != SOLE:
            tied = self._find_tied(array)
            if tied is not None:
                return tied
            sole = sole and refs == SOLE - 1 + self._count(root).get(id(array), -1)
        if not (sole and owns_memory(array)):
            return self._held_array(array)
        own = plain_dtype(array) if dtype.isbuiltin != 1 or dtype.metadata is not None else array
        flags = own.flags
        if not (flags.c_contiguous and flags.aligned) or _wasteful(own):
            own = copy_array(own)
        if refs == SOLE:
            return Box(_freeze(own), "array")
        return self._tie(array, lambda: _freeze(own))

    def _count(self, root: Any) -> dict[int, int]:
        """Return how often each array occurs in the containers of a tree without another holder."""
        if self._counts is None:
            self._counts = {}
            container, key, sole = root
            _count_arrays(container, key, sole, self._counts, self._path)
        return self._counts

    def _held_array(self, array: Array, store: Callable[[], Array] | None = None) -> Value:
        """Return a box for an array whose memory has another holder: a known one, or a new one."""
        box = self._find_tied(array)
        if box is None:
            box = self._tie(array, store or (lambda: self._stored(array)))
            if self.live and array.nbytes:
                self.held.append(Held(array, box))
        return box

    def _find_tied(self, array: Array) -> Box | None:
        """Return the box of an array of this tree that is the same as ``array``, or None."""
        found = self._tied.get(id(array))
        if found is None and array.flags.writeable:
            found = self._tied.get(_place(array))
        if found is None:
            return None
        found[1].tied = True
        return found[1]

    def _tie(self, array: Array, store: Callable[[], Array]) -> Box:
        """Return a box for an array that may occur at other places of the tree too."""
        place = _place(array) if array.flags.writeable else None
        box = Box(store(), "array")
        if array.nbytes:
            self._tied[id(array)] = (array, box)
            if place is not None:
                self._tied[place] = (array, box)
        return box

    def _stored(self, array: Array) -> Array:
        """Return stored memory with the elements of an array: known, copied before, or new."""
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
            copied = self._copies[place] = (array, _freeze(self._copy(plain_dtype(array))))
        return copied[1]

    def _refuse_overlaps(self, value: Value, name: str) -> None:
        """Raise ValueRefusedError if writable arrays of a tree overlap without being equal."""
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
        """Yield the given arrays that a second blob may share.

        Memory maps only in ``setup``: the content of a file may change, a blob may not.
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
        if isinstance(array, np.matrix):
            raise ValueRefusedError(
                "a numpy.matrix cannot be a blob: as an array its * would be another product",
                hint="return np.asarray(matrix), and write @ for the product of matrices",
            )
        if not _becomes_plain(array) or array.dtype.hasobject:
            return self._once(array, lambda: Box(array, "opaque"))
        if self.keep_maps and isinstance(array, np.memmap) and _constant_map(array):
            return self._held_array(array, lambda: np.asarray(array))
        return self._held_array(array, lambda: _freeze(copy_array(plain_dtype(np.asarray(array)))))

    def _container(
        self, obj: Any, sole: bool, depth: int, root: Any, old: Value | None = None
    ) -> Value:
        if depth > _DEEPEST:
            raise ValueRefusedError(
                f"a value nested more than {_DEEPEST} levels deep (or in itself) cannot be a blob"
            )
        is_dict = isinstance(obj, dict)
        keys, names = obj if is_dict else range(len(obj)), None
        if is_dict and not are_names(obj):
            names = [k.item() if isinstance(k, np.generic) else k for k in obj]
            if not all(map(is_key, names)):
                return self._once(obj, lambda: Box(obj, "opaque"))
        own = adopt_own(obj) if sole else None
        items = self._items(obj, keys, sole, depth, root, old) if own is None else own
        if names is not None:
            tree = Tree("dict", dict(zip(folder_names(names), items, strict=True)), tuple(names))
        else:
            places: Iterable[str] = obj if is_dict else map(str, keys)
            tree = Tree("dict" if is_dict else "list", dict(zip(places, items, strict=True)))
        if type(obj) is tuple:
            tree.note = TUPLE
        tree.whole = own is not None
        return tree

    def _items(
        self, obj: Any, keys: Iterable[Any], sole: bool, depth: int, root: Any, old: Value | None
    ) -> list[Value]:
        """Adopt what a container holds, item by item."""
        trees = _trees_of(old) if type(old) is Tree else {}
        self._path.append(id(obj))
        items = [
            (sole and _own_array(obj, k)) or self.adopt(obj, k, sole, depth + 1, root, trees.get(k))
            for k in keys
        ]
        self._path.pop()
        return items


def _trees_of(old: Tree) -> dict[Any, Tree]:
    """Return the trees that a tree holds, by the keys or the places of its dict or list."""
    names: Iterable[Any] = old.names if old.kind == "dict" else range(len(old.items))
    pairs = zip(names, old.items.values(), strict=True)
    return {name: item for name, item in pairs if type(item) is Tree}


def _own_array(container: Any, key: Any) -> Box | None:
    """Freeze ``container[key]`` and return its box; None where more is to be decided.

    ``container`` has no other holder.  This is what ``adopt`` does with a plain array that has none
    either: half the time, for a tree of hundreds.
    """
    if type(container[key]) is not np.ndarray or sys.getrefcount(container[key]) != SOLE:
        return None
    array: Array = container[key]
    if not _is_plain(array.dtype):
        return None
    if array.flags.num & _WHOLE != _WHOLE or array.base is not None:
        return None
    array.setflags(write=False)
    return Box(array, "array")


def _copied_array(cell: list[Any], copy: Callable[[Array], Array]) -> Box | None:
    """Return the box of a copy of the array in ``cell``; None where more is to be decided.

    This is what ``adopt`` does with a plain array that can be written to, and that others hold or
    whose memory they hold, in a fifth of the time.
    """
    if type(cell[0]) is not np.ndarray or (held_alone(cell, 0) and owns_memory(cell[0])):
        return None
    array: Array = cell[0]
    if not (array.flags.writeable and _is_plain(array.dtype)):
        return None
    return Box(_freeze(copy(array)), "array")


def _is_plain(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a dtype are stored as they are."""
    return dtype.isbuiltin == 1 and not dtype.hasobject and dtype.metadata is None


def _count_arrays(
    container: Any, key: Any, sole: bool, counts: dict[int, int], path: Sequence[int]
) -> None:
    """Count the places of arrays below ``container[key]``, except in containers held elsewhere.

    ``path`` are the ids of containers that are known to have no other holder.
    """
    refs = references(container, key)
    obj = container[key]
    if type(obj) is np.ndarray:
        counts[id(obj)] = counts.get(id(obj), 0) + sole
    elif type(obj) in _CONTAINERS and sole and (refs == SOLE or id(obj) in path):
        for inner in obj if isinstance(obj, dict) else range(len(obj)):
            _count_arrays(obj, inner, sole, counts, path)


def adopt(
    cell: list[Any],
    given: Sequence[Value] = (),
    keep_maps: bool = False,
    updated: str = "",
    *,
    old: Value | None = None,
    copy: Callable[[Array], Array] = copy_array,
    held: list[Held] | None = None,
) -> Value:
    """Take the only element of ``cell`` as a value for the workspace.

    The object is passed in a list so that its holders can be counted.  ``given`` holds the
    values whose views the task was given: an input that is returned shares its memory.
    ``keep_maps`` leaves read-only memory maps as they are (for ``setup``, which is never saved).
    ``updated`` is the name of the blob if a task updates it in place: then arrays of a tree that
    overlap, but are not one, are refused.  ``old`` is the value that was borrowed: trees of it that
    were emptied are used again.  ``copy`` makes the copies of what others hold.
    ``held`` is there for the state of a live object, in which a dict or list at two places is one:
    the arrays whose memory others hold are added to it.
    Raises ValueRefusedError for masked arrays, integers of millions of bits, and endless nesting;
    what only cannot be *saved* becomes opaque, see ``jobrun.values.storable``.
    """
    if held is None:
        value: Value = (
            simple(cell[0])  # the loss of a batch: a quarter of the time
            or _own_array(cell, 0)
            or _copied_array(cell, copy)
            or _Adoption(given, keep_maps, copy).begin(cell, 0, True, updated, old)
        )
    else:
        adoption = _Adoption(given, keep_maps, copy, live=True)
        value = adoption.begin(cell, 0, True, updated, old)
        held += adoption.held
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

    ``updated`` has a name, or an empty string, for each.
    """
    adoption = _Adoption(given, keep_maps)
    sole = held_alone(cell, 0)
    names = updated or [""] * len(keys)
    pairs = zip(keys, names, strict=True)
    values = [adoption.begin(cell[0], key, sole, name) for key, name in pairs]
    cell.clear()
    return values


def simple(obj: Any) -> Box | None:
    """Return the box of a float, bool, string or None; None for anything else."""
    kind = _PYTHON_KINDS.get(type(obj))
    return None if kind is None else Box(obj, kind)


def _freeze(array: Array) -> Array:
    if array.base is not None and isinstance(array.base, np.ndarray):
        array.base.setflags(write=False)
    array.setflags(write=False)
    return array


def _place(array: Array) -> tuple[Any, ...]:
    """Return a key that is equal for views of the same elements: address, shape, strides, dtype."""
    strides = tuple(0 if n == 1 else s for n, s in zip(array.shape, array.strides, strict=True))
    return (array.__array_interface__["data"][0], array.shape, strides, array.dtype)


def _constant_map(array: Array) -> bool:
    return not array.flags.writeable and array.flags.c_contiguous


def _integer(value: int) -> Box:
    if -(1 << 63) <= value < (1 << 64):
        return Box(value, "int")
    if value.bit_length() > _MOST_BITS:
        raise ValueRefusedError(
            f"an integer of {value.bit_length():,} bits cannot be a blob",
            hint=f"{_MOST_BITS:,} bits at most; keep larger ones as an array",
        )
    box = Box(hex(value), "str")
    box.note = INTEGER
    return box


def _numpy_scalar(value: np.generic) -> Box:
    if value.dtype.hasobject:
        return Box(value, "opaque")
    if isinstance(value, np.void) and value.dtype.names is not None:
        # A structured scalar is a window into its array, also to np.array(); a copy cuts the tie.
        packed = _freeze(plain_dtype(np.asarray(value).copy()))
        return Box(packed[()], "scalar")
    return Box(value, "scalar")
