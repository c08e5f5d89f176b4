"""Checkpoints elsewhere, by the command: uploaded, looked at, fetched back, and what fails."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, load_blobs
from jobrun.core.paths import shown
from jobrun.remote.files import RemoteFs
from jobrun.remote.store import join, open_store
from jobrun.remote.upload import upload_checkpoint

Call = Callable[..., Any]

SPEC = """\
name: walk
seed: 5
init: [{call: "steps:start", out: at}]
epoch: [{call: "steps:step", in: {rng}, update: {at}, out: far}]
metrics: {far: max}
stop: {epochs: 3}
upload: {to: "%s/${run.name}"}
"""
CODE = """\
import numpy as np

def start():
    return np.zeros(1000)

def step(at, rng):
    at += rng.standard_normal(1000)
    return float(abs(at).max())
"""


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place that other processes see too."""
    if request.param == "directory":
        return f"file://{tmp_path}/elsewhere"
    return f"{request.getfixturevalue('s3')}/{secrets.token_hex(8)}"


@pytest.fixture
def here(tmp_path: Path) -> str:
    """The same, a directory."""
    return f"file://{tmp_path}/elsewhere"


@pytest.fixture
def walk(folder: Path, place: str) -> str:
    """The URL to which ``walk.yaml``, just written, uploads its run ``walk``."""
    return write_walk(folder, place)


def write_walk(folder: Path, place: str) -> str:
    (folder / "walk.yaml").write_text(SPEC % place)
    (folder / "steps.py").write_text(CODE)
    return join(place, "walk")


def test_a_run_is_lost_and_goes_on_from_its_upload(jobrun: Call, walk: str, folder: Path) -> None:
    done = jobrun("train", "walk.yaml")
    assert done.code == 0, done.err
    place = f"{walk.removeprefix('file://')}/checkpoint_3"
    uploaded = shown(walk.removeprefix("file://"))
    assert f"uploaded checkpoint_3 to {uploaded}/checkpoint_3 (" in done.err
    assert f"  uploaded    {uploaded}/checkpoint_3\n" in done.out
    assert f"  uploaded    {uploaded}/checkpoint_3\n" in jobrun("show").out
    assert json.loads(jobrun("show", "--json").out)["uploaded"] == [place]
    shutil.rmtree(folder / "runs")
    again = jobrun("resume", walk, "--epochs", "5", "--runs-dir", "others")
    assert again.code == 0, again.err
    first, second = again.err.splitlines()[:2]
    assert first.startswith(f"fetched {uploaded}/checkpoint_3 (epoch 3, ")
    assert first.endswith(") into others/walk")
    assert second == "walk in others/walk: continues after epoch 3 (checkpoint_3)"
    undisturbed = jobrun("train", "walk.yaml", "--epochs", "5", "--set", "upload.to=elsewhere-too")
    assert undisturbed.code == 0, undisturbed.err
    found, wanted = (load_blobs(folder / runs / "walk") for runs in ("others", "runs"))
    assert found["at"].tobytes() == wanted["at"].tobytes()
    assert load_blobs(walk)["at"].tobytes() == wanted["at"].tobytes()
    at_three = load_blobs(walk, "at", epoch=3)["at"]
    assert at_three.tobytes() == load_blobs(folder / "runs/walk", epoch=3)["at"].tobytes()


def test_one_checkpoint_of_a_kept_series(call: Call, here: str, folder: Path) -> None:
    walk = write_walk(folder, here)
    (folder / "walk.yaml").write_text(
        (folder / "walk.yaml").read_text().replace('name}"}', 'name}", what: kept}')
    )
    assert call("train", "walk.yaml").code == 0
    for number, arguments in enumerate(
        [(join(walk, "checkpoint_1"),), (walk, "--epoch", "1"), (walk, "--id", "1")]
    ):
        runs = f"runs-{number}"
        options = ("--epochs", "2", "--set", f"upload.to={folder}/place-{number}")
        done = call("resume", *arguments, "--runs-dir", runs, *options)
        assert done.code == 0, done.err
        assert "continues after epoch 1 (checkpoint_1)" in done.err
        assert "epoch 2/2" in done.err
        assert f"uploaded checkpoint_4 to place-{number}/checkpoint_4 (" in done.err
    again = call("resume", walk, "--runs-dir", "runs-0", "--only", "exit")
    assert again.code == 0
    assert "into runs-0/walk-2" in again.err
    assert "no whole checkpoint" in call("resume", join(walk, "checkpoint_9")).err
    gone = call("resume", walk, "--epoch", "9")
    assert gone.code == 5
    assert "no checkpoint of epoch 9; there are 0..3" in gone.err
    dry = call("resume", walk, "-n", "--runs-dir", "dry")
    assert dry.code == 2
    assert "is not fetched" in dry.err
    assert not (folder / "dry").exists()


def test_the_code_is_elsewhere_too(jobrun: Call, call: Call, here: str, folder: Path) -> None:
    walk = write_walk(folder, here)
    assert call("train", "walk.yaml").code == 0
    (folder / "code").mkdir()
    for name in ("walk.yaml", "steps.py"):
        (folder / name).rename(folder / "code" / name)
    shutil.rmtree(folder / "runs")
    lost = jobrun("resume", walk, "--epochs", "4")
    assert lost.code == 4
    assert "there is no module 'steps'" in lost.err
    done = jobrun("resume", "runs/walk", "--epochs", "4", "--code", "code")
    assert done.code == 0, done.err
    assert "epoch 4/4" in done.err


# Looking.


@pytest.fixture
def big(tmp_path: Path, place: str) -> str:
    """The URL of a run, without run.json, of one checkpoint with an array of three chunks."""
    rows = np.arange(4_500_000.0).reshape(450, 10_000)
    with CheckpointManager(tmp_path / "made") as manager:
        manager.save(4, {"main": {"model": {"w1": rows, "b": np.ones(3)}, "n": 4}})
        upload_checkpoint(manager.path(4), open_store(join(place, "big")))
    return join(place, "big")


def test_load_blobs_of_a_url(call: Call, big: str, folder: Path) -> None:
    for url in (big, join(big, "checkpoint_0"), f"{big}/"):
        result = call("load-blobs", url, "model/b", "n")
        assert (result.code, result.err) == (0, "")
        assert result.out == (
            f"{big}/checkpoint_0: epoch 4\n"
            "name     dtype    shape  bytes  values\n"
            "model/b  float64  (3,)      24  [1, 1, 1]\n"
            "n        int                    4\n"
        )
    assert call("load-blobs", big, "n", "--epoch", "4").code == 0
    found = json.loads(call("load-blobs", big, "n", "--json").out)
    assert (found["epoch"], found["blobs"]) == (4, {"n": {"kind": "int", "value": 4}})
    assert call("load-blobs", big, "model", "-o", "out.npz").out == "2 blobs written to out.npz\n"
    with np.load(folder / "out.npz") as exported:
        assert exported["model/w1"][449, 9_999] == 4_499_999.0


def test_a_slice_reads_the_chunks_it_touches(
    call: Call, big: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def record(self: RemoteFs, op: str, path: str) -> None:
        if path.rpartition("/checkpoint_0/")[2] not in read:
            read.append(path.rpartition("/checkpoint_0/")[2])

    monkeypatch.setattr(RemoteFs, "at", record)
    url = join(big, "checkpoint_0")
    result = call("load-blobs", url, "model/w1[0:10, 7]", "--json")
    values = json.loads(result.out)["blobs"]["model/w1[0:10,7]"]["value"]
    assert values == [row * 10_000.0 + 7 for row in range(10)]
    assert [path for path in read if path.startswith("main/")] == [
        "main/model/w1/zarr.json",
        "main/model/w1/0.0",
    ]
    read.clear()
    assert call("load-blobs", url, "model/w1[-1, 0]").code == 0
    assert [path for path in read if path.startswith("main/model/w1/")][1:] != ["main/model/w1/0.0"]
    read.clear()
    assert call("load-blobs", url, "n").code == 0
    assert not [path for path in read if path.startswith("main/model")]


def test_inspect_and_verify(call: Call, big: str) -> None:
    result = call("checkpoints", "inspect", big, "--stats")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines() if "model/" in line] == [
        "model/w1",
        "model/b",
    ]
    assert "written" in result.out
    verified = call("checkpoints", "verify", big)
    assert verified.code == 0
    assert "1 checkpoint, all whole" in verified.out
    store = open_store(big)
    data = bytearray(store.read("checkpoint_0/main/model/b/0"))
    data[3] ^= 1
    store.write("checkpoint_0/main/model/b/0", bytes(data))
    store.write("checkpoint_1/zarr.json", b"{}")
    for url in (big, join(big, "checkpoint_0")):
        verified = call("checkpoints", "verify", url)
        assert verified.code == 5
        assert "main/model/b/0 (blob model/b): its checksum is" in verified.out
    odd = "checkpoint_1 is not a checkpoint: _SUCCESS: it is missing"
    assert odd in call("checkpoints", "verify", big).out
    assert call("load-blobs", big, "model/b").code == 5
    assert call("load-blobs", big, "n").code == 0


def test_a_task_loads_blobs_of_a_url(call: Call, walk: str, folder: Path) -> None:
    assert call("train", "walk.yaml").code == 0
    (folder / "next.yaml").write_text(
        "name: next\n"
        f"init: [{{load: {{run: '{walk}', blobs: at}}}}]\n"
        "epoch: [{call: 'steps:step', in: {rng}, update: {at}, out: far}]\n"
        "stop: {epochs: 1}\n"
    )
    done = call("train", "next.yaml")
    assert done.code == 0, done.err
    begin = load_blobs(folder / "runs/next", "at", epoch=0)["at"]
    assert begin.tobytes() == load_blobs(walk, "at")["at"].tobytes()


# What fails.


def test_a_bucket_that_is_not_there(call: Call, s3: str) -> None:
    for command in (("load-blobs",), ("resume",), ("checkpoints", "verify")):
        result = call(*command, "s3://no-such-bucket-here/run")
        assert (result.code, result.out) == (1, "")
        assert "there is no such bucket" in result.err
        assert "s3://no-such-bucket-here/run" in result.err


def test_nothing_there(call: Call, place: str) -> None:
    for command in (("load-blobs",), ("resume",), ("checkpoints", "verify")):
        result = call(*command, join(place, "nothing"))
        assert (result.code, result.out) == (5, "")
        assert "there is no checkpoint" in result.err


def test_an_endpoint_where_nobody_is(jobrun: Call) -> None:
    """With the rounds of s3fs alone it is soon given up, as an error of the store."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{taken.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_MAX_ATTEMPTS": "1",
        }
        result = jobrun("load-blobs", "s3://bucket/run", **settings)
    assert (result.code, result.out) == (1, "")
    error = result.err.removeprefix("warning: waiting for s3://bucket\n")  # on a slow machine
    assert error.startswith("error: s3://bucket/run/_SUCCESS: read failed: EndpointConnection")


def test_what_is_not_installed(
    call: Call, write: Call, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    for command in ("load-blobs", "resume"):
        result = call(command, "s3://bucket/run")
        assert result.code == 2
        assert "s3:// needs fsspec, which is not installed" in result.err
        assert "pip install 'jobrun[s3]'" in result.err
    write(("stop:", "upload: s3://bucket/run\nstop:"))
    result = call("train", "sum.yaml")
    assert result.code == 4
    assert "error: sum.yaml:9:9: s3:// needs" in result.err
    assert "pip install 'jobrun[s3]'" in result.err
    assert not (folder / "runs").exists()
