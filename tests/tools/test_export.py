"""Blobs as files of other programs."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.errors import UsageError
from jobrun.storage.fs import DEFAULT
from jobrun.tools.export import export, names_in_file, not_stripped
from jobrun.tools.inspect import pick, read
from jobrun.tools.torch_file import read_values, write_torch
from jobrun.values.boxes import Box

W1 = np.arange(20.0).reshape(5, 4)
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


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


# Names in files, and what a library takes.


def saved(tmp_path: Path, blobs: dict[str, Any]) -> Path:
    CheckpointManager(tmp_path / "run").save(0, {"main": blobs})
    return tmp_path / "run/checkpoint_0"


NET = {"net": {"0.weight": W1, "W": np.ones(2), "w": np.zeros(2), "a/b": np.float32(1)}}


def test_names_in_a_file_are_the_keys_without_what_is_stripped(tmp_path: Path) -> None:
    picked = pick(saved(tmp_path, NET), ["net"])[1]
    assert sorted(names_in_file(picked, "x.npz", "net/").values()) == ["0.weight", "W", "a/b", "w"]
    names = names_in_file(picked, "x/")
    assert all(name == path for name, path in names.items())  # valid names of files
    assert len({name.casefold() for name in names}) == 4


def test_what_fits_a_beginning_is_named(tmp_path: Path) -> None:
    error = not_stripped("net/m.", ["net/m.w", "net/n"], tmp_path / "x.pt")
    assert str(error.message).endswith("got 'net/n'")
    assert error.hint == "those with it alone are exported by their name: 'net/m.*'"


@pytest.mark.parametrize("strip", ["net", "nets/", "net/0", "net/0.weight"])
def test_names_that_cannot_be_stripped(strip: str, tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, {**NET, "net2": 1})
    with pytest.raises(UsageError, match=f"--strip {strip}: expected names that begin with it"):
        names_in_file(pick(checkpoint)[1], "x.npz", strip)


def test_two_leaves_of_one_name_in_a_file(tmp_path: Path) -> None:
    picked = pick(saved(tmp_path, {"t": {"a/b": 1, "a": {"b": 2}}}))[1]
    with pytest.raises(UsageError, match="would both be 't/a/b' in the file"):
        names_in_file(picked, "x.npz")


@pytest.mark.parametrize(
    "name", ["x.safetensors", "x.npz", "x.npy", pytest.param("x.pt", marks=needs_torch)]
)
def test_files_have_the_mode_of_any_new_file(name: str, tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, {"w": W1})
    before = os.umask(0o027)
    try:
        if name == "x.pt":
            write_torch(
                read_values(checkpoint, read_record(DEFAULT, str(checkpoint)))[2], tmp_path / name
            )
        else:
            export(read(checkpoint, pick(checkpoint)[1]), tmp_path / name)
    finally:
        os.umask(before)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o640


def written(checkpoint: Path, names: list[str], strip: str = "") -> Any:
    """What torch reads of the file that is written of some blobs."""
    import torch

    values = read_values(checkpoint, read_record(DEFAULT, str(checkpoint)), names)[2]
    target = checkpoint.parent / "x.pt"
    write_torch(values, target, strip)
    return torch.load(target, weights_only=True)


@needs_torch
def test_pt_keeps_nesting_and_keys(tmp_path: Path) -> None:
    import torch

    state = {"state": {0: {"step": np.float32(3)}, 1: {}}, "groups": [{"betas": (0.9, 0.99)}]}
    blobs = {"opt": state, "bits": np.array([1, 2.5], ml_dtypes.bfloat16), "none": None, "s": "é"}
    found = written(saved(tmp_path, blobs), [])
    assert found["opt"]["state"] == {0: {"step": torch.tensor(3.0)}, 1: {}}
    assert found["opt"]["groups"] == [{"betas": (0.9, 0.99)}]
    assert found["bits"].dtype == torch.bfloat16
    assert found["bits"].tolist() == [1, 2.5]
    assert (found["none"], found["s"]) == (None, "é")
    again = tmp_path / "run/checkpoint_0"
    assert [*written(again, ["opt"], "opt/")] == ["state", "groups"]
    assert [*written(again, ["opt/state"], "opt/")] == ["state"]


@needs_torch
def test_what_pt_cannot_hold_is_named(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path, {"t": {"when": np.array(["2026-11-28"], "M8[D]")}, "w": W1})
    with pytest.raises(UsageError, match="no form for 't/when', which is of datetime64"):
        written(checkpoint, [])
    with pytest.raises(UsageError, match=r"holds no slices: w\[0:1\]"):
        written(checkpoint, ["w[0:1]"])
    with pytest.raises(UsageError, match="--strip x: expected names that begin with it"):
        written(checkpoint, ["w"], "x")
    assert not (tmp_path / "run/x.pt").exists()
