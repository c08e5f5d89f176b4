"""The inputs of one call under ``in``, and whether the call left them as they were.

A blob is replaced, never silently changed.  Arrays are read-only; a dict or list cannot be, since
users' libraries need plain ones.  So each call gets new containers, and their content is compared
after the call: keys, order, and the identity of the items.  A change would be lost, unless the
container is what the call returns for the same blob.

Measured: recording the content and comparing it takes 0.03 µs a leaf for a dict of 1,000 numbers,
0.02 for a list, 0.10 for 100 dicts of ten arrays each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from jobrun.analysis.names import Key
from jobrun.model.job import Argument
from jobrun.values.boxes import Box, Tree, Value, is_locked
from jobrun.values.views import lend

__all__ = ["Given", "Held", "Input", "InputChange"]

Held = Value | tuple[Value, ...] | Callable[[], Any]
"""An input as it was read: a blob, those of a pattern, or what makes an object for one call."""

Keys = tuple[Key, ...]
_CONTAINERS = (dict, list, tuple, np.ndarray)


@dataclass(frozen=True, slots=True)
class Input:
    """An argument under ``in``, and the blobs (or the column, of node ``""``) that it reads."""

    argument: Argument
    form: str
    keys: Keys


@dataclass(frozen=True, slots=True)
class InputChange:
    """A container that a call changed in place: its place, its kind, and the difference."""

    input: Input
    name: str
    kind: str
    how: str


class _Noted(NamedTuple):
    """A container that was handed out, and its content: ``keys`` is None for a list.

    A named tuple, which is created in a third of the time of a frozen dataclass.
    """

    container: Any
    keys: tuple[str, ...] | None
    items: tuple[Any, ...]

    def unchanged(self) -> bool:
        if self.keys is None:
            same_keys = len(self.container) == len(self.items)
            return same_keys and all(map(is_, self.container, self.items))
        same_keys = (*self.container,) == self.keys
        return same_keys and all(map(is_, self.container.values(), self.items))

    def children(self) -> Iterator[tuple[str, Any]]:
        """Return its recorded content, by key."""
        keys = map(str, range(len(self.items))) if self.keys is None else self.keys
        return zip(keys, self.items, strict=True)

    def difference(self) -> str:
        """Return how it differs now, in words."""
        if self.keys is None:
            if len(self.container) != len(self.items):
                return f"it has {len(self.container)} items, and had {len(self.items)}"
            pairs = enumerate(zip(self.container, self.items, strict=True))
            return f"item {next(i for i, (new, old) in pairs if new is not old)} was replaced"
        for key, old in self.children():
            if key not in self.container:
                return f"key {key!r} was removed"
            if self.container[key] is not old:
                return f"the value of key {key!r} was replaced"
        for key in self.container:
            if key not in self.keys:
                return f"key {key!r} was added"
        return "its keys are in another order"


class Given:
    """The arguments of ``in`` for one call, made anew from the gathered inputs.

    ``positional`` and ``keywords`` are for the caller to complete; ``values`` are the values whose
    views were handed out, ``names`` their names in the task.
    """

    __slots__ = ("_noted", "_roots", "keywords", "names", "positional", "values")

    def __init__(self, inputs: Sequence[Input], gathered: Sequence[Held]) -> None:
        self.positional: list[Any] = []
        self.keywords: dict[str, Any] = {}
        self.values: list[Value] = []
        self.names: list[str] = []
        self._roots: list[tuple[Input, Any]] = []
        lent: list[Any] = []
        for source, held in zip(inputs, gathered, strict=True):
            obj = self._hand_out(source, held, lent)
            if source.argument.parameter is None:
                self.positional.append(obj)
            else:
                self.keywords[source.argument.parameter] = obj
            if lent and type(obj) in (dict, list):
                self._roots.append((source, obj))
        self._noted = [
            _Noted(c, (*c,), (*c.values(),)) if type(c) is dict else _Noted(c, None, (*c,))
            for c in lent
        ]

    def _hand_out(self, source: Input, held: Held, lent: list[Any]) -> Any:
        if isinstance(held, Box | Tree):
            self.values.append(held)
            self.names.append(source.argument.name)
            return lend(held, lent)
        if isinstance(held, tuple):
            self.values += held
            self.names += [f"{node}:{path}" for node, path in source.keys]
            objs = [lend(value, lent) for value in held]
            lent.append(objs)
            return objs
        obj = held()
        if isinstance(obj, _CONTAINERS):
            _find_containers(obj, lent)
        return obj

    def unlocked(self) -> str | None:
        """Return the name of the first value of which the call made an array writable, or None."""
        pairs = zip(self.names, self.values, strict=True)
        return next((name for name, value in pairs if not is_locked(value)), None)

    def change(self, returned: Callable[[], Mapping[Keys, Any]]) -> InputChange | None:
        """Return the first container that the call changed in place, or None.

        ``returned`` returns the results for the blobs under ``out``, before they are adopted: a
        changed container that is the result for its own blob is no change.
        """
        if all(map(_Noted.unchanged, self._noted)):
            return None
        written = returned()
        by_id = {id(noted.container): noted for noted in self._noted}
        for source, root in self._roots:
            for name, keys, noted in _below(source, source.argument.name, source.keys, root, by_id):
                if not noted.unchanged() and not _stands_in(written, keys, noted.container):
                    kind = "list" if noted.keys is None else "dict"
                    return InputChange(source, name, kind, noted.difference())
        return None

    def release(self) -> None:
        """Release everything but ``values``: what holds an array decides whether it is copied."""
        self.positional.clear()
        self.keywords.clear()
        self._roots.clear()
        self._noted.clear()


def _find_containers(obj: Any, found: list[Any]) -> None:
    """Add the dicts and lists of a copied var, and make its arrays read-only."""
    kind = type(obj)
    if kind is np.ndarray:
        obj.setflags(write=False)
    elif kind is dict or kind is list:
        found.append(obj)
    if isinstance(obj, dict | list | tuple):
        for item in obj.values() if isinstance(obj, dict) else obj:
            _find_containers(item, found)


def _below(
    source: Input, name: str, keys: Keys, container: Any, by_id: Mapping[int, _Noted]
) -> Iterator[tuple[str, Keys, _Noted]]:
    """Yield a container and those inside it, each with its name and the blobs it stands for."""
    noted = by_id.get(id(container))
    if noted is None:  # an object that is no container of jobrun's: an opaque value
        return
    yield name, keys, noted
    parts = source.form == "blobs" and len(name) == len(source.argument.name)
    for number, (key, item) in enumerate(noted.children()):
        inner = (keys[number],) if parts else tuple((n, f"{p}/{key}") for n, p in keys)
        yield from _below(source, f"{name}/{key}", inner, item, by_id)


def _stands_in(written: Mapping[Keys, Any], keys: Keys, container: Any) -> bool:
    """Return whether the result for the blobs ``keys`` is the container, or has the same items."""
    if not keys:
        return False
    if keys in written:
        return _holds_the_same(written[keys], container)
    node, path = keys[0]
    for place, obj in written.items():
        if len(keys) == len(place) == 1 and place[0][0] == node:
            above = place[0][1] + "/"
            if path.startswith(above):
                return _holds_the_same(_descend(obj, path[len(above) :].split("/")), container)
    return False


def _descend(obj: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if isinstance(obj, dict):
            obj = obj.get(part)
        elif isinstance(obj, list | tuple) and part.isdigit() and int(part) < len(obj):
            obj = obj[int(part)]
        else:
            return None
    return obj


def _holds_the_same(obj: Any, container: Any) -> bool:
    if obj is container:
        return True
    if type(container) is dict:
        keys = type(obj) is dict and [*obj] == [*container]
        return keys and all(map(is_, obj.values(), container.values()))
    same_length = type(obj) in (list, tuple) and len(obj) == len(container)
    return same_length and all(map(is_, obj, container))
