"""Keys of dicts that are not names, and adapters, in what commands show and write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task

Call = Callable[..., Any]


class Net:
    def __init__(self) -> None:
        self.w = np.ones(2)

    def state_dict(self) -> dict[Any, Any]:
        return {"W": self.w, "w": 3.0, 0: {"a/b": np.arange(3)}, ".eval": "[]"}

    def load_state_dict(self, state: Any) -> None:
        self.w[...] = state["W"]


def count(net: Net) -> None:
    net.w += 1


@pytest.fixture
def run(folder: Path) -> Path:
    with Job("m", state=["net"]) as job:
        with job.setup:
            Task(Net, out="net")
        with job.epoch:
            Task(count, update="net")
        job.stop(epochs=1)
    JobRunner(job, CheckpointManager(folder / "runs/m")).train(LocalSession())
    return folder / "runs/m"


TABLE = """\
runs/m/checkpoint_1: epoch 1
adapters: net (state_dict)
name       key          dtype    shape  bytes  values
net/W                   float64  (2,)      16  [2, 2]
net/w.2    ['w']        float              3
net/0/a_b  [0]['a/b']   int64    (3,)      24  [0, 1, 2]
net/eval   ['.eval']    str                '[]'
"""


@pytest.mark.usefixtures("run")
def test_load_blobs_shows_keys_and_adapters(call: Call) -> None:
    found = call("load-blobs", "m")
    assert [line.split() for line in found.out.splitlines()] == [
        line.split() for line in TABLE.splitlines()
    ]
    blobs = json.loads(call("load-blobs", "m", "--json").out)["blobs"]
    assert blobs["net/0/a_b"]["keys"] == ["net", 0, "a/b"]
    assert blobs["net/0/a_b"]["adapter"] == "state_dict"
    assert "keys" not in blobs["net/W"]


@pytest.mark.usefixtures("run")
def test_inspect_shows_keys_and_adapters(call: Call) -> None:
    text = call("checkpoints", "inspect", "m").out
    assert "  adapters  net (state_dict)\n" in text
    assert "net/0/a_b  [0]['a/b']  int64" in text
    blobs = json.loads(call("checkpoints", "inspect", "m", "--json").out)["blobs"]
    assert (blobs["net/W"]["keys"], blobs["net/W"]["adapter"]) == (["net", "W"], "state_dict")


@pytest.mark.usefixtures("run")
def test_files_have_the_keys_and_what_load_state_dict_takes(call: Call, folder: Path) -> None:
    done = call("load-blobs", "m", "net/*", "-o", "net.npz", "--strip", "net/")
    assert (done.code, done.out) == (0, "3 blobs written to net.npz\n")
    text = "net/.eval is no part of the state_dict (adapter 'state_dict'), and not exported"
    assert done.err == f"{text}\n"
    with np.load(folder / "net.npz") as found:
        assert sorted(found) == ["0/a/b", "W", "w"]
    assert call("load-blobs", "m", "-o", "all/").code == 0
    assert (folder / "all/net/eval.npy").exists()
    done = call("load-blobs", "m", "--strip", "net/")
    assert done.code == 2
    assert "--strip is for names in the file of --output" in done.err


@pytest.mark.usefixtures("run")
def test_a_file_for_torch(call: Call, folder: Path) -> None:
    torch = pytest.importorskip("torch")
    done = call("load-blobs", "m", "net", "-o", "net.pt", "--strip", "net/", "--json")
    assert json.loads(done.out) == {
        "output": "net.pt",
        "blobs": ["net/W", "net/w.2", "net/0/a_b"],
        "left_out": ["net/eval"],
    }
    found = torch.load(folder / "net.pt", weights_only=True)
    assert [*found] == ["W", "w", 0]
    assert found["W"].tolist() == [2, 2]
    assert found[0]["a/b"].tolist() == [0, 1, 2]
