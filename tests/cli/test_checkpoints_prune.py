"""``jobrun checkpoints prune``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]


def left(run: Path) -> list[int]:
    return [record.id for record in RunDir(run).records()]


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        (("--keep-last", "1"), [3]),
        (("--keep-last", "2"), [2, 3]),
        (("--keep-every", "2"), [0, 2, 3]),
        (("--keep-best", "acc:max"), [1, 3]),
        (("--keep-best", "acc:min"), [2, 3]),
        (("--keep-best", "loss:max", "--keep-last", "2"), [0, 2, 3]),
        (("--keep-last", "9"), [0, 1, 2, 3]),
    ],
)
def test_what_stays(call: Call, saved: Path, args: tuple[str, ...], kept: list[int]) -> None:
    before = sorted(p.name for p in saved.iterdir())
    dry = call("checkpoints", "prune", "m", *args, "-n")
    assert dry.code == 0
    assert sorted(p.name for p in saved.iterdir()) == before
    result = call("checkpoints", "prune", "m", *args)
    assert (result.code, result.err) == (0, "")
    assert left(saved) == kept
    assert re.sub("would be removed", "removed", dry.out) == result.out
    assert not list(saved.glob(".checkpoint_*"))
    assert call("checkpoints", "verify", "m").code == 0


def test_what_is_said(call: Call, saved: Path, normalised: Call) -> None:
    result = call("checkpoints", "prune", "m", "--keep-last", "2", "-n")
    assert normalised(result.out) == (
        "runs/m: 2 checkpoints would be removed (0, 1), SIZE freed; kept 2, 3\n"
    )
    found = json.loads(call("checkpoints", "prune", "m", "--keep-last", "2", "--json").out)
    assert (found["removed"], found["kept"], found["dry_run"]) == ([0, 1], [2, 3], False)
    result = call("checkpoints", "prune", "m", "--keep-last", "2")
    assert result.out == "runs/m: nothing removed; kept 2, 3\n"


def test_the_bytes_freed_are_those_that_nothing_else_holds(call: Call, saved: Path) -> None:
    def use() -> int:
        paths = (*saved.glob("checkpoint_*"), *saved.glob("checkpoint_*/**/*"))
        return sum({s.st_ino: 512 * s.st_blocks for s in (p.stat() for p in paths)}.values())

    before = use()
    found = json.loads(call("checkpoints", "prune", "m", "--keep-last", "2", "--json").out)
    assert before - use() == found["bytes"] > 0


def test_foreign_things_are_left_alone(call: Call, saved: Path) -> None:
    (saved / "checkpoint_old").mkdir()
    (saved / "checkpoint_1/_SUCCESS").unlink()  # it is not listed any more
    assert call("checkpoints", "prune", "m", "--keep-last", "1").code == 0
    assert sorted(p.name for p in saved.glob("checkpoint_*")) == [
        *("checkpoint_1", "checkpoint_3", "checkpoint_old")
    ]


def test_a_run_that_is_held_is_left_alone(call: Call, saved: Path) -> None:
    holder = RunDir(saved)
    holder.lock()
    assert call("checkpoints", "prune", "m", "--keep-last", "1", "-n").code == 0
    result = call("checkpoints", "prune", "m", "--keep-last", "1")
    holder.unlock()
    assert (result.code, result.out) == (8, "")
    assert left(saved) == [0, 1, 2, 3]
    assert call("checkpoints", "prune", "m", "--keep-last", "1").code == 0


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ((), 2, "Missing argument 'RUN'"),
        (("m",), 2, "add --keep-last, --keep-every or --keep-best"),
        (("m", "--keep-last", "0"), 2, "keep-last"),
        (("m", "--keep-best", "acc"), 2, "is a smaller or a larger 'acc' better?"),
        (("m", "--keep-best", "los:min"), 5, "did you mean 'loss'?"),
        (("x", "--keep-last", "1"), 5, "no run 'x'"),
    ],
)
def test_what_cannot_be(call: Call, args: tuple[str, ...], code: int, text: str) -> None:
    result = call("checkpoints", "prune", *args)
    assert (result.code, result.out) == (code, "")
    assert re.search(re.escape(text), result.err)


def test_the_direction_is_that_of_the_job(call: Call, write: Call, folder: Path) -> None:
    write(("loss: min", "loss: max"))
    call("train", "sum.yaml")
    assert call("checkpoints", "path", "sum", "--best").out == "runs/sum/checkpoint_1\n"
    assert call("checkpoints", "prune", "sum", "--keep-best", "loss").code == 0
    assert left(folder / "runs/sum") == [1, 3]
    call("train", "sum.yaml", "--epochs", "4")
    assert left(folder / "runs/sum") == [1, 3, 4]
