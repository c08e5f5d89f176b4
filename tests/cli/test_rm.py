"""``jobrun rm``: what it removes, what it never does, and what it asks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.errors import JobrunError
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import DEFAULT, FsError
from jobrun.tools.remove_runs import remove

Call = Callable[..., Any]


@pytest.fixture
def runs(call: Call, write: Call, folder: Path, once: Call) -> Path:
    @once
    def make() -> None:
        write()
        call("train", "sum.yaml")
        call("train", "sum.yaml", "--fresh")

    return folder / "runs"


def test_runs_are_removed_and_the_space_is_said(call: Call, runs: Path) -> None:
    result = call("rm", "sum-2", "-y")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("runs/sum-2: removed, ")
    assert result.out.endswith("B freed\n")
    assert os.listdir(runs) == ["sum"]
    found = json.loads(call("rm", "sum", "-y", "--json").out)
    assert found["removed"] == ["runs/sum"]
    assert found["bytes"] > 0
    assert os.listdir(runs) == []


def test_nothing_is_removed_where_nobody_can_answer(call: Call, runs: Path) -> None:
    result = call("rm", "sum")
    assert (result.code, result.out) == (2, "")
    assert "add -y" in result.err
    assert (runs / "sum").is_dir()


def test_it_asks_on_a_terminal(terminal: Call, runs: Path) -> None:
    screen = terminal("rm", "sum", "sum-2", answer="n\n")
    assert "Remove these 2? [y/N]" in screen.text
    assert screen.code == 130
    assert sorted(os.listdir(runs)) == ["sum", "sum-2"]
    assert terminal("rm", "sum", answer="y\n").code == 0
    assert os.listdir(runs) == ["sum-2"]


def test_a_running_run_stays(start: Call, call: Call, write: Call, folder: Path) -> None:
    write(("return total + step", "import time; time.sleep(0.05); return total + step"))
    start("train", "sum.yaml", "--set", "stop.epochs=1000")
    while not (folder / "runs/sum/checkpoint_1").exists():
        time.sleep(0.01)
    result = call("rm", "sum", "-y")
    assert (result.code, result.out) == (8, "")
    assert "it is running, and is not removed" in result.err
    assert (folder / "runs/sum/run.json").exists()
    with pytest.raises(JobrunError):
        remove(RunDir(folder / "runs/sum"))
    assert (folder / "runs/sum/run.json").exists()


def test_a_sweep_goes_with_its_runs(call: Call, write: Call, folder: Path) -> None:
    write()
    spec = folder / "sum.yaml"
    spec.write_text(spec.read_text() + "matrix: {step: [2, 5]}\n")
    call("train", "sum.yaml", "-q")
    assert call("rm", "sum/step=5", "-y").code == 0
    assert not (folder / "runs/sum/step=5").exists()
    assert (folder / "runs/sum/step=2").is_dir()
    assert call("rm", "sum", "-y").code == 0
    assert os.listdir(folder / "runs") == []


def test_a_spec_is_not_removed(call: Call, runs: Path) -> None:
    result = call("rm", "sum.yaml", "-y")
    assert (result.code, result.out) == (2, "")
    assert "sum.yaml is a spec" in result.err
    assert "jobrun runs --spec sum.yaml" in result.err
    assert sorted(os.listdir(runs)) == ["sum", "sum-2"]


def test_a_removal_that_fails_leaves_no_half_of_a_run(
    call: Call, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> None:
        raise FsError("rmtree", path, OSError(5, "Input/output error"))

    with monkeypatch.context() as patch:
        patch.setattr(DEFAULT, "remove_tree", fail)
        result = call("rm", "sum", "-y")
    assert result.code == 1
    assert "it cannot be removed: " in result.err
    found = json.loads(call("runs", "--json").out)["runs"]
    assert [run["name"] for run in found] == ["sum-2"], "it is gone, or whole"
    assert len([n for n in os.listdir(runs) if n.startswith(".removed-")]) == 1
