"""Sweeps: ``train`` and ``resume`` of a spec with a matrix."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from whole_runs import bytes_of_checkpoints

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.cli.sweep_table import SweepTable, sweep_summary
from jobrun.cli.sweep_view import LiveBoard
from jobrun.runs.rundir import RunDir
from jobrun.runs.sweepdir import SweepDir
from jobrun.tools.sweep_rows import SweepRow

Call = Callable[..., Any]
long = pytest.mark.skipif(not os.environ.get("JOBRUN_LONG"), reason="JOBRUN_LONG is not set")

SPEC = """\
name: sum
vars: {step: 2, first: 100}
matrix: {step: [1, 2], first: [90, 10]}
init:
  - {call: "steps:start", in: {first}, out: total}
epoch:
  - {call: "steps:add", in: {total, step}, out: total}
  - {call: "steps:loss_of", in: {total}, out: loss}
metrics: {loss: min, total: null}
stop: {epochs: 3}
"""
CODE = """\
import os, signal, time

def start(first):
    return first

def add(total, step):
    return total + step

def loss_of(total):
    return 1 / total
"""
ALL = ["step=1,first=90", "step=1,first=10", "step=2,first=90", "step=2,first=10"]
TWO = ("step: [1, 2], first: [90, 10]", "step: [1, 2]")
MANY = ("epochs: 3", "epochs: 200")
SLOW = ("return total + step", "time.sleep(0.05); return total + step")


@pytest.fixture
def sweep(write: Call, folder: Path) -> Callable[..., Path]:
    """Writes the spec and its code, with texts replaced; gives the directory of its sweep."""

    def sweep(*replaced: tuple[str, str]) -> Path:
        write(*replaced, spec=SPEC, code=CODE)
        return folder / "runs/sum"

    return sweep


def states(home: Path) -> dict[str, tuple[str, int]]:
    """State and epoch of the runs that have begun."""
    found = {}
    for run in SweepDir(home).runs():
        state = run.state()
        assert state is not None
        found[run.path.name] = (state.state, state.epoch)
    return found


def totals(home: Path) -> dict[str, Any]:
    return {run.path.name: load_blobs(run.path)["total"] for run in SweepDir(home).runs()}


FINISHED = """\
sum: 4 runs: 4 finished
step  first  state     epochs      loss  total  best loss  time
1     90     finished       3  0.010753     93   0.010753  TIME
1     10     finished       3  0.076923     13   0.076923  TIME
2     90     finished       3  0.010417     96  0.010417*  TIME
2     10     finished       3    0.0625     16     0.0625  TIME
best loss 0.010417 (epoch 3): step=2,first=90

jobrun load-blobs runs/sum/step=2,first=90
"""


def test_one_run_per_combination_and_a_table(
    jobrun: Call, call: Call, sweep: Call, normalised: Call
) -> None:
    home = sweep()
    result = jobrun("train", "sum.yaml", "--jobs", "2")
    assert result.code == 0
    lines = result.err.splitlines()
    assert lines[0] == "sum: 4 runs in runs/sum, 2 at a time: 4 to start"
    assert {line.partition("|")[0].rstrip() for line in lines[1:]} == set(ALL)
    own = [line for line in lines if line.startswith(ALL[1])]
    assert own[0] == f"{ALL[1]} | sum in runs/sum/{ALL[1]}: starts from the beginning"
    assert [re.sub(r"  \S+ ms$", "", line) for line in own[1:]] == [
        f"{ALL[1]} | epoch {e}/3  loss {1 / (10 + e):.5g}*  total {10 + e}" for e in (1, 2, 3)
    ]
    table = re.sub(r" +TIME", "  TIME", normalised(result.out)).replace("  time", "  time")
    assert re.sub(r" +time", "  time", table) == FINISHED
    assert states(home) == dict.fromkeys(ALL, ("finished", 3))
    assert totals(home) == dict(zip(ALL, (93, 13, 96, 16), strict=True))
    before = {p: p.stat().st_mtime_ns for p in home.rglob("*")}
    again = call("train", "sum.yaml")
    assert (again.code, again.err) == (0, "")
    assert again.out == result.out
    assert {p: p.stat().st_mtime_ns for p in home.rglob("*")} == before


def test_a_run_of_a_sweep_is_a_run_like_any_other(call: Call, sweep: Call) -> None:
    sweep(TWO)
    assert call("train", "sum.yaml").code == 0
    for name in ("runs/sum/step=2", "sum/step=2"):
        assert "runs/sum/step=2/checkpoint_3: epoch 3\n" in call("load-blobs", name).out
        assert call("checkpoints", "verify", name).code == 0
    done = call("resume", "runs/sum/step=2", "--epochs", "4")
    assert done.code == 0
    assert done.out.startswith("sum/step=2: finished after 4 epochs: 4 epochs done\n")
    assert load_blobs("runs/sum/step=2")["total"] == 108
    assert call("resume", "sum/step=2", "--epoch", "1", "--epochs", "4").code == 0
    wrong = call("load-blobs", "sum")
    assert wrong.code == 2
    assert "sum is a sweep of 2 runs\n  hint: name one of them: runs/sum/step=1" in wrong.err


def test_a_run_of_a_sweep_equals_the_single_run_bit_for_bit(
    call: Call, sweep: Call, folder: Path
) -> None:
    home = sweep()
    assert call("train", "sum.yaml", "-j", "2", "--set", "first=10").code == 0
    sweep(("matrix: {step: [1, 2], first: [90, 10]}\n", ""))
    for name in ALL[1::2]:
        sets = [part for text in name.split(",") for part in ("--set", text)]
        assert call("train", "sum.yaml", *sets, "--runs-dir", name).code == 0
        assert bytes_of_checkpoints(folder / name / "sum") == bytes_of_checkpoints(home / name)
        resolved = [d / "spec.resolved.yaml" for d in (folder / name / "sum", home / name)]
        assert resolved[0].read_bytes() == resolved[1].read_bytes()
        digests = [RunDir(d.parent).state() for d in resolved]
        assert digests[0] is not None
        assert digests[1] is not None
        assert digests[0].digest == digests[1].digest


def test_a_matrix_is_extended_and_cut_down(call: Call, sweep: Call) -> None:
    home = sweep(TWO)
    assert call("train", "sum.yaml").code == 0
    sweep((TWO[0], "step: [3, 2]"))
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert "sum: 2 runs in runs/sum: 1 finished already, 1 to start" in result.err
    assert "not in the matrix any more, and kept: step=1\n" in result.out
    assert totals(home) == {"step=1": 103, "step=2": 106, "step=3": 109}
    sweep((TWO[0], "first: [90], step: [2]"))
    assert "first=90,step=2" in call("train", "sum.yaml").out
    sweep((TWO[0], "step: [2], first: [90]"))
    result = call("train", "sum.yaml")
    assert result.err == ""
    assert result.out.endswith("jobrun load-blobs runs/sum/first=90,step=2\n")


@long
def test_set_picks_a_value_of_the_matrix_or_adds_one(call: Call, sweep: Call) -> None:
    home = sweep()
    assert call("train", "sum.yaml", "--set", "step=2").code == 0
    assert list(states(home)) == ALL[2:]
    assert call("train", "sum.yaml", "--set", "step=5", "--set", "vars.first=10").code == 0
    assert totals(home) == {ALL[2]: 96, ALL[3]: 16, "step=5,first=10": 25}
    done = call("resume", "runs/sum")  # the whole: the value that was added is part of it
    assert done.code == 0
    assert set(states(home)) == {*ALL, "step=5,first=90", "step=5,first=10"}
    assert call("train", "sum.yaml").out.count("not in the matrix any more") == 1


def test_seeds_of_the_job(call: Call, sweep: Call, folder: Path) -> None:
    random = ('call: "steps:start", in: {first}', 'call: "steps:start", in: {first: rng}')
    drawn = ("return first", "return float(first.random())")
    home = sweep(("step: [1, 2], first: [90, 10]", "seed: [1, 2]"), random, drawn)
    assert call("train", "sum.yaml", "-q").code == 0
    found = totals(home)
    assert list(found) == ["seed=1", "seed=2"]
    assert found["seed=1"] != found["seed=2"]
    alone = call("train", "sum.yaml", "-q", "--unset", "matrix", "--set", "seed=2", "--fresh")
    assert alone.code == 0
    assert load_blobs(folder / "runs/sum-2")["total"] == found["seed=2"]
    assert re.search(r"^  seed +1 +2$", call("compare", "sum").out, re.MULTILINE)


@pytest.mark.parametrize("name", ["seed", "other"])
def test_a_var_of_the_matrix_that_nothing_reads_is_said(name: str, call: Call, sweep: Call) -> None:
    sweep(
        ("vars: {step: 2", f"vars: {{{name}: 1, step: 2"),
        ("matrix: {step: [1, 2], first: [90, 10]}", f"matrix: {{{name}: [1, 2]}}"),
    )
    for command in ("validate", "train"):
        result = call(command, "sum.yaml")
        assert result.code == 0
        text = f"warning: var '{name}' is not used: the runs of the matrix that differ in it are"
        assert result.err.replace("warning: sum.yaml:2:8: var", "warning: var").count(text) == 1
        assert ("ranges over the seed of the job" in result.err) == (name == "seed")


def test_the_failure_of_one_run_stops_no_other(call: Call, sweep: Call) -> None:
    failing = ("return total + step", "return total + step if (step, total) != (1, 11) else 1 / 0")
    home = sweep(failing)
    result = call("train", "sum.yaml")
    assert result.code == 1
    assert f"{ALL[1]} | ZeroDivisionError: " in result.err
    assert f"{ALL[1]} | error: " in result.err
    assert re.search(r"^1 +10 +error +1 ", result.out, re.M)
    assert result.out.startswith("sum: 4 runs: 3 finished, 1 error\n")
    assert re.search(rf"^{ALL[1]}: error: task 'add' of group 'epoch' failed", result.out, re.M)
    assert result.out.endswith("\n\njobrun resume runs/sum\n")
    assert states(home)[ALL[1]] == ("error", 1)
    sweep()
    again = call("resume")
    assert again.code == 0
    assert "sum: 4 runs in runs/sum: 3 finished already, 1 to resume" in again.err
    assert f"{ALL[1]} | code that changed" not in again.out


def test_fail_fast_starts_no_further_run(call: Call, sweep: Call) -> None:
    home = sweep(("return first", "return first / (first - 10)"))
    result = call("train", "sum.yaml", "--fail-fast")
    assert result.code == 1
    assert list(states(home)) == ALL[:2]
    assert result.out.startswith("sum: 4 runs: 1 finished, 1 error, 2 waiting\n")


def test_a_run_that_a_condition_fails_is_reported_each_time(call: Call, sweep: Call) -> None:
    sweep(TWO, ("stop: {epochs: 3}", "stop: {epochs: 3}\nfail: {when: total > 104}"))
    result = call("train", "sum.yaml")
    assert result.code == 7
    assert result.out.startswith("sum: 2 runs: 1 finished, 1 FAILED\n")
    again = call("train", "sum.yaml")
    assert (again.code, again.out, again.err) == (7, result.out, "")


def test_a_process_that_is_killed_hurts_no_other(call: Call, sweep: Call) -> None:
    dies = "os.kill(os.getpid(), signal.SIGSEGV) if (step, total) == (1, 91) else 0"
    sweep(("return total + step", f"{dies}; return total + step"))
    result = call("train", "sum.yaml", "--jobs", "2")
    assert result.code == 1
    assert f"{ALL[0]} | the process was killed by SIGSEGV" in result.err
    assert result.out.startswith("sum: 4 runs: 3 finished, 1 error\n")
    assert f"{ALL[0]}: error: its process was killed by SIGSEGV\n" in result.out


@long
def test_code_that_cannot_be_imported_ends_the_sweep(call: Call, sweep: Call) -> None:
    home = sweep(("import os", "import nowhere, os"))
    result = call("train", "sum.yaml")
    assert result.code == 4
    assert result.err.count("nowhere") >= 1
    assert {line.partition(" |")[0] for line in result.err.splitlines()[1:]} == {ALL[0]}
    assert list(states(home)) == []
    sweep()
    assert call("resume", "sum.yaml").code == 0


def test_a_spec_that_has_changed(call: Call, sweep: Call, folder: Path) -> None:
    home = sweep(TWO, ("return 1 / total", "return 1 / (total - 103)"))
    assert call("train", "sum.yaml").code == 1  # step=1 ends with an error, step=2 is finished
    sweep(TWO, ("first: 100", "first: 50"))
    refused = call("train", "sum.yaml")
    assert refused.code == 2
    assert "runs/sum/step=1 is not finished (epoch 2)" in refused.err
    assert "vars.first: 100 -> 50" in refused.err
    assert "jobrun train sum.yaml --accept-changes\n" in refused.err
    assert call("train", "sum.yaml", "--accept-changes").code == 0
    assert totals(home) == {"step=1": 103, "step=2": 106}
    sweep(TWO, ("first: 100", "first: 70"))
    beside = call("train", "sum.yaml")
    assert beside.code == 0
    assert "a new sweep starts beside it\n" in beside.err
    assert totals(folder / "runs/sum-2") == {"step=1": 73, "step=2": 76}
    assert call("train", "sum.yaml", "--fresh").out.endswith("runs/sum-3/step=2\n")
    sweep(TWO, ("first: 100", "first: 50"))
    more = call("train", "sum.yaml", "--accept-changes", "--epochs", "4")
    assert "sum: 2 runs in runs/sum: 2 to resume" in more.err
    assert totals(home) == {"step=1": 104, "step=2": 108}


def wait_until(true: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def saved(home: Path, *names: str) -> Callable[[], bool]:
    return lambda: all((home / name / "checkpoint_2").exists() for name in names)


def test_a_signal_is_passed_on_once_and_the_sweep_goes_on(
    start: Call, call: Call, sweep: Call
) -> None:
    home = sweep(SLOW, MANY)
    process = start("train", "sum.yaml", "--jobs", "2")
    wait_until(saved(home, *ALL[:2]))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert "SIGTERM: no further run starts" in err
    for name in ALL[:2]:
        assert err.count(f"{name} | SIGTERM: no new work starts") == 1
    assert "again: exited at once" not in err
    assert out.startswith("sum: 4 runs: 2 interrupted, 2 waiting\n")
    assert out.endswith("\njobrun resume runs/sum\n")
    assert {state for state, _ in states(home).values()} == {"interrupted"}
    sweep()
    assert call("resume", "sum.yaml", "--epochs", "100", "-j", "2").code == 0
    assert totals(home) == dict(zip(ALL, (190, 110, 290, 210), strict=True))


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGHUP, marks=long),
        signal.SIGXCPU,
        pytest.param(signal.SIGUSR2, marks=long),
    ],
)
def test_notices_of_terminals_and_schedulers_end_a_sweep(
    number: signal.Signals, start: Call, sweep: Call
) -> None:
    """They may come several times, which does not end it at once.  SIGUSR1 only saves."""
    home = sweep(TWO, SLOW, MANY, ("stop:", "checkpoint: {every: 150}\nstop:"))
    process = start("train", "sum.yaml")
    wait_until(lambda: (home / "step=1/checkpoint_0").exists())
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: (home / "step=1/checkpoint_1").exists())
    process.send_signal(number)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "step=1 | SIGUSR1: the state is saved at the next possible point" in err
    assert f"{number.name}: no further run starts" in err
    assert "again: exited at once" not in err
    assert out.startswith("sum: 2 runs: 1 interrupted, 1 waiting\n")
    head = RunDir(home / "step=1").head()
    assert head is not None
    assert head.id == 2


STUCK = """\
if total > 100 + step:
        open(f"stuck-{step}", "w").close()
        time.sleep(600)
    return total + step"""


def test_a_second_signal_ends_all_at_once(start: Call, sweep: Call, folder: Path) -> None:
    home = sweep(TWO, MANY, ("return total + step", STUCK))
    process = start("train", "sum.yaml", "--jobs", "2")
    wait_until(lambda: all((folder / f"stuck-{n}").exists() for n in (1, 2)))
    process.send_signal(signal.SIGINT)
    assert any("SIGINT: no further run starts" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    wait_until(lambda: not any(RunDir(home / n).held() for n in ("step=1", "step=2")))


def test_a_sweep_that_is_killed_leaves_no_run_behind_and_goes_on(
    start: Call, call: Call, sweep: Call
) -> None:
    home = sweep(SLOW, MANY)
    process = start("train", "sum.yaml", "--jobs", "2")
    wait_until(saved(home, *ALL[:2]))
    process.kill()
    process.communicate()
    wait_until(lambda: not any(RunDir(home / name).held() for name in ALL))
    assert {state for state, _ in states(home).values()} == {"interrupted"}
    sweep()
    result = call("train", "sum.yaml", "--jobs", "2", "--epochs", "100")
    assert result.code == 0
    assert "sum: 4 runs in runs/sum, 2 at a time: 2 to resume, 2 to start" in result.err
    assert totals(home) == dict(zip(ALL, (190, 110, 290, 210), strict=True))


def test_one_process_holds_a_sweep(start: Call, call: Call, sweep: Call) -> None:
    home = sweep(SLOW, MANY, TWO)
    process = start("train", "sum.yaml")
    wait_until(saved(home, "step=1"))
    held = call("train", "sum.yaml")
    assert held.code == 8
    assert f"held by process {process.pid}" in held.err
    process.kill()
    process.communicate()


def test_json(jobrun: Call, call: Call, sweep: Call, folder: Path) -> None:
    sweep(TWO, ("return total + step", "print('{}'); return total + step"))
    result = jobrun("train", "sum.yaml", "--json")
    assert result.code == 0
    told = json.loads(result.out)
    assert (told["sweep"], told["exit_code"], told["left"]) == ("sum", 0, [])
    assert told["metrics"] == {"loss": "min", "total": None}
    assert told["best"] == {"loss": "step=2"}
    first = told["runs"][0]
    assert first["values"] == {"step": 1}
    assert (first["state"], first["epoch"], first["exit_code"]) == ("finished", 3, 0)
    assert first["metrics"] == {"loss": 1 / 103, "total": 103}
    assert first["best"] == {"loss": [1 / 103, 3]}
    assert first["run_dir"] == str(folder / "runs/sum/step=1")
    again = json.loads(call("train", "sum.yaml", "--json").out)
    assert again == told


def test_ways_to_name_what_is_resumed(call: Call, sweep: Call) -> None:
    sweep(TWO)
    result = call("train", "sum.yaml")
    for words in ([], ["sum"], ["runs/sum"], ["runs/sum/"], ["sum.yaml"]):
        again = call("resume", *words)
        assert (again.code, again.err, again.out) == (0, "", result.out), words
    refused = call("resume", "sum", "--epoch", "1")
    assert refused.code == 2
    assert "runs/sum is a sweep" in refused.err
    sweep(("matrix: {step: [1, 2], first: [90, 10]}\n", ""))
    changed = call("resume", "sum.yaml")
    assert changed.code == 2
    assert "is no longer a sweep" in changed.err
    assert call("train", "sum.yaml").out.startswith("sum-2: finished")
    assert call("resume", "sum.yaml").out.startswith("runs/sum-2 is finished")
    sweep(TWO)
    assert call("train", "sum.yaml").out == result.out


def test_a_narrow_terminal_and_quiet(terminal: Call, call: Call, sweep: Call) -> None:
    sweep(TWO)
    screen = terminal("-q", "train", "sum.yaml", size=(40, 10))
    assert screen.code == 0
    assert [re.sub(r" +(time|[\d.]+ m?s)$", "", line) for line in screen.plain.splitlines()] == [
        "sum: 2 runs: 2 finished",
        "step  state     epochs  total",
        *("1     finished       3    103", "2     finished       3    106"),
        "+1 metric: jobrun runs --columns",
        "best loss 0.009434 (epoch 3): step=2",
        "",
        "jobrun load-blobs runs/sum/step=2",
    ]


@pytest.mark.parametrize("width", [80, 120, 200, None])
def test_the_table_at_the_widths_of_terminals(width: int | None) -> None:
    """The best value of any epoch is starred; the last ones are left out if there is no room."""
    metrics = {"validation_loss": "min", "accuracy": "max", "rate": None}
    rows = [
        SweepRow(
            f"lr={n}",
            f"runs/s/lr={n}",
            {"lr": n, "depth": 3},
            state="finished",
            epoch=20,
            metrics={"validation_loss": 0.5 + n, "accuracy": 0.25, "rate": 0.125},
            best={"validation_loss": (0.5 - n / 8, 3), "accuracy": (0.75 - n / 8, 7)},
            elapsed=61.0,
        )
        for n in (1, 2, 3)
    ]
    lines = sweep_summary(SweepTable("s", "runs/s", metrics, rows, [], 0), width)
    header = re.split("  +", lines[1])
    assert max(map(len, lines)) <= (width or 200)
    best = ["best validation_loss", "best accuracy"]
    last = ["rate"] if width == 80 else [*metrics]
    assert header == ["lr", "depth", "state", "epochs", *last, *best, "time"]
    cells = [dict(zip(header, re.split("  +", line), strict=True)) for line in lines[2:5]]
    assert [row["best validation_loss"] for row in cells] == ["0.375", "0.25", "0.125*"]
    assert [row["best accuracy"] for row in cells] == ["0.625*", "0.5", "0.375"]
    assert lines[5:7] == [
        "best validation_loss 0.125 (epoch 3): lr=3",
        "best accuracy 0.625 (epoch 7): lr=1",
    ]


@pytest.mark.parametrize(("best_by", "run"), [(None, "a"), ("loss", "a"), ("accuracy", "b")])
def test_the_command_at_the_end_names_the_run_that_is_the_best(
    best_by: str | None, run: str
) -> None:
    rows = [
        SweepRow(
            n,
            f"runs/s/{n}",
            {},
            state="finished",
            best={"loss": (x, 1), "accuracy": (x, 1)},
            checkpoint="c",
        )
        for n, x in (("a", 0.1), ("b", 0.2))
    ]
    metrics = {"loss": "min", "accuracy": "max"}
    lines = sweep_summary(SweepTable("s", "runs/s", metrics, rows, [], 0, best_by))
    assert lines[-1] == f"jobrun load-blobs runs/s/{run}"


def test_values_are_shown_as_they_are(call: Call, sweep: Call, folder: Path) -> None:
    sweep(
        ("vars: {step: 2, first: 100}", 'vars: {step: 2, first: 100, tag: ""}'),
        ("step: [1, 2], first: [90, 10]", 'tag: ["[bold]x", "../a b", ""]'),
    )
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert re.search(r"^\[bold\]x +finished", result.out, re.M)
    names = sorted(run.path.name for run in SweepDir(folder / "runs/sum").runs())
    assert [re.sub(r"@[0-9a-f]{8}$", "@", name) for name in names] == [
        *("tag=", "tag=.._a_b@", "tag=_bold_x@")
    ]


def test_validate_counts_the_runs(call: Call, sweep: Call) -> None:
    sweep()
    assert call("validate", "sum.yaml").out == "sum.yaml: ok: job sum, 3 tasks, 4 runs\n"
    one = call("validate", "sum.yaml", "--set", "step=1")
    assert one.out == "sum.yaml: ok: job sum, 3 tasks, 2 runs\n"


def test_threads_are_shared_and_nothing_of_ours_is_left_to_tasks(
    jobrun: Call, sweep: Call, folder: Path
) -> None:
    told = "print(os.environ.get('JOBRUN_JOBS'), len(os.read(0, 1)))"
    sweep(TWO, ("return first", f"{told}; return first"))
    assert jobrun("train", "sum.yaml", JOBRUN_JOBS="2").code == 0
    cores = len(os.sched_getaffinity(0))
    for name in ("step=1", "step=2"):
        lines = (folder / "runs/sum" / name / "events.jsonl").read_text().splitlines()
        begun = next(e for line in lines if (e := json.loads(line))["event"] == "RunStarted")
        assert begun["session"].startswith(f"local, {max(1, cores // 2)} thread")
        assert " 2 0\n" in (folder / "runs/sum" / name / "log.txt").read_text()


def test_a_dry_run_says_what_would_be_done_with_each_run(
    call: Call, sweep: Call, folder: Path
) -> None:
    home = sweep(TWO)
    assert call("train", "sum.yaml", "--set", "step=1").code == 0
    before = sorted(home.rglob("*"))
    result = call("train", "sum.yaml", "-n", "--epochs", "4")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "sum: 2 runs in runs/sum: 1 to resume, 1 to start",
        "run     would",
        "step=1  resume from checkpoint_3 (epoch 3)",
        "step=2  start from the beginning",
    ]
    told = json.loads(call("resume", "sum", "-n", "--json").out)
    assert told["runs"][0] == {"run_dir": str(home / "step=1"), "would": "not be run: finished"}
    assert call("train", "sum.yaml", "-n", "--fresh").out.startswith("sum-2: 2 runs in runs/sum-2")
    assert sorted(home.rglob("*")) == before
    assert not (folder / "runs/sum-2").exists()


def test_a_sweep_without_checkpoints(call: Call, sweep: Call) -> None:
    sweep(TWO, ("stop: {epochs: 3}", "checkpoint: false\nstop: {epochs: 3}"))
    result = call("train", "sum.yaml")
    assert result.code == 0
    assert "2     finished       3   0.009434    106  0.009434*" in result.out
    assert result.out.splitlines()[-1] == "best loss 0.009434 (epoch 3): step=2"


SAYS = ("return total + step", "print('[bold]', step); return total + step")


@long
def test_progress_none_and_live(call: Call, sweep: Call) -> None:
    sweep(TWO)
    none = call("train", "sum.yaml", "--progress", "none")
    assert (none.code, none.err) == (0, "")
    assert none.out.startswith("sum: 2 runs: 2 finished\n")
    live = call("train", "sum.yaml", "--fresh", "--progress", "live")
    assert live.err.startswith("warning: stderr is not a terminal: progress is shown as lines\n")
    assert "step=2 | epoch 3/3  " in live.err


def test_a_terminal_gets_a_live_table(terminal: Call, sweep: Call) -> None:
    sweep(TWO, SAYS)
    screen = terminal("train", "sum.yaml", size=(80, 12))
    assert screen.code == 0
    assert "0 of 2 runs done, 1 running" in screen.plain
    assert "2 of 2 runs done, 0 running" in screen.plain
    assert re.search(r"step=2 +finished +3/3 +best loss 0\.009434\* \(epoch 3\)", screen.plain)
    assert re.search(r"step=1 +finished +3/3 +best loss 0\.0097087 \(epoch 3\)", screen.plain)
    assert screen.plain.count("step=2 | [bold] 2") == 3, "what tasks print stands above"
    assert "epoch 3/3" not in screen.plain, "the table stands for the lines of epochs"
    assert screen.text.endswith("jobrun load-blobs runs/sum/step=2\n")
    assert screen.text.count("\x1b[?25h") == 1, "the cursor is shown again"


class Paintings:
    """A terminal of a size that keeps what is painted."""

    def __init__(self, width: int, height: int) -> None:
        self.size = (width, height)
        self.above: list[str] = []
        self.lines: list[str] = []

    def paint(self, above: Any, lines: Any) -> None:
        self.above += above
        self.lines = ["".join(text for text, _ in line) for line in lines]
        assert max(map(len, self.lines)) <= self.size[0]
        assert len(self.lines) < self.size[1]

    def end(self, above: Any) -> None:
        self.lines = []


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 24), (200, 24), (30, 4)])
def test_the_live_table_fits_the_terminal(width: int, height: int) -> None:
    screen: Any = Paintings(width, height)
    names = [f"step={n}" for n in range(9)]
    board = LiveBoard(names, range(9), {"loss": "min", "n": None}, screen)
    for n in range(9):
        board.started(n)
        board.received(n, {"event": "RunStarted", "epoch": 0, "epochs": 7, "lines": []})
        values = {"epoch": 1, "metrics": {"loss": 9.0 - n, "n": "NaN"}, "best": ["loss"]}
        board.received(n, {"event": "EpochFinished", "lines": ["no"], **values})
    board.received(3, {"event": "Warned", "message": "careful", "lines": ["warning: careful"]})
    board.ended(4, -9)
    assert screen.above == [
        "step=3 | warning: careful",
        "step=4 | the process was killed by SIGKILL",
    ]
    assert screen.lines[0] == "1 of 9 runs done, 8 running"
    if height == 24:
        assert screen.lines[8].startswith("step=8  running  1/7  best loss 1* (epoch 1)")
        assert screen.lines[9].startswith("step=4  killed   1/7  best loss 5 (epoch 1) ")
        assert screen.lines[9].endswith("n nan")
    else:
        assert screen.lines[1:] == ["step=0  running  1/7", "and 8 more"]
    board.close()
    assert screen.lines == []


def test_progress_as_json(jobrun: Call, sweep: Call) -> None:
    sweep(TWO, SAYS, ("return 1 / total", "return 1 / (total - 104)"))
    result = jobrun("train", "sum.yaml", "--set", "first=100", "--progress", "json")
    assert result.code == 1
    events = [json.loads(line) for line in result.err.splitlines()]
    assert {e["run"] for e in events} == {"step=1", "step=2"}
    for run in ("step=1", "step=2"):
        own = [e for e in events if e["run"] == run]
        names = [e["event"] for e in own]
        assert names.count("RunStarted") == names.count("RunEnded") == 1
        printed = {e["text"] for e in own if e["event"] == "Printed"}
        assert printed == {f"[bold] {run[-1]}"}
    # What a task prints comes through a pipe of its own, maybe later.
    ended, error = (own[names.index(name)] for name in ("RunEnded", "Error"))
    assert own.index(ended) < own.index(error)
    assert (ended["outcome"], ended["epoch"]) == ("error", 1)
    assert error["exit_code"] == 1
    assert "ZeroDivisionError" in error["error"]["trace"]
    assert result.out.startswith("sum: 2 runs: ")
