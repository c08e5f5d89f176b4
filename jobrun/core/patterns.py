"""The blobs that a name or a pattern means: the one rule for the whole package.

A name means a leaf, or a tree and all that it holds.  A pattern (``*``, ``?``, ``[abc]``) means
every leaf and every tree whose name it matches; ``*`` and ``?`` stand for ``/`` too.  With a node
in front (``node:w``), which may be a pattern itself, it means blobs of those nodes, without one
those of every node.  ``checkpoint.include`` and ``compress``, ``load-blobs``, ``load_blobs``,
``load:`` and the warnings about names without a match all use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from jobrun.core.blob_paths import covers, levels
from jobrun.core.suggestions import did_you_mean, listed
from jobrun.errors import NotFoundError

__all__ = ["Blob", "full_name", "is_pattern", "leaves_of", "may_mean", "means", "select", "touches"]

_SPECIAL = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Blob:
    """A leaf or a tree of a node: ``name`` is its path, behind ``node:`` if there are several."""

    name: str
    node: str
    path: str
    is_leaf: bool


def full_name(node: str, path: str, several: bool) -> str:
    """Return the full name of a blob: with its node in front if there are ``several``."""
    return f"{node}:{path}" if several else path


def is_pattern(name: str) -> bool:
    """Return whether ``name`` may mean more than the one blob of that name."""
    return not _SPECIAL.isdisjoint(name)


def means(pattern: str, node: str, path: str) -> bool:
    """Return whether a name or pattern means a blob: itself, or with a tree that holds it."""
    of_node, of_path = _split(pattern)
    return _fits(of_node, node) and any(_fits(of_path, name) for name in levels(path))


def touches(pattern: str, node: str, path: str) -> bool:
    """Return whether a name or pattern means a blob or, level by level, something below it.

    ``a/x`` and ``?/*`` touch a blob ``a`` whose leaves are not known, ``*x`` does not.
    """
    of_node, of_path = _split(pattern)
    return means(pattern, node, path) or (
        _fits(of_node, node) and any(_fits(above, path) for above in levels(of_path))
    )


_WHY = "what an epoch writes is saved if 'init' writes it too, or checkpoint.include names it"
"""A hint for a blob that is looked for in a checkpoint, and is not there."""


def may_mean(pattern: str, node: str, path: str) -> bool:
    """Return whether a name or pattern means a blob, or may mean a leaf below it.

    For blobs that do not exist yet, so that it is unknown whether they are trees.
    """
    of_node, of_path = _split(pattern)
    # A part of the pattern that stands for all of "path/" leaves the rest to stand for a leaf.
    below = (of_path[:end] for end in range(1, len(of_path) + 1))
    return means(pattern, node, path) or (
        _fits(of_node, node) and any(_fits(part, f"{path}/") for part in below)
    )


def select(name: str, blobs: Sequence[Blob], *, where: str = "") -> list[Blob]:
    """Return the blob of a name (of each node, if it names none), or the leaves of a pattern.

    Raises NotFoundError, with the nearest names, if there are none; ``where`` is part of the
    message.
    """
    of_node, of_path = _split(name)
    named = [b for b in blobs if b.path == of_path and _fits(of_node, b.node)]
    if named:
        return named
    meant = [b for b in blobs if means(name, b.node, b.path)] if is_pattern(name) else []
    if not meant:
        leaves = listed([b.name for b in blobs if b.is_leaf]) or "there are none"
        hint = did_you_mean(name, [b.name for b in blobs]) or f"{leaves}; {_WHY}"
        raise NotFoundError(f"there is no blob {name!r}", where=where or None, hint=hint)
    return [b for b in meant if b.is_leaf]


def leaves_of(chosen: Iterable[Blob], blobs: Sequence[Blob]) -> list[Blob]:
    """Return the leaves among ``blobs`` that chosen ones are or hold, once each."""
    found: dict[Blob, None] = {}
    for one in chosen:
        if one.is_leaf:
            found[one] = None
        else:
            below = (b for b in blobs if b.is_leaf and b.node == one.node)
            found.update((b, None) for b in below if covers(one.path, b.path))
    return list(found)


def _split(pattern: str) -> tuple[str, str]:
    """Return the pattern of nodes and that of paths."""
    node, colon, path = pattern.partition(":")
    return (node, path.rstrip("/")) if colon else ("*", pattern.rstrip("/"))


def _fits(pattern: str, text: str) -> bool:
    return pattern == text or fnmatchcase(text, pattern)
