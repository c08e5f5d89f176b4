"""``jobrun resume --only exit``: the last groups once more, and nothing else is changed."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]
SPEC = """\
name: sum
vars: {step: 2}
setup:
  - {call: "steps:unit", out: unit}
init:
  - {call: "steps:start", out: total}
epoch:
  - {call: "steps:add", in: {total, step}, out: total}
  - {call: "steps:loss_of", in: {total}, out: loss}
metrics: {loss: max}
stop: {epochs: 3}
checkpoint: {keep: {last: 4, best: loss}}
download:
  - {call: "steps:gather", in: {total, unit}, out: text}
exit:
  - {call: "steps:tell", in: {text, best: "best:total"}, with: {file: "${run.dir}/told.txt"}}
"""
CODE = """\
def unit():
    return "m"

def start():
    return 100

def add(total, step):
    return total + step

def loss_of(total):
    return -abs(total - 104)

def gather(total, unit):
    return f"{total} {unit}"

def tell(text, best, file):
    with open(file, "a") as out:
        print(text, best, file=out)
"""
TELL = "print(text, best, file=out)"


@pytest.fixture
def trained(call: Call, write: Call, folder: Path, once: Call) -> Path:
    """A run of three epochs; the best is the second."""

    @once
    def make() -> None:
        write(spec=SPEC, code=CODE)
        assert call("train", "sum.yaml").code == 0

    return folder / "runs/sum"


def told(run: Path) -> list[str]:
    return (run / "told.txt").read_text().splitlines()


def files(run: Path) -> dict[str, str]:
    """Everything that an attempt of exit alone leaves as it is."""
    changing = ("run.json", "events.jsonl", "log.txt", "lock", "told.txt")
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.rglob("*")
        if path.is_file() and path.name not in changing
    }


def test_it_runs_again_and_the_run_stays_as_it_was(
    call: Call, trained: Path, normalised: Call
) -> None:
    before, state = files(trained), RunDir(trained).state()
    result = call("resume", "sum", "--only", "exit")
    assert (result.code, told(trained)) == (0, ["106 m 104", "106 m 104"])
    assert normalised(result.err) == (
        "sum in runs/sum: runs download and exit again after epoch 3 (checkpoint_3)\n"
        "loaded checkpoint_3 (epoch 3, TIME)\n"
    )
    assert normalised(result.out) == (
        "sum: download and exit again, on epoch 3: finished\n"
        "  time        TIME\n"
        "  metrics     loss -2\n"
        "  best        loss 0 (epoch 2)\n"
        "  checkpoint  runs/sum/checkpoint_3 (epoch 3)\n"
        "\n"
        "jobrun load-blobs runs/sum\n"
    )
    assert files(trained) == before
    after = RunDir(trained).state()
    assert state is not None
    assert after is not None
    assert (after.state, after.reason, after.epoch) == ("finished", "3 epochs done", 3)
    assert (after.attempts, after.elapsed, after.code) == (2, state.elapsed, state.code)
    (exit_,) = after.exits
    assert (exit_["attempt"], exit_["epoch"], exit_["outcome"]) == (2, 3, "finished")


@pytest.mark.parametrize("named", [("--epoch", "1"), ("--id", "1")])
def test_of_an_earlier_epoch_the_best_is_the_best_until_then(
    named: tuple[str, str], call: Call, trained: Path
) -> None:
    before = files(trained)
    assert call("resume", "sum", *named, "--only", "exit").code == 0
    assert told(trained)[-1] == "102 m 102"
    assert files(trained) == before
    assert call("train", "sum.yaml").out.startswith("runs/sum is finished")


def test_the_events_tell_of_it_and_the_metrics_do_not_change(call: Call, trained: Path) -> None:
    call("resume", "sum", "--only", "exit", "--epoch", "1")
    events = [json.loads(line) for line in (trained / "events.jsonl").read_text().splitlines()]
    assert [e["only"] for e in events if e["event"] == "RunStarted"] == ["", "exit"]
    assert [e["only"] for e in events if e["event"] == "RunEnded"] == ["", "exit"]
    assert call("train", "sum.yaml", "--epochs", "4").code == 0
    rows = (trained / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2", "3", "4"]


def test_an_exit_that_was_changed_in_spec_and_code(call: Call, trained: Path, write: Call) -> None:
    write(
        (TELL, 'print("now", best, file=out)'),
        ("steps:tell", "steps:say"),
        ("def tell", "def say"),
        spec=SPEC,
        code=CODE,
    )
    result = call("resume", "sum.yaml", "--only", "exit")
    assert (result.code, told(trained)[-1]) == (0, "now 104")
    assert "exit.say: added, steps:say" in result.err
    other = call("resume", "sum.yaml", "--only", "exit", "--set", "step=3")
    assert (other.code, other.out) == (2, "")
    assert "vars.step: 2 -> 3" in other.err
    assert "jobrun resume runs/sum --only exit\n" in other.err


def test_an_exit_that_fails_leaves_a_finished_run_finished(
    call: Call, trained: Path, write: Call
) -> None:
    write((TELL, "1 / 0"), spec=SPEC, code=CODE)
    result = call("resume", "sum", "--only", "exit")
    assert result.code == 1
    assert result.out.startswith(
        "sum: download and exit again, on epoch 3: stopped by an error: task 'tell'"
    )
    assert result.out.endswith("\n\njobrun resume runs/sum --only exit\n")
    state = RunDir(trained).state()
    assert state is not None
    assert (state.state, state.exits[-1]["outcome"]) == ("finished", "error")
    assert call("train", "sum.yaml").out.startswith("runs/sum is finished")


def test_on_an_unfinished_run(call: Call, write: Call, folder: Path) -> None:
    fails = ("return total + step", "return total + step if total < 104 else 1 / 0")
    write(fails, spec=SPEC, code=CODE)
    assert call("train", "sum.yaml").code == 1
    assert call("resume", "sum", "--only", "exit").code == 0
    assert told(folder / "runs/sum") == ["104 m 104"]
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.epoch) == ("error", 2)
    write(spec=SPEC, code=CODE)
    assert call("resume", "sum").code == 0
    assert told(folder / "runs/sum")[-1] == "106 m 104"


def test_as_json(call: Call, trained: Path) -> None:
    found = json.loads(call("resume", "sum", "--only", "exit", "--json").out)
    assert (found["only"], found["outcome"], found["ran"], found["saved"]) == (
        *("exit", "finished", 0, 0),
    )
    assert told(trained)[-1] == "106 m 104"


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("--epoch", "9"), 5, "no checkpoint of epoch 9; there are 0..3"),
        (("--only", "epoch"), 2, "'epoch' is not 'exit'"),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], code: int, text: str, call: Call) -> None:
    result = call("resume", "sum", "--only", "exit", *args)
    assert (result.code, result.out) == (code, "")
    assert text in result.err


def test_a_run_without_checkpoints(call: Call, write: Call) -> None:
    write(
        ("checkpoint: {keep: {last: 4, best: loss}}", "checkpoint: {on_success: delete}"),
        spec=SPEC.replace(', best: "best:total"', ""),
        code=CODE.replace(" best,", ""),
    )
    assert call("train", "sum.yaml").code == 0
    result = call("resume", "sum", "--only", "exit")
    assert result.code == 5
    assert "the run has no checkpoint on which 'exit' could be run" in result.err


def test_a_run_that_is_held_is_left_alone(call: Call, trained: Path) -> None:
    holder = RunDir(trained)
    holder.lock()
    result = call("resume", "sum", "--only", "exit")
    holder.unlock()
    assert (result.code, told(trained)) == (8, ["106 m 104"])


def test_a_signal_ends_it(start: Call, call: Call, trained: Path, write: Call) -> None:
    slow = ("return f", "import time; open('here', 'w').close(); time.sleep(1); return f")
    write(slow, spec=SPEC, code=CODE)
    process = start("resume", "sum", "--only", "exit")
    while not Path("here").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert re.search("^sum: download and exit again, on epoch 3: interrupted: SIGINT$", out, re.M)
    assert len(told(trained)) == 1
    assert call("train", "sum.yaml").out.startswith("runs/sum is finished")


@pytest.mark.usefixtures("trained")
def test_what_it_would_do(call: Call) -> None:
    result = call("resume", "sum", "--only", "exit", "--epoch", "2", "-n")
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "sum in runs/sum: would run exit again on checkpoint_2 (epoch 2)\n"
        "  setup: unit\n"
        "  download: gather\n"
        "  exit: tell\n"
    )
    found = json.loads(call("resume", "sum", "--only", "exit", "-n", "--json").out)
    assert (found["action"], found["checkpoint"]) == ("exit", 3)
    assert [task["task"] for task in found["tasks"]] == ["unit", "gather", "tell"]
