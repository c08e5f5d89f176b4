"""``jobrun show``: all that is known of a run."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager
from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]
FAILS = ("return total + step", "return total + step if total < 104 else 1 / 0")
KEEP = (
    "stop: {epochs: 3}",
    "stop: {epochs: 3}\nseed: 7\ncheckpoint: {keep: {last: 2, best: loss}}",
)


@pytest.fixture
def run(call: Call, write: Call, folder: Path, once: Call) -> Path:
    """A run that failed, went on, and ran exit again."""

    @once
    def make() -> None:
        write(FAILS, KEEP)
        call("train", "sum.yaml")
        write(KEEP)
        call("resume", "sum")
        call("resume", "sum", "--only", "exit")

    return folder / "runs/sum"


def test_a_finished_run(call: Call, run: Path, normalised: Call) -> None:
    result = call("show", "s")
    assert (result.code, result.err) == (0, "")
    text = re.sub(
        r"<?\d+(?:\.\d)?%", "SHARE", re.sub(r"versions .*", "versions …", normalised(result.out))
    )
    lines = [re.sub(" +", " ", line) for line in text.splitlines()]
    tasks = lines[lines.index("slowest tasks group total share times mean longest") + 1 : -2]
    assert sorted(tasks) == [  # in order of their times
        "add epoch TIME SHARE 3 TIME TIME",
        "loss_of epoch TIME SHARE 3 TIME TIME",
        "start init TIME SHARE 1 TIME TIME",
    ]
    assert [line for line in lines if line not in tasks] == [
        "runs/sum: finished after 3 epochs: 3 epochs done",
        " job sum, seed 7, spec sum.yaml",
        " vars step 2",
        " started WHEN (UTC)",
        " time TIME, SHARE in 4 checkpoints",
        " metrics loss 0.009434",
        " best loss 0.009434 (epoch 3)",
        " checkpoints 2 kept: 2, 3 (SIZE on disk); best: checkpoint_3 (epoch 3)",
        " code steps.py",
        " versions …",
        "",
        "attempt started (UTC) time from epochs ended",
        "1 WHEN TIME init 1..2 stopped by an error: task 'add' of group 'epoch' failed: "
        "ZeroDivisionError: division by zero",
        "2 WHEN TIME checkpoint_2 3..3 finished: 3 epochs done",
        "3 (only exit) WHEN TIME checkpoint_3 - finished",
        "",
        "slowest tasks group total share times mean longest",
        "",
        "jobrun load-blobs runs/sum",
    ]


def test_the_slurm_job_of_each_attempt(
    call: Call, write: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    assert call("train", "sum.yaml", "--epochs", "1").code == 0
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for count, epochs in (("0", "2"), ("1", "3")):
        monkeypatch.setenv("SLURM_RESTART_COUNT", count)
        assert call("train", "sum.yaml", "--epochs", epochs).code == 0
    lines = call("show", "sum").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("attempt "))
    assert re.split(" {2,}", lines[at])[3] == "Slurm job"
    assert [re.split(" {2,}", line)[3] for line in lines[at + 1 : at + 4]] == [
        *("-", "17", "17, requeued once")
    ]
    attempts = json.loads(call("show", "sum", "--json").out)["attempts"]
    assert [(a["slurm_job"], a["requeued"]) for a in attempts] == [(None, 0), ("17", 0), ("17", 1)]


def test_as_json(call: Call, run: Path) -> None:
    found = json.loads(call("show", "sum", "--json").out)
    assert (found["name"], found["path"], found["state"]) == ("sum", "runs/sum", "finished")
    assert (found["seed"], found["vars"], found["limit"]) == (7, {"step": 2}, 3)
    assert [c["id"] for c in found["checkpoints"]] == [2, 3]
    assert found["best_checkpoint"] == 3
    assert [(a["number"], a["only"], a["outcome"], a["last"]) for a in found["attempts"]] == [
        (1, None, "error", 2),
        (2, None, "finished", 3),
        (3, "exit", "finished", 3),
    ]
    assert {t["task"] for t in found["tasks"]} == {"start", "add", "loss_of"}
    assert list(found["code"]) == ["steps.py"]
    assert "numpy" in found["versions"]
    assert found["next"] == "jobrun load-blobs runs/sum"


def test_a_run_that_is_not_over(call: Call, write: Call, folder: Path) -> None:
    write(FAILS)
    call("train", "sum.yaml")
    out = call("show").out
    assert out.startswith("runs/sum: stopped by an error after 2 epochs: task 'add'")
    assert out.endswith("\n\njobrun resume runs/sum\n")


def test_a_run_that_is_going_on_and_one_that_was_killed(
    start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(("return total + step", "import time; time.sleep(0.05); return total + step"))
    process = start("train", "sum.yaml", "--set", "stop.epochs=1000")
    while not (folder / "runs/sum/checkpoint_2").exists():
        time.sleep(0.01)
    out = call("show", "sum").out
    assert re.match(r"runs/sum: running after \d+ epochs\n", out)
    assert re.search(r"^1 .* running$", out, re.M)
    assert out.endswith("jobrun logs runs/sum -f\n")
    process.kill()
    process.wait()
    out = call("show", "sum").out
    assert re.match(
        r"runs/sum: interrupted after \d+ epochs: the process was killed or crashed", out
    )
    assert re.search(r"^1 .* killed or crashed$", out, re.M)


def test_warnings_damage_and_what_a_rewind_left(call: Call, run: Path) -> None:
    call("resume", "sum", "--epoch", "2", "--set", "stop.epochs=4")
    newest = max(run.glob("checkpoint_*"))
    (newest / "_SUCCESS").write_text("torn")
    found = json.loads(call("show", "sum", "--json").out)
    assert found["set_aside"] == 1
    assert [d["name"] for d in found["damaged"]] == [newest.name]
    out = call("show", "sum").out
    assert "; 1 of earlier attempts in attempts/\n" in out
    assert f"warning: {newest.name} is no longer whole: " in out


def test_a_directory_of_checkpoints_alone(call: Call, folder: Path) -> None:
    with CheckpointManager(folder / "runs/m") as manager:
        manager.save(1, {"main": {"n": 1}}, metrics={"acc[val]": 0.5})
    out = call("show", "m").out
    assert "  metrics     acc[val] 0.5\n" in out
    assert "attempt " not in out
    assert json.loads(call("show", "m", "--json").out)["attempts"] == []


def test_runs_that_cannot_be_shown(call: Call, folder: Path) -> None:
    (folder / "runs/torn").mkdir(parents=True)
    (folder / "runs/torn/run.json").write_text("{")
    result = call("show", "torn")
    assert (result.code, result.out) == (5, "")
    assert "runs/torn: run.json cannot be read, and there is no checkpoint" in result.err
    assert call("show", "none").code == 5
    assert json.loads(call("show", "none", "--json").out)["exit_code"] == 5


def test_a_newer_run_of_the_spec_is_named(call: Call, run: Path) -> None:
    assert "newer run" not in call("show", "sum").out
    call("train", "sum.yaml", "--fresh")
    call("train", "sum.yaml", "--set", "name=sum-other")
    assert "  newer run   runs/sum-2, finished after 3 epochs\n" in call("show", "sum").out
    assert "newer run" not in call("show", "sum-2").out
    assert "newer run" not in call("show", "sum-other").out


def test_it_does_not_write_or_lock(call: Call, run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    holder = RunDir(run)
    holder.lock()
    before[run / "lock"] = (run / "lock").stat().st_mtime_ns
    assert call("show", "sum").code == 0
    holder.unlock()
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.usefixtures("run")
def test_a_narrow_terminal_and_a_reader_that_goes_away(terminal: Call, shell: Call) -> None:
    assert "attempt        1\n" in terminal("show", "sum", size=(40, 10)).text
    assert shell("jobrun show sum | true").err == ""


@pytest.mark.parametrize("width", [80, 120, 200])
def test_it_fits_the_terminal(width: int, terminal: Call, call: Call, run: Path) -> None:
    call("tag", "sum", "good", "paper-2")
    call("note", "sum", "the one of the second figure, " * 5)
    screen = terminal("show", "sum", size=(width, 40))
    assert screen.code == 0
    lines = screen.text.splitlines()
    assert [line for line in lines if len(line) > width] == []
    assert " ".join(screen.text.split()).count("the one of the second figure,") == 5
    assert (len(lines) > len(terminal("show", "sum", size=(400, 40)).text.splitlines())) == (
        width < 200
    )
