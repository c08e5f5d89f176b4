"""Blobs as files of other programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import UsageError
from jobrun.tools.export import export
from jobrun.tools.inspect import pick, read
from jobrun.values.boxes import Box

W1 = np.arange(20.0).reshape(5, 4)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Box]:
    """Blobs of many kinds, read from a checkpoint."""
    blobs: dict[str, Any] = {
        "model": {"w1": W1, "big": np.arange(3, dtype=">i4"), "flag": True},
        "file": np.array([1, 2]),
        "name": "é [bold]",
        "nothing": None,
        "half": np.array([1, 2.5, 3], ml_dtypes.bfloat16),
        "when": np.array(["2026-11-28"], "M8[D]"),
    }
    root = tmp_path_factory.mktemp("one")
    CheckpointManager(root).save(3, {"main": blobs})
    return read(root / "checkpoint_0", pick(root / "checkpoint_0")[1])


def only(boxes: dict[str, Box], *names: str) -> dict[str, Box]:
    return {name: boxes[name] for name in names}


def test_npz(boxes: dict[str, Box], tmp_path: Path) -> None:
    assert export(boxes, tmp_path / "out.npz") == ["nothing"]
    with np.load(tmp_path / "out.npz") as found:
        assert sorted(found) == sorted(name for name in boxes if name != "nothing")
        np.testing.assert_array_equal(found["model/w1"], W1)
        assert found["file"].tolist() == [1, 2]
        assert found["name"].item() == "é [bold]"
        assert found["half"].dtype == np.uint16
    assert os.listdir(tmp_path) == ["out.npz"]


@pytest.mark.parametrize("target", ["out", "out/", "out.d/", "there.npz/"])
def test_a_directory(target: str, boxes: dict[str, Box], tmp_path: Path) -> None:
    wanted = only(boxes, "model/w1", "file", "nothing")
    assert export(wanted, f"{tmp_path}/{target}") == ["nothing"]
    np.testing.assert_array_equal(np.load(tmp_path / target / "model/w1.npy"), W1)
    assert sorted(p.name for p in (tmp_path / target).rglob("*")) == ["file.npy", "model", "w1.npy"]


def test_one_blob_as_npy(boxes: dict[str, Box], tmp_path: Path) -> None:
    assert export(only(boxes, "model/w1"), tmp_path / "w.npy") == []
    np.testing.assert_array_equal(np.load(tmp_path / "w.npy"), W1)
    with pytest.raises(UsageError, match="holds one blob, and these are 2") as caught:
        export(only(boxes, "model/w1", "file"), tmp_path / "v.npy")
    assert caught.value.hint.endswith("v.npz")


def test_safetensors(boxes: dict[str, Box], tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    wanted = only(boxes, "model/w1", "model/big", "model/flag", "file", "nothing")
    assert export(wanted, target, {"job": "digits", "epoch": "3"}) == ["nothing"]
    found = load_file(target)
    assert sorted(found) == ["file", "model/big", "model/flag", "model/w1"]
    np.testing.assert_array_equal(found["model/w1"], W1)
    assert found["model/big"].tolist() == [0, 1, 2]
    assert found["model/flag"].shape == ()
    with safe_open(target, "np") as file:
        assert file.metadata() == {"job": "digits", "epoch": "3"}


def test_safetensors_of_bfloat16(boxes: dict[str, Box], tmp_path: Path) -> None:
    target = tmp_path / "out.safetensors"
    export(only(boxes, "half"), target)
    data = target.read_bytes()
    assert b'"dtype":"BF16"' in data
    assert data.endswith(np.array([1, 2.5, 3], ml_dtypes.bfloat16).tobytes())


@pytest.mark.parametrize(("name", "what"), [("name", "of str"), ("when", r"of datetime64\[D\]")])
def test_what_safetensors_cannot_hold(
    name: str, what: str, boxes: dict[str, Box], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"no form for '{name}', which is {what}"):
        export(only(boxes, "model/w1", name), tmp_path / "out.safetensors")
    assert os.listdir(tmp_path) == []


def test_without_the_library(
    boxes: dict[str, Box], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UsageError, match="needs the library safetensors") as caught:
        export(only(boxes, "file"), tmp_path / "out.safetensors")
    assert caught.value.hint == "pip install 'jobrun[safetensors]'"


def test_what_cannot_be(boxes: dict[str, Box], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown file ending '\.mat'") as caught:
        export(boxes, tmp_path / "out.mat")
    assert caught.value.hint.endswith("out.mat/")
    with pytest.raises(UsageError, match="No such file"):
        export(only(boxes, "file"), tmp_path / "no" / "out.npz")
    (tmp_path / "plain").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        export(only(boxes, "model/w1"), f"{tmp_path}/plain/")
