"""Reading a node's part of a checkpoint: all of it, or blobs by name.

Every byte that is read is verified against the manifest, and only ``_SUCCESS``, the manifest and
the files of the requested blobs are read.  Values without chunks stand in the manifest itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy.typing as npt

from jobrun.checkpoint.integrity import (
    check_root,
    read_manifest,
    read_record,
)
from jobrun.checkpoint.leaf_reading import read_leaves
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.record import Record
from jobrun.core.blob_paths import trees_of
from jobrun.core.gc_tuning import paused
from jobrun.core.suggestions import did_you_mean
from jobrun.core.tree_keys import Key, decode_key
from jobrun.errors import DamagedError, NotFoundError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import Box, Tree, Value

__all__ = ["read_part", "read_trees", "select"]

Array = npt.NDArray[Any]
T = TypeVar("T")

_SHOWN = 80
_MANY = 1000
"""Entries from which on garbage collection is paused while their values are made."""


def read_part(
    checkpoint: str | os.PathLike[str],
    node: str,
    names: Iterable[str] | None = None,
    *,
    fs: Fs = DEFAULT,
    record: Record | None = None,
) -> dict[str, Value]:
    """Return a node's blobs as they were passed to ``write_part``, or only those of some names.

    A name is that of a blob, of a leaf or tree within one, or of a level of names (then a tree).
    ``record`` is that of the checkpoint, if it was read before.  Every byte that is read is
    verified; files of other blobs are not read.  Arrays of one tree that are tied (``same_as``) are
    one box, read once, and trees within it one tree; what is read alone has its own files.  Raises
    NotFoundError for missing names, DamagedError for data that is not what was written.
    """
    root = os.fspath(checkpoint)
    record = record or read_record(fs, root)
    if names is None:
        check_root(fs, root, record)
    names = None if names is None else list(names)
    entries = read_manifest(fs, root, record, node, names).entries
    wanted = {"": entries} if names is None else select(entries, names, node)
    needed = {e.path: e for selected in wanted.values() for e in selected}
    with paused(len(needed) > _MANY):
        return _read_wanted(fs, f"{root}/{node}", wanted, needed)


def _read_wanted(
    fs: Fs, base: str, wanted: Mapping[str, Sequence[Entry]], needed: Mapping[str, Entry]
) -> dict[str, Value]:
    """Return the blobs of names from their entries; ``needed`` are these by path."""
    tied = {
        path: entry.same_as
        for path, entry in needed.items()
        if entry.same_as in needed and not entry.is_tree
    }
    boxes = read_leaves(fs, base, [e for p, e in needed.items() if p not in tied])
    for path, first in tied.items():
        boxes[path] = _tied(f"{base}/{path}", needed[path], boxes.get(str(first)))
    blobs: dict[str, Value] = {}
    for name, selected in wanted.items():
        ties = {entry.path: entry.same_as for entry in selected if entry.is_tree and entry.same_as}
        blobs |= _assemble(selected, boxes, name, ties)
    return blobs


def read_trees(
    checkpoint: str | os.PathLike[str],
    node: str,
    leaves: Iterable[str],
    record: Record,
    fs: Fs = DEFAULT,
) -> dict[str, Value]:
    """Return the blobs that hold the named leaves, without their other leaves.

    Empty dicts and lists are kept in trees of which all leaves are named.  Every byte that is read
    is verified, and no other leaf is read.
    """
    root = os.fspath(checkpoint)
    wanted = dict.fromkeys(leaves)
    above = {tree for path in wanted for tree in trees_of(path)}
    entries = read_manifest(fs, root, record, node).entries
    partial = {
        tree for e in entries if not e.is_tree and e.path not in wanted for tree in trees_of(e.path)
    }
    whole = above - partial
    selected = []
    for entry in entries:
        if entry.is_tree and entry.path not in partial and entry.path.rpartition("/")[0] in whole:
            whole.add(entry.path)
        if entry.path in wanted or entry.path in above or entry.path in whole:
            selected.append(entry)
    boxes = read_leaves(fs, f"{root}/{node}", [e for e in selected if e.path in wanted])
    return _assemble(selected, boxes, "")


def _tied(where: str, entry: Entry, box: Box | None) -> Box:
    """Return the box of an array that occurs at another path too; raises DamagedError."""
    if (
        box is None
        or (box.kind, entry.kind) != ("array", "array")
        or box.value.shape != entry.shape
    ):
        text = f"expected the same array as {entry.same_as!r}, which has another kind or shape"
        raise DamagedError(text, where=where)
    box.tied = True
    return box


def select(entries: Sequence[Entry], names: Iterable[str], node: str) -> dict[str, Sequence[Entry]]:
    """Return the entries of each name: itself and, right after it, what it holds."""
    place = {entry.path: i for i, entry in enumerate(entries) if entry.path}
    selected: dict[str, Sequence[Entry]] = {}
    for name in names:
        if name not in place:
            raise NotFoundError(
                f"there is no blob {name!r} of node {node!r}", hint=did_you_mean(name, list(place))
            )
        first = last = place[name]
        while last < len(entries) and (last == first or entries[last].path.startswith(f"{name}/")):
            last += 1
        selected[name] = entries[first:last]
    return selected


def _assemble(
    entries: Sequence[Entry],
    boxes: Mapping[str, Box],
    root: str,
    ties: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Value]:
    """Return blobs made of leaves; a ``group`` is one only if it is the requested ``root``.

    ``ties`` are the trees that are one with an earlier one, if that is among the entries.
    """
    blobs: dict[str, Value] = {}
    trees: dict[str, Tree] = {}
    keys: dict[str, dict[str, Key]] = {}
    for entry in entries:
        above, _, name = entry.path.rpartition("/")
        requested = bool(root) and entry.path == root
        if entry.kind == "group" and above not in trees and not requested:
            continue
        value: Value
        if entry.is_tree:
            value = trees[entry.path] = Tree("list" if entry.kind == "list" else "dict", {})
        else:
            value = boxes[entry.path]
        value.note = entry.note
        if above in trees and not requested:
            # A tree that is tied is complete: all that it holds came before.
            trees[above].items[name] = trees.get(ties.get(entry.path, ""), value)
            if entry.key is not None:
                keys.setdefault(above, {})[name] = decode_key(json.loads(entry.key))
        else:
            blobs[entry.path] = value
    for path, own in keys.items():
        tree = trees[path]
        tree.keys = tuple(own.get(name, name) for name in tree.items)
        if tree.kind != "dict" or len({*tree.keys}) < len(tree.items):
            raise DamagedError(f"the keys of {path!r} in the manifest are not those of a dict")
    for path, first in ties.items():
        _tie_trees(path, trees[path], first, trees.get(first))
    return blobs


def _tie_trees(path: str, tree: Tree, first: str, other: Tree | None) -> None:
    """Mark a tree as tied to the one at ``path``; raises DamagedError if it is another one."""
    if other is None:
        return
    own, others = ((t.kind, t.note, t.keys, [*t.items]) for t in (tree, other))
    if own != others or f"{path}/".startswith(f"{first}/"):
        raise DamagedError(f"{path!r} is not the same tree as {first!r}, as the manifest has it")
    other.tied = True
