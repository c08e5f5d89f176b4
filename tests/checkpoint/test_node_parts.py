"""Which blobs the nodes of a checkpoint do not hold alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager
from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.node_parts import unequal_blobs
from jobrun.storage.fs import DEFAULT


def unequal(folder: Path, *nodes: dict[str, Any]) -> list[str]:
    manager = CheckpointManager(folder / "run")
    manager.save(0, {f"n{number}": blobs for number, blobs in enumerate(nodes)})
    path = folder / "run/checkpoint_0"
    return unequal_blobs(path, read_record(DEFAULT, str(path)))


def test_what_all_nodes_hold_alike_is_not_named(tmp_path: Path) -> None:
    blobs = {"w": np.arange(5.0), "tree": {"a": np.ones(3), "b": 1}, "n": 3, "none": None}
    assert unequal(tmp_path, blobs, blobs, {**blobs, "w": np.arange(5.0)}) == []


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("w", np.array([0.0, 1.0])),
        ("w", np.array([0, 1, 2])),
        ("w", np.array([0.0, 1.0, 3.0])),
        ("tree", {"a": np.ones(3), "b": 2}),
        ("tree", {"b": 1, "a": np.zeros(3)}),
        ("tree", {"a": np.ones(3)}),
        ("n", 4),
        ("n", 3.0),
        ("text", "b"),
        ("more", 1),
    ],
)
def test_what_differs_is_named_by_its_blob(tmp_path: Path, name: str, other: Any) -> None:
    blobs = {
        "w": np.array([0.0, 1.0, 2.0]),
        "tree": {"a": np.ones(3), "b": 1},
        "n": 3,
        "text": "a",
    }
    assert unequal(tmp_path, blobs, blobs, {**blobs, name: other}) == [name]


def test_global_generators_are_each_nodes_own(tmp_path: Path) -> None:
    parts = [{"rng.numpy": {"pos": n}, "w": 1.0} for n in range(2)]
    assert unequal(tmp_path, *parts) == []
