"""``jobrun load-blobs``: tables, JSON, export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from jobrun import CheckpointManager, load_blobs

Call = Callable[..., Any]


@pytest.fixture
def run(folder: Path) -> Path:
    """A run of two checkpoints."""
    manager = CheckpointManager(folder / "runs/m")
    for epoch in (0, 1):
        w1 = np.arange(12.0).reshape(4, 3) + epoch
        blobs = {"model": {"w1": w1, "b1": np.array([0.5, np.nan], np.float32)}, "n": epoch}
        manager.save(epoch, {"main": {**blobs, "text": "[bold]\x1b", "nothing": None}})
    manager.close()
    return folder / "runs/m"


TABLE = """\
runs/m/checkpoint_1: epoch 1
name      dtype    shape   bytes  values
model/w1  float64  (4, 3)     96  min 1  mean 6.5  max 12
model/b1  float32  (2,)        8  [0.5, nan]
n         int                     1
text      str                     '[bold]\\x1b'
nothing   none                    -
"""


@pytest.mark.usefixtures("run")
def test_the_newest_checkpoint_of_the_newest_run(call: Call) -> None:
    for arguments in ((), ("m",), ("runs/m",), ("runs/m/checkpoint_1",)):
        result = call("load-blobs", *arguments)
        assert (result.code, result.out, result.err) == (0, TABLE, "")


@pytest.mark.usefixtures("run")
def test_an_epoch_and_names(call: Call) -> None:
    result = call("load-blobs", "m", "n", "model/w1[1:3,0]", "--epoch", "0")
    assert result.out == (
        "runs/m/checkpoint_0: epoch 0\n"
        "name             dtype    shape  bytes  values\n"
        "n                int                    0\n"
        "model/w1[1:3,0]  float64  (2,)      16  [3, 6]\n"
    )


def test_the_best(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/b") as manager:
        for epoch, loss in enumerate((3.0, 1.0, 2.0)):
            manager.save(epoch, {"main": {"n": epoch}}, metrics={"loss": loss, "size": epoch})
    for args, epoch in ((("--by", "loss:min"), 1), (("--best", "--by", "size:max"), 2)):
        result = call("load-blobs", "b", "n", *args)
        assert (result.code, result.err) == (0, "")
        assert result.out.splitlines()[0].endswith(f"checkpoint_{epoch}: epoch {epoch}")
    assert call("load-blobs", "b", "--by", "loss:min", "-o", "n.npz", "-q").code == 0
    assert np.load("n.npz")["n"] == 1
    result = call("checkpoints", "inspect", "b", "--by", "loss:min")
    assert "checkpoint_1: id 1" in result.out
    for args, text in (
        (("--best",), "best by which metric?"),
        (("--by", "loss:min", "--epoch", "1"), "--epoch, --id or --best: one of them"),
        (("--by", "loss:min", "--fallback"), "not with --epoch, --id or --best"),
    ):
        result = call("load-blobs", "b", *args)
        assert (result.code, text in result.err) == (2, True)


@pytest.mark.parametrize("pattern", ["mode?", "model/", "*1", "main:model", "*:m*"])
def test_patterns_mean_what_they_mean_in_python(call: Call, run: Path, pattern: str) -> None:
    shown = json.loads(call("load-blobs", "m", pattern, "--json").out)["blobs"]
    assert list(shown) == ["model/w1", "model/b1"]
    loaded = load_blobs(run, pattern)
    assert [*loaded.get("model", {})] == ["w1", "b1"] or list(loaded) == list(shown)


@pytest.mark.usefixtures("run")
def test_as_json(call: Call) -> None:
    found = json.loads(call("load-blobs", "m", "model", "nothing", "--json").out)
    assert (found["id"], found["epoch"]) == (1, 1)
    assert found["checkpoint"].endswith("runs/m/checkpoint_1")
    assert found["blobs"] == {
        "model/w1": {
            "kind": "array",
            "dtype": "float64",
            "shape": [4, 3],
            "bytes": 96,
            "min": 1.0,
            "mean": 6.5,
            "max": 12.0,
        },
        "model/b1": {
            "kind": "array",
            "dtype": "float32",
            "shape": [2],
            "bytes": 8,
            "value": [0.5, "NaN"],
        },
        "nothing": {"kind": "none", "value": None},
    }


@pytest.mark.usefixtures("run")
def test_export(call: Call, folder: Path) -> None:
    result = call("load-blobs", "m", "-o", "out.npz")
    assert (result.code, result.out) == (0, "4 blobs written to out.npz\n")
    assert result.err == "warning: nothing is None, and is not exported\n"
    with np.load(folder / "out.npz") as found:
        assert sorted(found) == ["model/b1", "model/w1", "n", "text"]
    assert call("load-blobs", "m", "model/*", "--output", "out").code == 0
    assert np.load(folder / "out/model/w1.npy")[0, 0] == 1


def test_an_integer_of_more_than_64_bits_is_one(call: Call, folder: Path) -> None:
    """It was shown and exported as a string, 0x100…."""
    with CheckpointManager(folder / "runs/m") as manager:
        manager.save(0, {"main": {"n": 2**70, "m": [-(2**64)], "x": 1.5}})
    result = call("load-blobs", "m", "n", "m")
    rows = [line.split() for line in result.out.splitlines()[2:]]
    assert rows == [["n", "int", str(2**70)], ["m/0", "int", str(-(2**64))]]
    blobs = json.loads(call("load-blobs", "m", "n", "--json").out)["blobs"]
    assert blobs == {"n": {"kind": "int", "value": 2**70, "adapter": "python.int"}}
    result = call("load-blobs", "m", "-o", "out.npz")
    assert (result.code, result.out) == (0, "1 blob written to out.npz\n")
    assert result.err.splitlines() == [
        "warning: n is an integer of more than 64 bits, and is not exported",
        "warning: m/0 is an integer of more than 64 bits, and is not exported",
    ]
    with np.load(folder / "out.npz") as found:
        assert list(found) == ["x"]


@pytest.mark.usefixtures("run")
def test_export_to_other_forms(call: Call, folder: Path) -> None:
    result = call("load-blobs", "m", "model/w1", "-o", "w é.npy")
    assert (result.code, result.out) == (0, "1 blob written to w é.npy\n")
    assert np.load(folder / "w é.npy").shape == (4, 3)
    result = call("load-blobs", "m", "model", "n", "--json", "-o", "out.safetensors")
    assert json.loads(result.out) == {
        "output": "out.safetensors",
        "blobs": ["model/w1", "model/b1", "n"],
        "left_out": [],
    }
    with safe_open(folder / "out.safetensors", "np") as found:
        assert sorted(found.keys()) == ["model/b1", "model/w1", "n"]
        assert found.metadata() == {"job": "", "checkpoint": "1", "epoch": "1"}
    result = call("load-blobs", "m", "-o", "parts.d/")
    assert result.out == "4 blobs written to parts.d/\n"
    assert np.load(folder / "parts.d/text.npy").item() == "[bold]\x1b"


@pytest.mark.usefixtures("run")
def test_runs_by_prefix_and_word(call: Call) -> None:
    for argument in ("@latest", "m"):
        assert call("load-blobs", argument).out == TABLE
    assert call("load-blobs", "@best").code == 5


@pytest.mark.usefixtures("run")
def test_a_narrow_terminal_gets_a_block_for_each_blob(terminal: Call) -> None:
    text = terminal("load-blobs", "m", "model/w1", size=(40, 10)).text
    assert text == (
        "runs/m/checkpoint_1: epoch 1\n"
        "name    model/w1\n"
        "dtype   float64\n"
        "shape   (4, 3)\n"
        "bytes   96\n"
        "values  min 1  mean 6.5  max 12\n"
    )


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("m", "model/w2"), 5, "did you mean 'model/w1'"),
        (("m", "--epoch", "5"), 5, "no checkpoint of epoch 5; there are 0, 1"),
        (("x",), 5, "no run 'x'"),
        (("runs/m/checkpoint_1", "--epoch", "0"), 2, "is one checkpoint"),
        (("m", "model/w1[x]"), 5, "no blob 'model/w1[x]'"),
        (("m", "model/w1[9]"), 5, "index 9 is out of range"),
        (("m", "model/w1[1:2:0]"), 2, "no index"),
        (("m", "-o", "no/such/out.npz"), 2, "No such file"),
        (("m", "-o", "out.mat"), 2, "unknown file ending '.mat'"),
        (("m", "-o", "out.npy"), 2, "a .npy file holds one blob, and these are 4"),
        (("m", "-o", "out.safetensors"), 2, "no form for 'text', which is of str"),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], code: int, text: str, call: Call) -> None:
    result = call("load-blobs", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_damage_is_found(call: Call, run: Path) -> None:
    chunk = run / "checkpoint_1/main/model/w1/0.0"
    data = bytearray(chunk.read_bytes())
    data[3] ^= 1
    chunk.write_bytes(data)
    result = call("load-blobs", "m")
    assert result.code == 5
    assert "checkpoint_1/main/model/w1/0.0" in result.err
    assert call("load-blobs", "m", "n").code == 0


def test_several_nodes(call: Call, folder: Path) -> None:
    nodes = {f"trainer_{i}": {"total": np.array([i])} for i in range(3)}
    CheckpointManager(folder / "runs/r").save(0, nodes)
    result = call("load-blobs", "r", "trainer_[12]:total")
    assert [line.split()[0] for line in result.out.splitlines()[2:]] == [
        "trainer_1:total",
        "trainer_2:total",
    ]


@pytest.mark.usefixtures("run")
def test_a_reader_that_goes_away_is_no_error(shell: Call) -> None:
    result = shell("jobrun load-blobs m | true")
    assert (result.code, result.out, result.err) == (0, "", "")
