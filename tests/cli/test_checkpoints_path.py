"""``jobrun checkpoints path``: the path, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager

Call = Callable[..., Any]


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("args", "id"),
    [
        ((), 3),
        (("m",), 3),
        (("m", "--epoch", "1"), 1),
        (("--id", "2"), 2),
        (("m", "--best", "--by", "acc:max"), 1),
        (("--by", "acc:min"), 2),
        (("--by", "loss:max"), 0),
    ],
)
def test_the_path_alone(call: Call, args: tuple[str, ...], id: int) -> None:
    result = call("checkpoints", "path", *args)
    assert (result.code, result.out, result.err) == (0, f"runs/m/checkpoint_{id}\n", "")


@pytest.mark.usefixtures("saved")
def test_as_json(call: Call) -> None:
    found = json.loads(call("checkpoints", "path", "--epoch", "1", "--json").out)
    assert found == {"path": "runs/m/checkpoint_1", "id": 1, "epoch": 1, "place": "epoch 1"}


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("--epoch", "9"), 5, "no checkpoint of epoch 9"),
        (("--epoch", "1", "--id", "1"), 2, "by its epoch or by its id, not by both"),
        (("--best", "--id", "1"), 2, "one of them"),
        (("--best",), 2, "best by which metric?"),
        (("--by", "accc"), 5, "did you mean 'acc'?"),
        (("none",), 5, "no run 'none'"),
    ],
)
def test_what_cannot_be(call: Call, args: tuple[str, ...], code: int, text: str) -> None:
    result = call("checkpoints", "path", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_no_finite_value(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/k") as manager:
        manager.save(0, {"main": {"n": 1}}, metrics={"loss": float("nan")})
    result = call("checkpoints", "path", "--by", "loss:min")
    assert (result.code, result.out) == (5, "")
    assert "no checkpoint has a finite value of 'loss'" in result.err
