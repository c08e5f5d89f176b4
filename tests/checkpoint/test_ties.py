"""One array at two places of a tree: stored once, and one array again when it is read."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from checkpoint_helpers import CountingFs, save
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun import CheckpointManager, load_blobs, open_checkpoint
from jobrun.checkpoint.contents import contents
from jobrun.checkpoint.diff import compare
from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.part import mark_saved, write_part
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import RecordFields, encode_record
from jobrun.checkpoint.scrub import Survey
from jobrun.core.position import Position
from jobrun.errors import DamagedError
from jobrun.model.policy import Compress, Keep
from jobrun.storage.fs import Fs
from jobrun.tools.export import export
from jobrun.values.adapters.pytree import PYTREE
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, Tree, Value, leaves
from jobrun.values.plain import read_state, to_plain
from jobrun.values.views import view


def tree(*, tied: bool = True, start: float = 0.0) -> Value:
    """A tree with one array at three places, or three equal arrays; and another array."""
    w = np.arange(1000.0) + start
    other = w if tied else w.copy()
    return adopt([{"a": w, "x": np.ones(3), "b": other, "l": [other if tied else w.copy(), 1]}])


def manifest(path: Path, node: str = "main") -> dict[str, Any]:
    lines = json.loads((path / f"manifest.{node}.json").read_text())["entries"]
    return {entry["path"]: entry for entry in lines}


def same_as(path: Path) -> dict[str, str]:
    return {p: entry["same_as"] for p, entry in manifest(path).items() if "same_as" in entry}


def ties(blobs: Mapping[str, Value]) -> list[list[str]]:
    """The paths of arrays that are one."""
    found: dict[int, list[str]] = {}
    for name, value in blobs.items():
        for path, box in leaves(value, name):
            if box.kind == "array":
                found.setdefault(id(box), []).append(path)
    return [paths for paths in found.values() if len(paths) > 1]


def inode(path: Path, name: str) -> int:
    return os.stat(path / "main" / name).st_ino


class NoLinks(CountingFs):
    """A file system that cannot link."""

    def at(self, op: str, path: str) -> None:
        super().at(op, path)
        if op == "link":
            raise OSError(errno.EPERM, "no")


def test_it_is_stored_once_and_is_one_array_again(tmp_path: Path) -> None:
    blobs = {"s": tree(), "z": tree(tied=False)}
    path = save(tmp_path, blobs)
    assert same_as(path) == {"s/b": "s/a", "s/l/0": "s/a"}
    assert inode(path, "s/a/0") == inode(path, "s/b/0") == inode(path, "s/l/0/0")
    assert len({inode(path, f"z/{name}/0") for name in ("a", "b", "l/0")}) == 3
    found = read_part(path, "main")
    assert ties(found) == [["s/a", "s/b", "s/l/0"]]
    assert all(box.tied for p, box in leaves(found["s"], "s") if p in ("s/a", "s/b", "s/l/0"))
    assert view(found["s"])["b"].tolist() == list(range(1000))
    assert next(Survey().verify([path])).whole


def test_where_links_fail_the_files_are_copied_and_it_is_one_array_all_the_same(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, {"s": tree()}, fs=NoLinks())
    assert len({inode(path, f"s/{name}/0") for name in ("a", "b", "l/0")}) == 3
    assert same_as(path) == {"s/b": "s/a", "s/l/0": "s/a"}
    assert next(Survey().verify([path])).whole
    assert ties(read_part(path, "main")) == [["s/a", "s/b", "s/l/0"]]


def test_links_say_nothing(tmp_path: Path) -> None:
    """A copy of a checkpoint without links is the same; two arrays that are one file are two."""
    path = save(tmp_path, {"s": tree(tied=False)})
    (path / "main/s/b/0").unlink()
    os.link(path / "main/s/a/0", path / "main/s/b/0")
    assert ties(read_part(path, "main")) == []
    tied = save(tmp_path / "tied", {"s": tree()})
    copied = shutil.copytree(tied, tmp_path / "copied" / tied.name)
    assert ties(read_part(copied, "main")) == [["s/a", "s/b", "s/l/0"]]


@pytest.mark.parametrize("names", [["s/b"], ["s/l"], ["s/b", "s/x"]])
def test_a_place_that_is_read_alone_needs_no_other(tmp_path: Path, names: list[str]) -> None:
    path = save(tmp_path, {"s": tree()})
    shutil.rmtree(path / "main/s/a")
    found = read_part(path, "main", names)
    assert view(found[names[0]] if names != ["s/l"] else found["s/l"].items["0"])[999] == 999.0
    assert ties(found) == []


def test_two_places_that_are_read_by_name_are_one(tmp_path: Path) -> None:
    path = save(tmp_path, {"s": tree()})
    assert ties(read_part(path, "main", ["s/l/0", "s/x", "s/a"])) == [["s/l/0", "s/a"]]
    assert ties(read_part(path, "main", ["s/b", "s/l"])) == []


def test_blobs_that_persist_in_part_are_tied_too(tmp_path: Path) -> None:
    s = tree()
    assert isinstance(s, Tree)
    path = save(tmp_path, {"s/a": s.items["a"], "s/b": s.items["b"]})
    assert same_as(path) == {"s/b": "s/a"}
    assert ties(read_part(path, "main")) == [["s/a", "s/b"]]
    assert same_as(save(tmp_path / "one", {"s/b": s.items["b"]})) == {}


def test_separate_blobs_are_never_tied(tmp_path: Path) -> None:
    box = Box(np.arange(3.0), "array")
    box.tied = True
    path = save(tmp_path, {"p": box, "q": box})
    assert same_as(path) == {}
    assert inode(path, "p/0") != inode(path, "q/0")


def test_zarr_and_load_blobs_see_all_places(tmp_path: Path) -> None:
    path = save(tmp_path, {"s": tree()})
    group = open_checkpoint(path)
    for name in ("s/a", "s/b", "s/l/0"):
        assert np.array_equal(group[f"main/{name}"][...], np.arange(1000.0))
        assert np.array_equal(load_blobs(path)[name], np.arange(1000.0))
        assert np.array_equal(load_blobs(path, [name])[name], np.arange(1000.0))


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_exports_hold_all_places(tmp_path: Path, ending: str) -> None:
    if ending == "safetensors":
        pytest.importorskip("safetensors")
    path = save(tmp_path, {"s": tree()})
    boxes = {p: b for p, b in leaves(read_part(path, "main")["s"], "s") if b.kind == "array"}
    target = tmp_path / f"out.{ending}"
    export(boxes, target)
    if ending == "npz":
        found = dict(np.load(target))
    else:
        from safetensors.numpy import load_file

        found = load_file(target)
    assert sorted(found) == ["s/a", "s/b", "s/l/0", "s/x"]
    assert np.array_equal(found["s/b"], np.arange(1000.0))


class Loop:
    """Saves of a run, one after another."""

    def __init__(self, run_dir: Path, **options: Any) -> None:
        self.manager = CheckpointManager(run_dir, **options)
        self.fs = options.get("fs", Fs())
        self.epoch = 0

    def save(self, **blobs: Value) -> Path:
        source = BlobSource({"main": blobs}, self.fs)
        fields = RecordFields(Position(epochs=self.epoch))
        self.epoch += 1
        return self.manager.save_snapshot(source, fields).path


@pytest.mark.parametrize("link", ["parent", "alternate", "never"])
def test_what_did_not_change_is_linked_once_and_stays_tied(tmp_path: Path, link: str) -> None:
    loop, value = Loop(tmp_path / "run", link=link), tree()
    paths = [loop.save(s=value) for _ in range(4)]
    for path in paths:
        assert same_as(path) == {"s/b": "s/a", "s/l/0": "s/a"}
        assert next(Survey().verify([path])).whole
        found = {item.name: item.links for item in contents(path)[1]}
        assert found["s/a"] == found["s/b"] == found["s/l/0"]
    distinct = {"parent": 1, "alternate": 2, "never": 4}[link]
    assert len({inode(path, "s/b/0") for path in paths}) == distinct
    files = [file.stat() for path in paths for file in path.rglob("*") if file.is_file()]
    use = sum({status.st_ino: status.st_size for status in files}.values())
    assert use < (distinct + 1) * 8100 + 4 * 12_000


def test_what_is_no_longer_tied_is_not_said_to_be(tmp_path: Path) -> None:
    loop, value = Loop(tmp_path / "run", link="parent"), tree()
    assert isinstance(value, Tree)
    loop.save(s=value)
    again = Tree("dict", {**value.items, "a": adopt([np.zeros(1000)])})
    path = loop.save(s=again)
    assert same_as(path) == {"s/l/0": "s/b"}
    found = read_part(path, "main")
    assert view(found["s"])["a"].sum() == 0
    assert view(found["s"])["b"].sum() == 499500
    assert ties(found) == [["s/b", "s/l/0"]]
    assert next(Survey().verify([path])).whole


def test_retention_and_a_resume_keep_it(tmp_path: Path) -> None:
    loop, value = Loop(tmp_path / "run", keep=Keep(last=1)), tree()
    for _ in range(3):
        path = loop.save(s=value)
    loop.manager.wait()
    value = read_part(path, "main")["s"]
    assert ties({"s": value}) == [["s/a", "s/b", "s/l/0"]]
    assert ties(read_part(loop.save(s=value), "main")) == [["s/a", "s/b", "s/l/0"]]


@pytest.mark.parametrize("blobs", ["s/*", "s/b"])
def test_compressed(tmp_path: Path, blobs: str) -> None:
    compress = [Compress("zstd", 3, blobs)]
    (tmp_path / "c").mkdir()
    value = {"s": tree()}
    write_part(tmp_path / "c", "main", value, id=0, compress=compress)
    entries = manifest(tmp_path / "c")
    assert entries["s/a"]["files"] == entries["s/b"]["files"] == entries["s/l/0"]["files"]
    assert (entries["s/a"]["files"][1][1] < 8000) == (blobs == "s/*")
    mark_saved(value, 0)


def test_a_difference_of_ties_is_one(tmp_path: Path) -> None:
    a, b = save(tmp_path / "a", {"s": tree()}), save(tmp_path / "b", {"s": tree(tied=False)})
    found = compare(a, b)
    assert [(c.name, c.was, c.now) for c in found.changed] == [
        ("s/b", "float64 [1000], the same array as s/a", "float64 [1000]"),
        ("s/l/0", "float64 [1000], the same array as s/a", "float64 [1000]"),
    ]
    assert compare(a, a).changed == []
    assert [c.name for c in compare(a, save(tmp_path / "c", {"s": tree(start=1)})).changed] == [
        "s/a", "s/b", "s/l/0",
    ]  # fmt: skip


def test_inspect_counts_the_names_in_other_checkpoints_alone(tmp_path: Path) -> None:
    loop, value = Loop(tmp_path / "run", link="never"), tree()
    loop.save(s=value)
    items = contents(loop.save(s=value))[1]
    assert {item.name: item.stored for item in items}["s/b"] == "written"


def test_a_manifest_that_ties_what_differs_is_damage(tmp_path: Path) -> None:
    path = save(tmp_path, {"s": tree()})
    file = path / "manifest.main.json"
    file.write_text(file.read_text().replace('"same_as": "s/a"', '"same_as": "s/x"'))
    with pytest.raises(DamagedError):
        read_part(path, "main")


def shared() -> Value:
    """The state of a tree in which a dict stands at three places, and a list at two."""
    inner, items = {"w": np.arange(3.0), "n": 1}, [1, np.ones(2)]
    return read_state(PYTREE, {"a": inner, "b": {"c": inner, "l": items}, "d": inner, "m": items})


def test_a_dict_or_list_of_a_live_tree_is_one_again(tmp_path: Path) -> None:
    path = save(tmp_path, {"s": shared(), "x/s": shared(), "x/t": shared()})
    trees = {k: v for k, v in same_as(path).items() if manifest(path)[k]["kind"] != "array"}
    once = {"b/c": "a", "d": "a", "m": "b/l"}
    roots = ("s", "x/s", "x/t")
    assert trees == {f"{r}/{place}": f"{r}/{first}" for r in roots for place, first in once.items()}
    assert next(Survey().verify([path])).whole
    for value in (read_part(path, "main")["s"], read_part(path, "main", ["s"])["s"]):
        made = to_plain(value, writable=True)
        assert made["a"] is made["b"]["c"] is made["d"]
        assert made["b"]["l"] is made["m"]
    assert to_plain(read_part(path, "main", ["s/d"])["s/d"])["w"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("first", ["s", "s/d", "s/e", "s/e/x"])
def test_a_manifest_that_ties_other_trees_is_damage(first: str, tmp_path: Path) -> None:
    """A tree that holds it, itself, one with other keys, and a list."""
    path = save(tmp_path, {"s": read_state(PYTREE, {"e": {"x": []}, "d": {"y": 1}})})
    entries = json.loads((path / "manifest.main.json").read_text())
    next(e for e in entries["entries"] if e["path"] == "s/d")["same_as"] = first
    data = json.dumps(entries).encode()
    (path / "manifest.main.json").write_bytes(data)
    record = read_record(Fs(), str(path))
    digest = f"{crc32c.crc32c(data):08x}"
    (path / "_SUCCESS").write_bytes(encode_record(replace(record, manifests={"main": digest})))
    with pytest.raises(DamagedError, match="not the same tree"):
        read_part(path, "main")


def test_saving_by_hand_ties_as_well(tmp_path: Path) -> None:
    w = np.arange(4.0)
    with CheckpointManager(tmp_path / "run") as manager:
        for number, wait in enumerate((True, False)):
            blobs = {"s": {"a": w, "b": w, "n": 1}, "p": w, "q": w, "v": {"a": w, "b": w[1:]}}
            manager.save(number, {"main": blobs}, wait=wait)
            manager.wait()
            path = manager.path(number)
            assert same_as(path) == {"s/b": "s/a"}
            found = load_blobs(path)
            assert found["s/b"].tolist() == [0, 1, 2, 3]
            assert found["v/b"].tolist() == [1, 2, 3]


@settings(deadline=None, max_examples=30)
@given(places=st.lists(st.integers(0, 3), min_size=1, max_size=8), links=st.booleans())
def test_any_pattern_of_ties_comes_back(
    places: list[int], links: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    arrays = [np.full(3, float(i)) for i in range(4)]
    objs = {f"k{i}": {"x": arrays[n]} if i % 2 else [arrays[n]] for i, n in enumerate(places)}
    blobs = {"s": adopt([objs])}
    path = save(tmp_path_factory.mktemp("r"), blobs, fs=None if links else NoLinks())
    found = read_part(path, "main")
    assert ties(found) == ties(blobs)
    expected: dict[int, list[int]] = {}
    for i, n in enumerate(places):
        expected.setdefault(n, []).append(i)
    assert len(ties(found)) == sum(len(group) > 1 for group in expected.values())
