"""``jobrun checkpoints inspect``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.values.boxes import Box

Call = Callable[..., Any]


def columns(lines: list[str]) -> list[list[str]]:
    return [re.split(r" {2,}", line.strip()) for line in lines]


@pytest.mark.usefixtures("saved")
def test_every_blob(call: Call, normalised: Call) -> None:
    result = call("checkpoints", "inspect", "m", "--epoch", "2")
    assert (result.code, result.err) == (0, "")
    head, _, table = normalised(result.out).partition("\n\n")
    lines = head.splitlines()
    assert lines[0] == "runs/m/checkpoint_2: id 2, epoch 2"
    assert lines[1] == "  saved     WHEN (UTC), after TIME of the run"
    assert lines[2].startswith("  size      SIZE in 12 files")
    assert lines[3] == "  metrics   loss 0.33333  acc 0.25"
    assert lines[4].startswith("  versions  python ")
    assert columns(table.splitlines()) == [
        ["name", "kind", "shape", "on disk", "since", "stored"],
        ["data", "float64", "(6,)", "SIZE", "0", "linked"],
        ["model/w", "float32", "(3,)", "SIZE", "2", "written"],
        ["model/steps", "int", "SIZE", "2", "written"],
        ["tags/0", "str", "SIZE", "2", "written"],
        ["new", "int", "SIZE", "2", "written"],
    ]


@pytest.mark.usefixtures("saved")
def test_statistics(call: Call) -> None:
    table = call("checkpoints", "inspect", "--stats").out.partition("\n\n")[2]
    rows = {row[0]: row[-1] for row in columns(table.splitlines())}
    assert rows["name"] == "values"
    assert rows["model/w"] == "[1, 2, 6]"
    assert rows["model/steps"] == "3"
    assert rows["tags/0"] == "'a'"
    assert "min 0  mean 2.5  max 5\n" in table


@pytest.mark.usefixtures("saved")
def test_as_json(call: Call) -> None:
    found = json.loads(call("checkpoints", "inspect", "m", "--id", "2", "--json").out)
    assert (found["id"], found["epoch"], found["place"]) == (2, 2, "epoch 2")
    assert found["metrics"] == {"loss": 1 / 3, "acc": 0.25}
    data = found["blobs"]["data"]
    assert (data["dtype"], data["shape"], data["files"]) == ("float64", [6], 2)
    assert (data["version"], data["links"], data["stored"]) == (0, 2, "linked")
    assert "stats" not in data
    found = json.loads(call("checkpoints", "inspect", "m", "--stats", "--json").out)
    assert found["metrics"]["acc"] == "NaN"
    assert found["blobs"]["data"]["stats"]["max"] == 5.0
    assert found["blobs"]["model/steps"]["stats"] == {"value": 3}


def test_the_record(call: Call, folder: Path) -> None:
    fields = RecordFields(
        position=Position(
            2, ("prepare",), {"train": PipeState(10)}, {"train": ReaderState(2, 320)}
        ),
        stops=[{"kind": "patience", "metric": "loss", "state": {"best": 0.5, "waited": 1}}],
        decision={"outcome": "stop", "reason": "walltime: 3 s", "kind": "walltime"},
        job="[bold]",
        versions={"numpy": "1.26"},
    )
    with CheckpointManager(folder / "runs/p") as manager:
        source = BlobSource({"a": {"n": Box(1, "int")}, "b": {"n": Box(2, "int")}})
        manager.save_snapshot(source, fields)
    lines = call("checkpoints", "inspect", "runs/p/checkpoint_0").out.splitlines()
    assert lines[0] == "runs/p/checkpoint_0: id 0, epoch 3, after batch 10 of pipe 'train'"
    assert lines[1] == "  job       [bold]"
    assert lines[4:9] == [
        "  readers   train: 320 rows of pass 3",
        "  done      prepare",
        "  decision  stop: walltime: 3 s",
        "  stops     patience loss (best 0.5, waited 1)",
        "  versions  numpy 1.26",
    ]
    assert [row[0] for row in columns(lines[11:])] == ["a:n", "b:n"]


def test_damage_and_what_is_not_there(call: Call, saved: Path) -> None:
    chunk = saved / "checkpoint_3/main/model/w/0"
    chunk.write_bytes(b"\1" + chunk.read_bytes()[1:])
    assert call("checkpoints", "inspect", "m").code == 0
    result = call("checkpoints", "inspect", "m", "--stats")
    assert (result.code, result.out) == (5, "")
    assert "main/model/w/0" in result.err
    assert call("checkpoints", "inspect", "m", "--epoch", "7").code == 5
