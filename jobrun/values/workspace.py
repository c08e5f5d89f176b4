"""The workspace of a node: its blobs by name, for tasks and snapshots.

Every value is a ``Box`` or a ``Tree`` of boxes and is replaced, never changed; so a snapshot is a
dictionary of references.  ``a/b`` names the leaf ``b`` of the tree ``a``; writing it makes a new
tree.  Tasks on several threads may write different leaves of one tree: the key order of the result
is determined by ``ranks`` (the order of the spec), never by timing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from jobrun.core.blob_paths import trees_of
from jobrun.core.suggestions import did_you_mean
from jobrun.errors import TaskError
from jobrun.values.borrowing import borrow
from jobrun.values.boxes import Tree, Value, leaves
from jobrun.values.holders import held_alone
from jobrun.values.views import view

__all__ = ["Workspace"]


class Workspace:
    """The blobs of one node.  ``get`` and ``put`` may be called from any thread."""

    def __init__(self, ranks: Mapping[str, int] | None = None) -> None:
        self.root: dict[str, Value] = {}
        self._ranks = dict(ranks or {})
        self._lock = threading.Lock()

    def find(self, path: str) -> Value | None:
        """Return the value under ``path``, or None."""
        if "/" not in path:
            return self.root.get(path)
        head, _, rest = path.partition("/")
        value = self.root.get(head)
        while rest and value is not None:
            head, _, rest = rest.partition("/")
            value = value.items.get(head) if isinstance(value, Tree) else None
        return value

    def get(self, path: str) -> Value:
        """Return the value under ``path``; raises TaskError with the nearest names without one."""
        value = self.find(path)
        if value is None:
            raise TaskError(
                f"blob {path!r} has no value now", hint=did_you_mean(path, list(self.names()))
            )
        return value

    def read(self, path: str) -> Any:
        """Return a read-only view for a task; raises TaskError if there is no such blob."""
        return view(self.get(path))

    def borrow(self, path: str, *, preserve: bool = False) -> Any:
        """Return a writable value for a task, which must ``put`` the result, or the run ends.

        With ``preserve`` a copy is returned, and the stored value stays as it is.
        """
        self._check_ties(path, self.get(path))
        head, _, rest = path.partition("/")
        items, sole = self.root, not preserve
        while rest:
            # A parent that a snapshot holds too holds its leaves for it.
            sole = sole and held_alone(items, head)
            parent = items[head]
            assert isinstance(parent, Tree)
            items = parent.items
            head, _, rest = rest.partition("/")
        return borrow(items, head, sole)

    def _check_ties(self, path: str, value: Value) -> None:
        """Raise TaskError if an array under ``path`` is tied to one of the same tree beside it."""
        top, _, rest = path.partition("/")
        if not rest:
            return
        inside = {id(box): name for name, box in leaves(value, path) if box.tied}
        for name, box in leaves(self.root[top], top) if inside else ():
            if id(box) in inside and name != path and not name.startswith(f"{path}/"):
                raise TaskError(
                    f"{inside[id(box)]!r} is one array with {name!r}, which the task does not "
                    "update",
                    hint=f"name {top!r} under 'update', or return a copy of one of the two",
                )

    def put(self, path: str, value: Value) -> None:
        """Store ``value`` under ``path``; raises TaskError if a parent is not a tree."""
        if "/" not in path:
            self.root[path] = value
            return
        with self._lock:
            head, _, rest = path.partition("/")
            self.root[head] = self._put_in(self.root.get(head), head, rest, value)

    def _put_in(self, parent: Value | None, prefix: str, path: str, value: Value) -> Tree:
        """Return a new tree like ``parent`` with ``value`` under ``path``."""
        if parent is None:
            parent = Tree("dict", {})
        if not isinstance(parent, Tree):
            raise TaskError(
                f"blob {prefix}/{path} cannot be put under {prefix!r}, which is not a tree",
                hint=f"return {prefix!r} as a dict, or choose another name",
            )
        head, _, rest = path.partition("/")
        fresh = head not in parent.items
        if fresh and parent.kind == "list":
            raise TaskError(f"list {prefix!r} has no element {head!r} to replace")
        if rest:
            value = self._put_in(parent.items.get(head), f"{prefix}/{head}", rest, value)
        items = {**parent.items, head: value}
        if fresh:
            # A new key comes last, but for those that the spec writes after it.
            rank = self._rank(f"{prefix}/{head}")
            later = takewhile(lambda k: self._rank(f"{prefix}/{k}") > rank, reversed(parent.items))
            for key in reversed(list(later)):
                items[key] = items.pop(key)
        names = None
        if parent.keys is not None:
            known = dict(zip(parent.items, parent.keys, strict=True))
            names = tuple(known.get(name, name) for name in items)
        return Tree(parent.kind, items, names, parent.note)

    def case_twin(self, path: str) -> str | None:
        """Return the name that differs in case only from a new one on the way to ``path``."""
        items, above = self.root, ""
        for level in path.split("/"):
            if level not in items:
                folded = level.casefold()
                now = list(items)  # the root may grow meanwhile
                return next((above + key for key in now if key.casefold() == folded), None)
            value = items[level]
            if not isinstance(value, Tree):
                return None
            items, above = value.items, f"{above}{level}/"
        return None

    def _rank(self, path: str) -> int:
        return self._ranks.get(path, -1)

    def drop(self, keep: Iterable[str]) -> None:
        """Remove everything that is not under one of the paths of ``keep``."""
        kept = frozenset(keep)
        if kept.issuperset(self.root):
            return  # as after most epochs
        above = {tree for path in kept for tree in trees_of(path)}
        self.root = _filtered(self.root, "", kept, above)

    def snapshot(self, paths: Iterable[str]) -> dict[str, Value]:
        """Return the values under ``paths`` that exist, by reference."""
        return {path: value for path in paths if (value := self.find(path)) is not None}

    def names(self) -> Iterator[str]:
        """Yield every name: trees and leaves, in the order of the spec and of the keys of trees."""
        top = dict(sorted(self.root.items(), key=lambda item: self._rank(item[0])))
        yield from _names(top, "")


def _filtered(
    items: Mapping[str, Value], prefix: str, kept: frozenset[str], above: set[str]
) -> dict[str, Value]:
    """Return what lies under the paths ``kept``; ``above`` are the trees that lead to them."""
    found: dict[str, Value] = {}
    for key, value in items.items():
        path = prefix + key
        if path in kept:
            found[key] = value
        elif path in above and isinstance(value, Tree):
            below = _filtered(value.items, path + "/", kept, above)
            if below:
                found[key] = Tree("dict", below)  # as when its leaves are loaded one by one
    return found


def _names(items: Mapping[str, Value], prefix: str) -> Iterator[str]:
    for key, value in items.items():
        yield prefix + key
        if isinstance(value, Tree):
            yield from _names(value.items, f"{prefix}{key}/")
