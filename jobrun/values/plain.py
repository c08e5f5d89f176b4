"""The state of live objects as a stored value, and stored values as plain ones.

The state of a live object is read while nothing runs that could change it: its arrays are copied
once, into memory that an earlier save has released.  Arrays made by the adapter are not copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jobrun.core.names import case_twins
from jobrun.core.tree_keys import folder_names
from jobrun.errors import ValueRefusedError
from jobrun.values.adapted import check_version
from jobrun.values.adapters.base import LiveAdapter, Meta, Note, Plain, note
from jobrun.values.adoption import adopt
from jobrun.values.borrowing import borrow
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.buffers import BUFFERS
from jobrun.values.shared_memory import Held
from jobrun.values.views import lend

__all__ = ["put_back", "read_state", "to_plain"]


def read_state(
    adapter: LiveAdapter, obj: Any, meta: Meta | None = None, held: list[Held] | None = None
) -> Value:
    """Return the state of ``obj`` as a stored value, with copies of its arrays.

    Arrays that are one in memory stay tied; those that were copied are added to ``held``.  Raises
    ValueRefusedError for what is not plain; what the adapter raises is not caught.
    """
    held = [] if held is None else held
    value = adopt([adapter.state(obj)], copy=BUFFERS.copy, held=held)
    return _noted(_without_twins(value, {}), note(adapter, {**(meta or {}), "live": True}))


def _without_twins(value: Value, made: dict[int, Tree]) -> Value:
    """Return a tree in which keys that differ in case only have folders that differ in more.

    ``made`` are the trees that were made of tied ones so far.
    """
    if isinstance(value, Box):
        return value
    if id(value) in made:
        return made[id(value)]
    items = {name: _without_twins(item, made) for name, item in value.items.items()}
    tree = value.replaced(items)
    if value.keys is None and value.kind == "dict" and case_twins(items):
        tree.keys = tuple(items)
        tree.items = dict(zip(folder_names(tree.keys), items.values(), strict=True))
    if value.tied:
        tree.tied = True
        made[id(value)] = tree
    return tree


def _noted(value: Value, made: Note) -> Value:
    if value.note is not None:
        raise ValueRefusedError(
            f"the adapter {made.name!r} returned a {value.note.name}, which is not plain",
            hint="its state is a dict, a list, an array, a number or a string",
        )
    value.note = made
    return value


def to_plain(value: Value, *, writable: bool = False) -> Plain:
    """Return the plain form of a stored value, without the object that its own note stands for.

    With ``writable``, arrays are copies that belong to the caller; else read-only views.
    """
    plain = _without_note(value)
    return borrow({"": plain}, "", sole=False) if writable else lend(plain, [])


def _without_note(value: Value) -> Value:
    """Return a value of the same content that stands for no object; ``value`` may be shared."""
    if isinstance(value, Tree):
        return Tree(value.kind, value.items, value.keys)
    return Box(value.value, value.kind)


def put_back(adapter: LiveAdapter, obj: Any, items: dict[str, Value], key: str) -> Any:
    """Put the state ``items[key]`` into ``obj``, and return the object to be used from now on.

    Arrays that nobody else holds are handed to the adapter without a copy.  Raises
    ValueRefusedError if another adapter, or a newer version, read the state.
    """
    made = items[key].note
    if made is not None:
        if made.name != adapter.name:
            raise ValueRefusedError(
                f"the state was read by the adapter {made.name!r}, and is put back by "
                f"{adapter.name!r}",
                hint="build the same type of object in 'setup', or start over with --fresh",
            )
        check_version(made, adapter)
    items[key].note = None
    if getattr(adapter, "places", False):
        _forget_devices(items[key])
    return adapter.restore(obj, borrow(items, key))


def _forget_devices(value: Value) -> None:
    """Remove from the notes of tensors where they were: they are made on the processor then."""
    if value.note is not None and "device" in value.note.meta:
        meta = {key: item for key, item in value.note.meta.items() if key != "device"}
        value.note = replace(value.note, meta=meta)
    if isinstance(value, Tree):
        for item in value.items.values():
            _forget_devices(item)
