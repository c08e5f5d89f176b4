"""Paths of blobs in trees: ``model/w1`` is the leaf ``w1`` of the tree ``model``."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Key", "covers", "levels", "overlaps", "trees_of"]

Key = tuple[str, str]
"""A blob of a node: ``(node, path)``."""


def covers(path: str, other: str) -> bool:
    """Return whether ``other`` is ``path`` or lies below it."""
    return other == path or other.startswith(path + "/")


def overlaps(a: str, b: str) -> bool:
    """Return whether two paths share leaves: a tree overlaps its leaves."""
    return covers(a, b) or covers(b, a)


def trees_of(path: str) -> Iterator[str]:
    """Yield the paths of the trees that hold a blob, the smallest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def levels(path: str) -> Iterator[str]:
    """Yield a path and those of the trees that hold it, the smallest first."""
    yield path
    yield from trees_of(path)
