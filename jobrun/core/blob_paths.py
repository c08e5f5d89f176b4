"""Paths of blobs in trees: ``model/w1`` is the leaf ``w1`` of the tree ``model``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

__all__ = [
    "Key",
    "PathMap",
    "PathSet",
    "covers",
    "levels",
    "outermost",
    "overlaps",
    "same_leaves",
    "trees_of",
]

V = TypeVar("V")

Key = tuple[str, str]
"""A blob of a node: ``(node, path)``."""


def covers(path: str, other: str) -> bool:
    """Return whether ``other`` is ``path`` or lies below it."""
    return other == path or other.startswith(path + "/")


def overlaps(a: str, b: str) -> bool:
    """Return whether two paths share leaves: a tree overlaps its leaves."""
    return covers(a, b) or covers(b, a)


def same_leaves(a: Key, b: Key) -> bool:
    """Return whether two blobs of nodes share leaves."""
    return a[0] == b[0] and overlaps(a[1], b[1])


def trees_of(path: str) -> Iterator[str]:
    """Yield the paths of the trees that hold a blob, the smallest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def levels(path: str) -> Iterator[str]:
    """Yield a path and those of the trees that hold it, the smallest first."""
    yield path
    yield from trees_of(path)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths without those that lie below another one, in order and once."""
    own = dict.fromkeys(paths)
    return tuple(p for p in own if not any(tree in own for tree in trees_of(p)))


class PathMap(Generic[V]):
    """A mapping from blobs to values, looked up by overlap: a tree overlaps its leaves.

    Every lookup takes time in the depth of the blob and the number of results.
    """

    def __init__(self) -> None:
        self._values: dict[Key, V] = {}
        self._below: dict[Key, dict[Key, None]] = {}

    def __setitem__(self, key: Key, value: V) -> None:
        if key not in self._values:
            for tree in _trees(key):
                self._below.setdefault(tree, {})[key] = None
        self._values[key] = value

    def get(self, key: Key) -> V | None:
        """Return the value of exactly this blob, or None."""
        return self._values.get(key)

    def drop(self, key: Key) -> None:
        """Remove a blob and everything below it."""
        for gone in (key, *self._below.get(key, ())):
            if gone in self._values:
                del self._values[gone]
                for tree in _trees(gone):
                    del self._below[tree][gone]

    def overlapping(self, key: Key) -> Iterator[V]:
        """Yield the values of a blob, of the trees that hold it, and of its parts."""
        for other in (key, *_trees(key), *self._below.get(key, ())):
            if other in self._values:
                yield self._values[other]

    def touches(self, key: Key) -> bool:
        """Return whether the mapping holds anything that overlaps a blob."""
        return bool(self._below.get(key)) or self.covers(key)

    def covers(self, key: Key) -> bool:
        """Return whether the mapping holds a blob, or a tree that holds it."""
        return key in self._values or any(tree in self._values for tree in _trees(key))

    def paths(self, node: str) -> list[str]:
        """Return the paths on a node, in insertion order."""
        return [path for own, path in self._values if own == node]


class PathSet(PathMap[None]):
    """A set of blobs, looked up by overlap."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        super().__init__()
        for key in keys:
            self.add(key)

    def add(self, key: Key) -> None:
        """Add a blob."""
        self[key] = None


def _trees(key: Key) -> Iterator[Key]:
    node, path = key
    return ((node, tree) for tree in trees_of(path))
