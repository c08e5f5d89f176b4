"""``jobrun checkpoints list``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import PipeState, Position
from jobrun.core.text import size
from jobrun.values.boxes import Box

Call = Callable[..., Any]


@pytest.fixture
def run(folder: Path) -> Path:
    """A run of two checkpoints and something that is none."""
    manager = CheckpointManager(folder / "runs/m")
    for epoch in (0, 10):
        metrics = {"loss": 0.5, "acc": float("nan")} if epoch else {}
        manager.save(epoch, {"main": {"n": epoch}}, metrics=metrics)
    manager.close()
    return folder / "runs/m"


@pytest.mark.usefixtures("run")
def test_a_table(call: Call, normalised: Call) -> None:
    result = call("checkpoints", "list", "m")
    assert (result.code, result.err) == (0, "")
    assert normalised(result.out) == (
        "runs/m: 2 checkpoints, SIZE on disk\n"
        "id  epoch  saved (UTC)          size   metrics\n"
        " 0  0      WHEN  SIZE\n"
        " 1  10     WHEN  SIZE  loss 0.5  acc nan\n"
    )


def test_what_is_none_is_listed_with_the_reason(call: Call, run: Path) -> None:
    (run / "checkpoint_7").mkdir()
    shutil.copytree(run / "checkpoint_1", run / "checkpoint_8")
    (run / "checkpoint_old").mkdir()
    lines = call("checkpoints", "list", "m").out.splitlines()
    assert lines[0].startswith("runs/m: 2 checkpoints, ")
    below = [line for line in lines if " is not a checkpoint: " in line]
    assert [line.split()[0] for line in below] == ["checkpoint_old", "checkpoint_7", "checkpoint_8"]
    assert "it is a copy of checkpoint 1" in below[2]


@pytest.mark.usefixtures("run")
def test_as_json(call: Call) -> None:
    found = json.loads(call("checkpoints", "list", "--json").out)
    assert found["run"].endswith("runs/m")
    assert [c["id"] for c in found["checkpoints"]] == [0, 1]
    assert found["checkpoints"][1]["metrics"] == {"loss": 0.5, "acc": "NaN"}
    assert found["checkpoints"][1]["epoch"] == 10
    assert found["ignored"] == []


def test_bytes_on_disk_count_an_inode_once(call: Call, saved: Path) -> None:
    files = [p.stat() for p in saved.glob("checkpoint_*/**/*")]
    files += [p.stat() for p in saved.glob("checkpoint_*") if (p / "_SUCCESS").exists()]
    on_disk = sum({status.st_ino: 512 * status.st_blocks for status in files}.values())
    assert on_disk < sum(512 * status.st_blocks for status in files)
    found = json.loads(call("checkpoints", "list", "--json").out)
    assert found["bytes_on_disk"] == on_disk
    first = call("checkpoints", "list").out.splitlines()[0]
    assert first == f"runs/m: 4 checkpoints, {size(on_disk)} on disk"


def save_inside(run: Path, *positions: Position) -> None:
    with CheckpointManager(run) as manager:
        for position in positions:
            source = BlobSource({"main": {"n": Box(1, "int")}})
            manager.save_snapshot(source, RecordFields(position, metrics={"loss": 0.5}))


def test_places_inside_an_epoch(call: Call, folder: Path) -> None:
    save_inside(
        folder / "runs/p",
        Position(2, ("prepare",), {"train": PipeState(10)}),
        Position(2, ("prepare",)),
        Position(0, (), {"train": PipeState(1)}),
        Position(0, (), {"a:train": PipeState(8), "b:train": PipeState(9)}),
    )
    lines = call("checkpoints", "list").out.splitlines()
    assert [line[4:].partition("20")[0].strip() for line in lines[2:]] == [
        *("2 + 10 batches", "2 + 1 task", "0 + 1 batch", "0 + 8..9 batches")
    ]
    found = json.loads(call("checkpoints", "list", "--json").out)["checkpoints"][0]
    assert (found["epoch"], found["inside_epoch"]) == (2, True)
    assert found["metrics"] == {}, "it has none of its own"
    assert "0.5" not in "".join(lines)
    assert found["place"] == "epoch 3, after batch 10 of pipe 'train'"
    assert (found["batches"], found["tasks"]) == ({"train": 10}, ["prepare"])


def test_those_that_were_gone_back_behind(call: Call, run: Path, normalised: Call) -> None:
    assert "attempts" not in call("checkpoints", "list", "m").out
    (run / "attempts/2").mkdir(parents=True)
    (run / "checkpoint_1").rename(run / "attempts/2/checkpoint_1")
    (run / "attempts/notes").mkdir()
    here = (
        "runs/m: 1 checkpoint, SIZE on disk\n"
        "id  epoch  saved (UTC)          size   metrics\n"
        " 0  0      WHEN  SIZE\n"
    )
    left = "1 checkpoint of earlier attempts:  jobrun checkpoints list runs/m --attempts\n"
    assert normalised(call("checkpoints", "list", "m").out) == here + left
    assert normalised(call("checkpoints", "list", "m", "--attempts").out) == (
        here + "\n"
        "runs/m/attempts/2: 1 checkpoint, SIZE on disk\n"
        "id  epoch  saved (UTC)          size   metrics\n"
        " 1  10     WHEN  SIZE  loss 0.5  acc nan\n"
    )
    found = json.loads(call("checkpoints", "list", "m", "--attempts", "--json").out)
    (moved,) = found["attempts"]["2"]["checkpoints"]
    assert moved["id"] == 1
    assert call("load-blobs", moved["path"]).code == 0


def test_no_run_and_a_run_without_checkpoints(call: Call, folder: Path) -> None:
    assert call("checkpoints", "list").code == 5
    (folder / "runs/x").mkdir(parents=True)
    (folder / "runs/x/checkpoint_0").mkdir()
    (folder / "runs/x/checkpoint_0/_SUCCESS").write_text("torn")
    result = call("checkpoints", "list", "x")
    assert result.code == 0
    assert result.out.startswith("runs/x: no checkpoints\ncheckpoint_0 is not a checkpoint: ")


@pytest.mark.usefixtures("run")
def test_listing_imports_neither_numpy_nor_zarr(folder: Path) -> None:
    code = (
        "import sys\n"
        "from jobrun.cli.app import run\n"
        "code = run(['checkpoints', 'list'])\n"
        "print(code, [m for m in ('numpy', 'zarr', 'rich', 'yaml') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True
    )
    assert done.stdout.splitlines()[-1] == "0 []"
