"""Trees of arrays that are replaced as a whole: the parameters and optimizer states of JAX.

A tree is made of dicts, lists, tuples, named tuples, dataclasses and nodes that are registered with
JAX.  Its leaves are arrays, numbers, strings and None, or live objects.  A saved state has no types
of containers: it is put into the tree that ``setup`` made, its *template*, and must have the same
structure: containers, keys, and the dtype and shape of every array.  So a tree must keep the
structure of its template, but for the order of keys, which JAX sorts.

What can be changed (a dict, a list, an array of numpy, a tensor) is filled in place, since other
objects of ``setup`` may hold it: an optimizer its parameters.  But if a task has returned a tree of
other arrays (``references``), those that hold the arrays of ``setup`` hold its first values, and
keep them: then new ones are made.  What stood at several places when it was saved is one object at
these places again.

Gradients that tensors have gathered stand beside the tree, under ``.grad``, by their places.

Functions, classes, dtypes and modules in a tree (the ``apply_fn`` of a train state) are not saved:
those of the template are used.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final
from weakref import ref

import numpy as np

from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import is_immutable
from jobrun.values.adapters.base import LiveAdapter, Plain
from jobrun.values.adapters.jax import is_jax_function, node_children, node_like, shard_shape
from jobrun.values.adapters.registry import live_adapter, value_adapter
from jobrun.values.adapters.state_dict import STATE_DICT, has_state_dict
from jobrun.values.adapters.ties import Forms, Objects

__all__ = [
    "NEW_PYTREE",
    "PYTREE",
    "is_pytree",
    "live_adapter_of",
    "note_made",
    "part_at",
    "references",
    "warnings_of",
]

_FIXED: Final = (
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
    partial,
    type,
    np.dtype,
    np.ufunc,
)
_PLAIN: Final = (np.ndarray, np.generic, bool, int, float, complex, str, bytes, type(None))


def live_adapter_of(obj: Any) -> LiveAdapter | None:
    """Return the adapter of a live object: that of its type, or of ``state_dict``; or None."""
    return live_adapter(obj) or (STATE_DICT if has_state_dict(obj) else None)


def is_pytree(obj: Any) -> bool:
    """Return whether ``obj`` is a container of a tree, or a leaf that is not a live object."""
    return isinstance(obj, _PLAIN) or _children(obj) is not None or value_adapter(obj) is not None


class PytreeAdapter:
    """Reads the leaves of a tree, and puts them into its template."""

    name = "pytree"
    version = 1
    places = True

    def __init__(self, remade: Container[str] = ()) -> None:
        self._remade = remade

    def remakes(self, place: str) -> bool:
        """Return whether what is at a place is replaced by a restore, and not filled."""
        return place in self._remade

    def state(self, obj: Any) -> Plain:
        """Return the tree as dicts and lists of its leaves; one leaf alone as a list of it."""
        state = [obj] if _is_value(obj) else _state(obj, Forms())
        gradients = {p: g for p, leaf in _leaves(obj) if (g := _gradient(leaf)) is not None}
        return _beside(state, gradients) if gradients else state

    def restore(self, obj: Any, state: Plain) -> Any:
        """Return a tree like the template ``obj`` with the leaves of ``state``.

        Raises ValueRefusedError, naming the place, where the structure is another.
        """
        state, gradients = _apart(obj, state)
        if _is_value(obj):
            if not isinstance(state, list | dict) or len(state) != 1:
                raise _mismatch("", _described_leaf(obj), _described_leaf(state))
            (leaf,) = state.values() if isinstance(state, dict) else state
            restored = _leaf(obj, leaf, "", Objects(self._remade))
        else:
            restored = _restored(obj, state, "", Objects(self._remade))
        for place, leaf in _leaves(restored):
            if (put := getattr(value_adapter(leaf), "put_gradient", None)) is not None:
                put(leaf, gradients.get(place))
        return restored

    def copy(self, obj: Any) -> Any:
        """Return ``copy.deepcopy(obj)``."""
        return copy.deepcopy(obj)

    def structure(self, obj: Any) -> dict[str, str]:
        """Return what every leaf, and every empty container, is, by its place in the tree."""
        return dict(_described(obj, ""))

    def check(self, obj: Any, structure: Mapping[str, str]) -> None:
        """Raise ValueRefusedError if a tree has not the structure of its template."""
        now = self.structure(obj)
        for place in (*structure, *now):
            if structure.get(place) != now.get(place):
                raise _mismatch(place, structure.get(place), now.get(place))


PYTREE: Final = PytreeAdapter()
"""Fills the tree that ``setup`` made."""


class _Everywhere:
    """All places of a tree."""

    def __contains__(self, place: object) -> bool:
        return True


NEW_PYTREE: Final = PytreeAdapter(_Everywhere())
"""Makes new containers, arrays and tensors like those of ``setup``; live objects are filled."""


def note_made(adapter: LiveAdapter, obj: Any, like: Any = None) -> object:
    """Report an object that ``setup`` has made to its adapter, of a tree each live object in it.

    ``like`` is the object that ``obj`` is a copy of, or in the place of, if there is one.  What is
    returned is to be kept as long as ``obj`` is used: what the adapter has noted lives in it.
    """
    if not isinstance(adapter, PytreeAdapter):
        made = getattr(adapter, "made", None)
        return None if made is None else made(obj, like)
    found, others = _children(obj), _children(like) if like is not None else None
    noted = []
    for key, item in (found or {}).items():
        part = None if isinstance(item, _PLAIN) else live_adapter_of(item) or adapter
        if part is not None:
            noted.append(note_made(part, item, None if others is None else others.get(key)))
    return noted


def warnings_of(adapter: LiveAdapter, obj: Any) -> Iterator[str]:
    """Yield what a resumed run will lack of an object, of a tree of each live object in it."""
    if not isinstance(adapter, PytreeAdapter):
        warnings = getattr(adapter, "warnings", None)
        yield from () if warnings is None else warnings(obj)
        return
    for item in (_children(obj) or {}).values():
        part = None if isinstance(item, _PLAIN) else live_adapter_of(item) or adapter
        if part is not None:
            yield from warnings_of(part, item)


def references(obj: Any, place: str = "") -> Iterator[tuple[str, Callable[[], Any] | None]]:
    """Yield the places of a tree where an object can be filled, with a weak reference to it.

    None stands for a container, to which there is none.
    """
    found = _children(obj)
    if found is not None:
        yield place, None
        for key, item in found.items():
            if not _is_fixed(item):
                yield from references(item, _below(obj, place, key))
    elif type(obj) is np.ndarray:
        if obj.flags.writeable:
            yield place, ref(obj)
    elif hasattr(value_adapter(obj), "like") and not is_immutable(obj):
        weak = getattr(type(obj), "__weakrefoffset__", 0)
        yield place, ref(obj) if weak else lambda: obj  # generators of numpy, which are small


def part_at(obj: Any, keys: Sequence[Any]) -> tuple[str, Any, Sequence[Any]]:
    """Return what the keys of a state lead to in its tree: its place, a leaf, and the keys left.

    The leaf is a live object if it has an adapter; None for gradients, which are in no tree.
    """
    place = ""
    if _is_value(obj):
        return place, obj, keys[1:]
    for number, key in enumerate(keys):
        found = _children(obj)
        if found is None:
            return place, obj, keys[number:]
        if key not in found:
            return place, None, keys[number:]
        place, obj = _below(obj, place, key), found[key]
    return place, obj, ()


_GRADIENTS: Final = ".grad"


def _leaves(obj: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the places and the leaves of a tree that adapters of values take apart."""
    if isinstance(obj, _PLAIN):
        return
    found = _children(obj)
    if found is None:
        if live_adapter_of(obj) is None:
            yield place, obj
        return
    for key, item in found.items():
        if not _is_fixed(item):
            yield from _leaves(item, _below(obj, place, key))


def _gradient(leaf: Any) -> Any:
    """Return what a leaf has gathered beside its content; None for nothing."""
    found = getattr(value_adapter(leaf), "gradient", None)
    return None if found is None else found(leaf)


def _beside(state: Plain, gradients: dict[str, Any]) -> Plain:
    """Return a state with the gradients of its leaves."""
    items = dict(enumerate(state)) if isinstance(state, list) else state
    if _GRADIENTS in items:
        raise ValueRefusedError(
            f"the key {_GRADIENTS!r} of the tree stands for the gradients of its tensors",
            hint="give the key another name",
        )
    return {**items, _GRADIENTS: gradients}


def _apart(template: Any, state: Plain) -> tuple[Plain, dict[str, Any]]:
    """Return the inverse of ``_beside``; a list stays a dict of its items."""
    own = _GRADIENTS in (_children(template) or {})
    if own or not isinstance(state, dict) or not isinstance(state.get(_GRADIENTS), dict):
        return state, {}
    return {key: item for key, item in state.items() if key != _GRADIENTS}, state[_GRADIENTS]


def _is_value(obj: Any) -> bool:
    """Return whether a whole state is one leaf that an adapter of values takes apart."""
    return value_adapter(obj) is not None and live_adapter_of(obj) is None and not _children(obj)


def _state(obj: Any, seen: Forms) -> Plain:
    """Return the plain form of a part of a tree; ``seen`` are those of the parts before it."""
    if isinstance(obj, (*_PLAIN, tuple)):
        return _new_state(obj, seen)
    return seen.of(obj, lambda: _new_state(obj, seen))


def _new_state(obj: Any, seen: Forms) -> Plain:
    found = _children(obj)
    if found is None:
        live = None if isinstance(obj, _PLAIN) else live_adapter_of(obj)
        return obj if live is None else live.state(obj)
    items = {k: _state(v, seen) for k, v in found.items() if not _is_fixed(v)}
    return list(items.values()) if isinstance(obj, list | tuple) and _is_full(obj) else items


def _children(obj: Any) -> dict[Any, Any] | None:
    """Return the items of a container by key, index or field; None for a leaf."""
    kind = type(obj)
    if kind is dict or kind is OrderedDict:
        return dict(obj)
    if kind is list or kind is tuple:
        return dict(enumerate(obj))
    if isinstance(obj, tuple) and hasattr(kind, "_fields"):
        return dict(zip(kind._fields, obj, strict=True))
    if dataclasses.is_dataclass(kind) and live_adapter_of(obj) is None:
        names = (f.name for f in dataclasses.fields(obj))
        return {name: getattr(obj, name) for name in names if hasattr(obj, name)}
    return None if live_adapter_of(obj) is not None else node_children(obj)


def _is_fixed(obj: Any) -> bool:
    """Return whether an item of a container is not saved: that of the template is used."""
    return isinstance(obj, _FIXED) or is_jax_function(obj)


def _is_full(obj: Any) -> bool:
    """Return whether it is a list or tuple, no named tuple, that is saved with all its items."""
    return type(obj) in (list, tuple) and not any(_is_fixed(item) for item in obj)


def _restored(template: Any, state: Any, place: str, made: Objects) -> Any:
    """Return a part of the tree; ``made`` are the parts before it."""
    return made.of(state, lambda: _newly_restored(template, state, place, made))


def _newly_restored(template: Any, state: Any, place: str, made: Objects) -> Any:
    found = _children(template)
    if found is None:
        live = None if isinstance(template, _PLAIN) else live_adapter_of(template)
        if live is None:
            return _leaf(template, state, place, made)
        return live.restore(template if made.claims(template) else live.copy(template), state)
    given = dict(enumerate(state)) if isinstance(state, list | tuple) else state
    if not isinstance(given, dict):
        raise _mismatch(place, _described_leaf(template), _described_leaf(state))
    saved = [key for key, item in found.items() if not _is_fixed(item)]
    for key in (*saved, *given):
        if key not in given or key not in saved:
            was = _described_leaf(found[key]) if key in saved else None
            now = _described_leaf(given[key]) if key in given else None
            raise _mismatch(_below(template, place, key), was, now)
    if isinstance(template, dict):
        found = {key: found[key] for key in (*given, *found)}
    items = {
        key: _restored(item, given[key], _below(template, place, key), made)
        if key in saved
        else item
        for key, item in found.items()
    }
    return _container_like(template, items, place, made)


def _container_like(template: Any, items: dict[Any, Any], place: str, made: Objects) -> Any:
    """Return ``template`` with other items, or a new container of its type if it cannot change."""
    kind = type(template)
    if isinstance(template, tuple):
        return kind(items.values()) if kind is tuple else tuple.__new__(kind, items.values())
    if kind is not list and not isinstance(template, dict) and not dataclasses.is_dataclass(kind):
        return node_like(template, items)
    fills = not _is_frozen(kind) and made.fills(template, place)
    result: Any = template if fills else copy.copy(template)
    if kind is list:
        result[:] = items.values()
    elif isinstance(template, dict):
        result.clear()
        result.update(items)
    else:
        for name, value in items.items():
            object.__setattr__(result, name, value)
    return result


def _is_frozen(kind: Any) -> bool:
    """Return whether a type is that of frozen dataclasses, which are replaced."""
    parameters = getattr(kind, "__dataclass_params__", None)
    return parameters is not None and parameters.frozen is True


def _leaf(template: Any, value: Any, place: str, made: Objects) -> Any:
    """Return a leaf of the state: in the memory of the template's, or in its layout."""
    was, now = _described_leaf(template, order=False), _described_leaf(value, order=False)
    if was != now:
        raise _mismatch(place, was, now)
    if type(template) is np.ndarray:
        if template.flags.writeable and made.fills(template, place):
            np.copyto(template, value)
            return template
        return np.asfortranarray(value) if _order(template) == "F" else value
    like = getattr(value_adapter(template), "like", None)
    return value if like is None else like(template, value, made.fills(template, place))


def _described(obj: Any, place: str) -> Iterator[tuple[str, str]]:
    found = _children(obj)
    if not found:
        yield place, _described_leaf(obj)
        return
    for key, item in found.items():
        if not _is_fixed(item):
            yield from _described(item, _below(obj, place, key))


def _described_leaf(obj: Any, *, order: bool = True) -> str:
    """Describe a leaf or an empty container; an array by dtype, shape and, ``order``, layout."""
    live = None if isinstance(obj, _PLAIN) else live_adapter_of(obj)
    if live is not None:
        return f"a live object of adapter {live.name!r}"
    dtype, shape = getattr(obj, "dtype", None), getattr(obj, "shape", None)
    if dtype is None or shape is None:
        return type(obj).__name__
    layout = f" in {_order(obj)} order" if order and _order(obj) != "C" else ""
    shards = shard_shape(obj) if order else None
    return f"{dtype}{list(shape)}{layout}" + (f" in shards of {list(shards)}" if shards else "")


def _order(array: Any) -> str:
    """Return the layout of an array in memory; that of other libraries' arrays is their own."""
    if type(array) is not np.ndarray or array.flags.c_contiguous:
        return "C"
    return "F" if array.flags.f_contiguous else "strided"


def _below(container: Any, place: str, key: Any) -> str:
    is_field = not isinstance(container, dict) and type(container) not in (list, tuple)
    return f"{place}.{key}" if is_field else f"{place}[{key!r}]"


def _mismatch(place: str, was: str | None, now: str | None) -> ValueRefusedError:
    """Return the error of a place where the template has ``was`` and a tree has ``now``."""
    at = f"at {place}" if place else "as a whole"
    return ValueRefusedError(
        "its structure is not that of the tree that 'setup' made: "
        f"{at}, expected {was or 'nothing'}, got {now or 'nothing'}",
        hint="build in 'setup' a tree with the containers, keys, dtypes and shapes that it keeps",
    )
