"""The keys of the user's dicts that lead to a leaf, and the adapter that made the leaf's blob.

A folder of a checkpoint is named like its key only if that is a valid name (``core/tree_keys.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jobrun.checkpoint.manifest import Entry
from jobrun.core.tree_keys import Key, decode_key
from jobrun.values.adapters.base import Note

__all__ = ["LeafKeys", "adapters_text", "leaf_keys"]

_EVERYWHERE = ("python.", "numpy.")
"""Adapters of types that need no library: code that sees the values need not know them."""


class LeafKeys(NamedTuple):
    """``keys`` has one key for each level of a leaf's path; the index of an item of a list.

    ``renamed``: a level of the path has another name than its key.  ``adapter`` is the name of the
    outermost adapter, that of the whole object; ``note`` the leaf's own.  ``is_live``: the object
    is live state.
    """

    keys: tuple[Key, ...]
    renamed: bool = False
    adapter: str | None = None
    is_live: bool = False
    note: Note | None = None

    @property
    def name(self) -> str:
        """The keys, joined by ``/``."""
        return "/".join(map(str, self.keys))

    @property
    def is_extra(self) -> bool:
        """Whether an adapter keeps the leaf beside the object's own state: a key begins with a dot.

        Such keys hold what ``state_dict`` of a module leaves out, and are nothing to its loader.
        """
        return self.is_live and any(type(k) is str and k.startswith(".") for k in self.keys[1:])

    def text(self) -> str:
        """Return the keys below the blob as Python writes them: ``[0]['exp_avg']``."""
        return "".join(f"[{key!r}]" for key in self.keys[1:])


def leaf_keys(entries: Iterable[Entry]) -> Mapping[str, LeafKeys]:
    """Return the keys of each blob, tree and leaf of a node, by path.

    ``entries`` are in the order of a manifest: each tree comes before what it holds.
    """
    found: dict[str, LeafKeys] = {}
    lists = set()
    for entry in entries:
        if not entry.path:
            continue  # the node itself
        above, _, level = entry.path.rpartition("/")
        if entry.kind == "list":
            lists.add(entry.path)
        parent = found.get(above, LeafKeys(()))
        key = level if entry.key is None else decode_key(json.loads(entry.key))
        renamed = parent.renamed or key != level
        if above in lists:
            key = int(level)
        note = entry.note
        found[entry.path] = LeafKeys(
            (*parent.keys, key),
            renamed,
            parent.adapter or (None if note is None else note.name),
            parent.is_live or bool(note and note.meta.get("live")),
            note,
        )
    return found


def adapters_text(leaves: Iterable[tuple[str, LeafKeys]]) -> str:
    """Return which adapters made blobs, ``net (torch.nn.Module), opt (state_dict)``, by leaf."""
    found = {
        name.partition("/")[0]: keys.adapter
        for name, keys in leaves
        if keys.adapter is not None and not keys.adapter.startswith(_EVERYWHERE)
    }
    return ", ".join(f"{blob} ({adapter})" for blob, adapter in found.items())
