"""How two checkpoints differ: by their bits, blob by blob."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from checkpoint_helpers import blobs as random_blobs
from checkpoint_helpers import frozen, same, save
from hypothesis import given, settings

from jobrun.checkpoint.diff import BlobChange, CheckpointDiff, compare
from jobrun.checkpoint.reading import read_part
from jobrun.errors import DamagedError
from jobrun.storage.fs import Fs
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Box, leaves


def difference(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> CheckpointDiff:
    """Save both as they are adopted and compare them."""
    paths = [
        save(tmp_path / name, {k: adopt([v]) for k, v in blobs.items()})
        for name, blobs in (("a", before), ("b", after))
    ]
    return compare(*paths)


def change(tmp_path: Path, before: Any, after: Any) -> BlobChange | None:
    """How one blob changed."""
    found = difference(tmp_path, {"x": before}, {"x": after})
    assert (found.added, found.removed) == ([], [])
    return found.changed[0] if found.changed else None


def test_names(tmp_path: Path) -> None:
    found = difference(
        tmp_path,
        {"gone": 1, "tree": {"a": 1, "b": np.zeros(3)}, "same": "x", "empty": {}},
        {"new": {"deep": {"a": 1}}, "tree": {"a": 2, "c": 3}, "same": "x", "none": []},
    )
    assert list(found.removed) == ["gone", "tree/b", "empty"]
    assert list(found.added) == ["new/deep/a", "tree/c", "none"]
    assert [c.name for c in found.changed] == ["tree/a"]
    assert found.same == 1


def test_count_and_size_of_differences(tmp_path: Path) -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    b = np.array([1.0, 2.5, 3.0, 1.0, 0.0])
    assert change(tmp_path, a, b) == BlobChange("x", count=2, size=5, absolute=3.0, relative=0.75)


@pytest.mark.parametrize(
    ("a", "b", "absolute"),
    [
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2**64 - 1),
        (np.array([0], "u8"), np.array([2**64 - 1], "u8"), 2**64 - 1),
        (np.array([-128, 5], "i1"), np.array([127, 5], "i1"), 255),
        (np.array([7], ">i4"), np.array([-2], ">i4"), 9),
        (np.array([1 + 1j]), np.array([4 + 5j]), 5.0),
        (np.array([1, 2], "f2"), np.array([1, 4], "f2"), 2.0),
        (np.array([1.5], ml_dtypes.bfloat16), np.array([2.0], ml_dtypes.bfloat16), 0.5),
    ],
)
def test_differences_of_every_kind_of_number(
    tmp_path: Path, a: Any, b: Any, absolute: float
) -> None:
    found = change(tmp_path, a, b)
    assert found is not None
    assert (found.count, found.absolute) == (1, absolute)
    assert found.relative is not None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array([True, False]), np.array([True, True])),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array([b"a", b"b"]), np.array([b"a", b"c"])),
        (np.array([1, 2], "M8[s]"), np.array([1, 3], "M8[s]")),
        (np.array([(1, 2.0), (2, 3.0)], "i2,f8"), np.array([(1, 2.0), (2, 9.0)], "i2,f8")),
    ],
)
def test_what_has_no_difference_is_counted(tmp_path: Path, a: Any, b: Any) -> None:
    assert change(tmp_path, a, b) == BlobChange("x", count=1, size=2)


def test_bits_decide(tmp_path: Path) -> None:
    other_nan = np.array([0x7FF8000000000001], "u8").view("f8")
    a = np.array([np.nan, np.inf, 0.0, np.nan, 1.0, np.inf])
    assert change(tmp_path, a, a.copy()) is None
    b = np.array([np.nan, np.inf, -0.0, other_nan[0], 2.0, 5.0])
    found = change(tmp_path / "2", a, b)
    assert found == BlobChange("x", count=4, size=6, absolute=1.0, relative=0.5, not_finite=2)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (3, 5, BlobChange("x", before=3, after=5, count=1, size=1, absolute=2, relative=0.4)),
        (-(2**63), 2**63, BlobChange("x", "", "", -(2**63), 2**63, 1, 1, 2**64, 2.0)),
        (1.0, 4.0, BlobChange("x", "", "", 1.0, 4.0, 1, 1, 3.0, 0.75)),
        (np.float32(1), np.float32(2), BlobChange("x", "", "", 1.0, 2.0, 1, 1, 1.0, 0.5)),
        ("a", "b", BlobChange("x", before="a", after="b")),
        (True, False, BlobChange("x", before=True, after=False)),
        (1, 1.0, BlobChange("x", "int", "float", 1, 1.0)),
        (None, "x", BlobChange("x", "none", "str", None, "x")),
        (np.float32(1), np.float64(1), BlobChange("x", "float32", "float64", 1.0, 1.0)),
    ],
)
def test_single_values(tmp_path: Path, a: Any, b: Any, expected: BlobChange) -> None:
    assert change(tmp_path, a, b) == expected
    assert change(tmp_path / "same", a, a) is None


@pytest.mark.parametrize(
    ("a", "b", "was", "now"),
    [
        (np.zeros((2, 3), "f4"), np.zeros((3, 2), "f4"), "float32 [2, 3]", "float32 [3, 2]"),
        (np.zeros(2, "f4"), np.zeros(2, ">f4"), "float32 [2]", ">f4 [2]"),
        (np.zeros(2), 3.0, "float64 [2]", "float"),
        ({"a": 1}, 3, "dict", "int"),
        ([], {}, "list", "dict"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "keys a, b", "keys b, a"),
    ],
)
def test_what_a_blob_is(tmp_path: Path, a: Any, b: Any, was: str, now: str) -> None:
    found = difference(tmp_path, {"x": a}, {"x": b}).changed
    assert [(c.name, c.was, c.now) for c in found] == [("x", was, now)]


def test_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.checkpoint.diff._BLOCK", 7)
    a = np.arange(100.0)
    b = a.copy()
    b[[3, 50, 99]] += [1, 2, 0.5]
    assert change(tmp_path, a, b) == BlobChange("x", count=3, size=100, absolute=2.0, relative=0.25)


def test_several_nodes(tmp_path: Path) -> None:
    from jobrun import CheckpointManager

    for name, value in (("a", 1), ("b", 2)):
        with CheckpointManager(tmp_path / name) as manager:
            manager.save(0, {"x": {"n": value}, "y": {"n": 7}})
    found = compare(tmp_path / "a/checkpoint_0", tmp_path / "b/checkpoint_0")
    assert ([c.name for c in found.changed], found.same) == (["x:n"], 1)


def test_the_same_files_are_not_read(tmp_path: Path) -> None:
    opened: list[str] = []

    class Watching(Fs):
        def at(self, op: str, path: str) -> None:
            if op == "open":
                opened.append(path)

    blobs = {"x": Box(frozen(np.arange(5.0)), "array")}
    a, b = save(tmp_path / "a", blobs), save(tmp_path / "b", blobs)
    assert compare(a, b, Watching()).same == 1
    assert any(path.endswith("x/0") for path in opened)
    for name in os.listdir(a / "main/x"):
        (b / "main/x" / name).unlink()
        os.link(a / "main/x" / name, b / "main/x" / name)
    opened.clear()
    assert compare(a, b, Watching()).same == 1
    assert not any(path.endswith("x/0") for path in opened)


def test_damage_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    blobs = {"x": Box(frozen(np.arange(5.0)), "array")}
    a, b = save(tmp_path / "a", blobs), save(tmp_path / "b", blobs)
    chunk = b / "main/x/0"
    chunk.write_bytes(b"\1" + chunk.read_bytes()[1:])
    with pytest.raises(DamagedError, match="checksum") as error:
        compare(a, b)
    assert str(error.value.where) == str(chunk)


@settings(max_examples=40, deadline=None)
@given(random_blobs(), random_blobs())
def test_what_is_said_to_be_the_same_is(
    tmp_path_factory: pytest.TempPathFactory, before: Any, after: Any
) -> None:
    """Every leaf is the same, changed, added or removed, and the same ones are so to the bit."""
    tmp_path = tmp_path_factory.mktemp("compare")
    a, b = save(tmp_path / "a", before), save(tmp_path / "b", after)
    found = compare(a, b)
    parts = [read_part(path, "main") for path in (a, b)]
    x, y = ({p: v for n, w in part.items() for p, v in leaves(w, n)} for part in parts)
    alike = {p for p in x if p in y and same(x[p], y[p])}
    changed = {c.name for c in found.changed if c.name in x or c.name in y}
    assert found.same == len(alike)
    assert changed >= {p for p in x if p in y} - alike
    assert not changed & alike
    assert {n for n in found.added if n in y} == {p for p in y if p not in x and p not in changed}
    assert {n for n in found.removed if n in x} == {p for p in x if p not in y and p not in changed}
    itself = compare(a, a)
    assert (itself.added, itself.removed, itself.changed) == ([], [], [])
    assert itself.same == len(x)
