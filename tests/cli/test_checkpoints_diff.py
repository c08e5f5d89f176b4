"""``jobrun checkpoints diff``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

DIFF = """\
runs/m/checkpoint_1 (epoch 1) -> runs/m/checkpoint_3 (epoch 3)
         blob         difference
removed  old
added    new
changed  model/w      1 of 3 elements, largest difference 2, relative 0.33333
changed  model/steps  1 -> 3
2 blobs the same, bit for bit
"""


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "args",
    [
        ("m", "1", "3"),
        ("1", "3"),
        ("m", "--epoch", "1", "--epoch", "3"),
        ("--epoch", "1", "--epoch", "3"),
        ("runs/m/checkpoint_1", "runs/m/checkpoint_3"),
        ("m", "1", "runs/m/checkpoint_3"),
    ],
)
def test_the_ways_to_name_two(call: Call, args: tuple[str, ...]) -> None:
    result = call("checkpoints", "diff", *args)
    assert (result.code, result.out, result.err) == (0, DIFF, "")


def test_a_run_means_its_newest_checkpoint(call: Call, saved: Path) -> None:
    shutil.copytree(saved, saved.with_name("m-2"))
    shutil.rmtree(saved.with_name("m-2") / "checkpoint_3")
    for two in (("m-2", "m"), ("runs/m-2", "runs/m"), ("m", "m-2", "3")):
        result = call("checkpoints", "diff", *two)
        assert (result.code, result.err) == (0, "")
        ends = "runs/m-2/checkpoint_2 (epoch 2) -> runs/m/checkpoint_3 (epoch 3)"
        assert result.out.startswith(ends)


@pytest.mark.usefixtures("saved")
def test_the_newest_two(call: Call) -> None:
    first = call("checkpoints", "diff", "m").out.splitlines()[0]
    assert first == "runs/m/checkpoint_2 (epoch 2) -> runs/m/checkpoint_3 (epoch 3)"


@pytest.mark.usefixtures("saved")
def test_as_json(call: Call) -> None:
    found = json.loads(call("checkpoints", "diff", "m", "1", "3", "--json").out)
    assert (found["a"]["id"], found["b"]["epoch"]) == (1, 3)
    assert (found["added"], found["removed"], found["same"]) == (["new"], ["old"], 2)
    w, steps = found["changed"]
    assert (w["name"], w["count"], w["size"], w["absolute"]) == ("model/w", 1, 3, 2.0)
    assert (steps["before"], steps["after"]) == (1, 3)


def test_other_forms_of_change(call: Call, folder: Path) -> None:
    import numpy as np

    from jobrun import CheckpointManager

    with CheckpointManager(folder / "runs/k") as manager:
        manager.save(0, {"main": {"a": np.zeros(2, "f4"), "b": np.array([1, np.nan]), "s": "x"}})
        manager.save(1, {"main": {"a": np.zeros(3), "b": np.array([2, np.inf]), "s": "y", "t": {}}})
    assert call("checkpoints", "diff").out.splitlines()[2:] == [
        "added    t",
        "changed  a     float32 [2] -> float64 [3]",
        "changed  b     2 of 2 elements, largest difference 1, relative 0.5, 1 not finite",
        "changed  s     'x' -> 'y'",
        "0 blobs the same, bit for bit",
    ]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("m", "1"), 2, "expected two checkpoints: m 1 OTHER"),
        (("m", "1", "2", "3"), 2, "expected two checkpoints"),
        (("m", "--epoch", "1"), 2, "expected two checkpoints"),
        (("m", "1", "2", "--epoch", "1", "--epoch", "2"), 2, "expected two checkpoints"),
        (("m", "1", "9"), 5, "no checkpoint of id 9; there are 0..3"),
        (("m", "--epoch", "1", "--epoch", "9"), 5, "no checkpoint of epoch 9"),
        (("n", "1", "2"), 5, "no run 'n'"),
        (("1", "runs/m/checkpoint_9"), 5, "no checkpoint 'runs/m/checkpoint_9'"),
    ],
)
def test_what_cannot_be(call: Call, args: tuple[str, ...], code: int, text: str) -> None:
    result = call("checkpoints", "diff", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_damage_and_too_few(call: Call, saved: Path) -> None:
    (saved / "checkpoint_3/main/model/w/0").write_bytes(b"")
    result = call("checkpoints", "diff", "runs/m/checkpoint_1", "runs/m/checkpoint_3")
    assert (result.code, result.out) == (5, "")
    assert "checkpoint_3/main/model/w/0" in result.err
    for id in (1, 2, 3):
        shutil.rmtree(saved / f"checkpoint_{id}")
    result = call("checkpoints", "diff")
    assert (result.code, "runs/m has fewer than two checkpoints" in result.err) == (2, True)
