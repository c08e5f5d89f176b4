"""Keys that are not names, and which adapter made a value, through a checkpoint and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import frozen, same_blobs, save

from jobrun.checkpoint.manifest import Entry, File, Manifest, decode_manifest, encode_manifest
from jobrun.checkpoint.reading import read_part
from jobrun.core.tree_keys import folder_names
from jobrun.errors import DamagedError
from jobrun.values.adapters.base import Note
from jobrun.values.boxes import Box, Tree, Value, leaves

META = File("zarr.json", 5, 1)
KEYS = ("W", "w", "", "a/b", 0, "0", -3, True, None, 0.5, ("s", 1), "zarr.json", ".x")


def _tree() -> Tree:
    names = folder_names(KEYS)
    items: dict[str, Value] = {n: Box(i, "int") for i, n in enumerate(names)}
    return Tree("dict", items, KEYS, Note("test.Tree", 2, {"a": [1, None]}))


def test_keys_and_notes_come_back(tmp_path: Path) -> None:
    array = Box(frozen(np.arange(3.0)), "array")
    array.note = Note("test.Array")
    blobs: dict[str, Value] = {"t": _tree(), "a": array, "l": Tree("list", {"0": _tree()})}
    path = save(tmp_path, blobs)
    found = read_part(path, "main")
    assert same_blobs(found, blobs)
    for tree in (found["t"], found["l"].items["0"]):  # type: ignore[union-attr]
        assert isinstance(tree, Tree)
        assert tree.keys == KEYS
        assert [*map(type, tree.keys)] == [*map(type, KEYS)]
        assert tree.note == Note("test.Tree", 2, {"a": [1, None]})
    assert found["a"].note == Note("test.Array")
    assert read_part(path, "main", ["t"])["t"].keys == KEYS  # type: ignore[union-attr]


def test_an_unchanged_leaf_keeps_its_files_and_has_the_note_of_now(tmp_path: Path) -> None:
    blobs: dict[str, Value] = {"a": Box(frozen(np.arange(3.0)), "array")}
    first, _ = save(tmp_path, blobs), save(tmp_path, blobs)
    blobs["a"].note = Note("test.Array")
    third = save(tmp_path, blobs)
    assert read_part(third, "main")["a"].note == Note("test.Array")
    assert (first / "main/a/0").samefile(third / "main/a/0")


def _entry(**fields: Any) -> bytes:
    entries = [
        Entry("", "group", (META,)),
        Entry("t", "dict", (META,)),
        Entry("t/a", "int", (META,), None, (), 3),
    ]
    lines = encode_manifest(Manifest(3, "main", entries)).splitlines()
    last = json.loads(lines[3]) | fields
    return b"\n".join([*lines[:3], json.dumps(last).encode(), b"]}", b""])


@pytest.mark.parametrize(
    "fields",
    [
        {"key": [1]},
        {"key": {"x": 1}},
        {"key": 0.5},
        {"adapter": None},
        {"adapter": {"name": 1, "version": 1, "meta": {}}},
        {"adapter": {"name": "x", "version": "1", "meta": {}}},
        {"adapter": {"name": "x", "version": 1, "meta": []}},
        {"adapter": {"name": "x" * 201, "version": 1, "meta": {}}},
        {"adapter": {"name": "x", "version": 1}},
    ],
    ids=str,
)
def test_forged_keys_and_adapters_are_damage(fields: dict[str, Any]) -> None:
    with pytest.raises(DamagedError):
        decode_manifest(_entry(**fields), "here")


def test_good_ones_are_not() -> None:
    note = {"name": "x", "version": 1, "meta": {"a": 1}}
    entry = decode_manifest(_entry(key=3, adapter=note), "here").entries[2]
    assert (entry.key, entry.note) == ("3", Note("x", 1, {"a": 1}))


def test_leaves_of_a_keyed_tree_have_the_names_of_folders() -> None:
    assert [path for path, _ in leaves(_tree(), "t")] == [f"t/{n}" for n in folder_names(KEYS)]
