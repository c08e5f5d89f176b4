"""SIGINT and SIGTERM: the run ends, says what is on disk, and can go on.  SIGUSR1: it is saved."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.runs.rundir import RunDir

Call = Callable[..., Any]
SLOW = ("return total + step", "import time; time.sleep(0.1); return total + step")
STUCK = (
    "return total + step",
    """import time
    if total > 103:
        open("stuck", "w").close()
        time.sleep(600)
    return total + 2""",
)
MANY = ("epochs: 3", "epochs: 100")


def wait_for(process: subprocess.Popen[str], text: str) -> str:
    """Read stderr until a line holds ``text``; what was read."""
    read = ""
    assert process.stderr is not None
    for line in process.stderr:
        read += line
        if text in line:
            return read
    raise AssertionError(f"{text!r} never came:\n{read}")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGXCPU, 128 + signal.SIGXCPU),
        (signal.SIGUSR2, 128 + signal.SIGUSR2),
    ],
)
def test_the_first_signal_ends_the_run_and_it_goes_on(
    number: signal.Signals, code: int, start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(SLOW, MANY)
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "saved checkpoint_1 ")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code
    assert f"{number.name}: no new work starts" in err
    assert out.splitlines()[-1] == "jobrun resume runs/sum"
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.reason) == ("interrupted", number.name)
    done = state.epoch
    assert out.startswith(f"sum: interrupted after {done} epoch")
    head = RunDir(folder / "runs/sum").head()
    assert head is not None
    assert head.epoch == done
    assert f"  checkpoint  runs/sum/checkpoint_{head.id} ({head.place})" in out
    assert load_blobs(folder / "runs/sum", epoch=done)["total"] == 100 + 2 * done
    write(MANY)
    result = call("resume", "--epochs", str(done + 2))
    assert result.code == 0
    where = "after" if head.at_boundary else "in"
    assert f"continues {where} {head.place} (checkpoint_{head.id})" in result.err
    assert load_blobs(folder / "runs/sum")["total"] == 100 + 2 * (done + 2)


def test_the_second_signal_leaves_at_once(start: Call, write: Call, folder: Path) -> None:
    write(STUCK, MANY)
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "epoch 2/100")
    for path in (folder / "runs/sum/checkpoint_2", folder / "stuck"):
        while not path.exists():
            time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    wait_for(process, "SIGINT: no new work starts")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "SIGINT again: exited at once; the last checkpoint is whole" in err
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.reason) == (
        "interrupted",
        "the process was killed or crashed (no end recorded)",
    )
    assert load_blobs(folder / "runs/sum")["total"] == 104


def test_a_sigterm_that_follows_another_at_once_is_the_same(start: Call, write: Call) -> None:
    """As Slurm sends them at the end of the time to what srun has started."""
    write((SLOW[0], SLOW[1].replace("0.1", "1")), MANY)  # so that all come before the run ends
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "saved checkpoint_1 ")
    for _ in range(3):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143
    assert err.count("SIGTERM: no new work starts") == 1
    assert "exited at once" not in err
    assert out.startswith("sum: interrupted after ")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR2])
def test_a_repeated_notice_does_not_exit_at_once(
    number: signal.Signals, start: Call, write: Call
) -> None:
    write(SLOW, MANY)
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "saved checkpoint_1 ")
    process.send_signal(number)
    wait_for(process, f"{number.name}: no new work starts")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "exited at once" not in err
    assert out.startswith("sum: interrupted after ")


def test_an_ignored_sighup_stays_ignored(start: Call, write: Call) -> None:
    """As under nohup."""
    write(SLOW)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited by the run
    try:
        process = start("-v", "train", "sum.yaml")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(process, "saved checkpoint_1 ")
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "SIGHUP" not in err


def test_a_signal_while_code_is_imported(start: Call, write: Call, folder: Path) -> None:
    """Also where what is raised there would be taken for something else."""
    slow = "import sys, time\nprint('importing', file=sys.stderr, flush=True)\n"
    write(code=slow + "try:\n    time.sleep(600)\nexcept BaseException:\n    raise ValueError\n")
    process = start("train", "sum.yaml")
    wait_for(process, "importing")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (143, "")
    assert err.endswith("SIGTERM: exited before the run began\n")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("module", ["click", "numpy"])
def test_a_signal_while_jobrun_is_imported(
    number: signal.Signals, code: int, module: str, start: Call, write: Call, folder: Path
) -> None:
    write()
    (folder / "first").mkdir()
    slow = "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    (folder / f"first/{module}.py").write_text(slow)
    process = start("train", "sum.yaml", PYTHONPATH=str(folder / "first"))
    wait_for(process, "importing")
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (code, "")
    assert err == f"{number.name}: exited before the run began\n"


def test_a_killed_run_is_interrupted_and_goes_on(
    start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(SLOW, MANY)
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "saved checkpoint_2 ")
    process.kill()
    process.communicate()
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert state.state == "interrupted"
    write()
    assert call("train", "sum.yaml").code == 0
    assert load_blobs(folder / "runs/sum", epoch=3)["total"] == 106


PIPE = """\
name: rows
setup:
  - {call: "rows:rows", out: x}
init:
  - {call: "rows:zero", out: total}
epoch:
  - name: train
    pipe: {from: x, batch: 1, threads: 1}
    do:
      - {call: "rows:add", in: {total, x}, out: total}
checkpoint: {every: 100}
stop: {epochs: 1}
"""
ROWS = """\
import time
import numpy as np

def rows():
    return np.arange(60.0)

def zero():
    return 0.0

def add(total, x):
    time.sleep(0.05)
    return total + float(x[0])
"""


@pytest.fixture
def rows(folder: Path) -> Path:
    """A job of one epoch of 60 slow batches, saved only when it is asked for; its run."""
    (folder / "rows.yaml").write_text(PIPE)
    (folder / "rows.py").write_text(ROWS)
    return folder / "runs/rows"


def test_a_save_on_demand_and_an_end_inside_an_epoch(
    start: Call, call: Call, rows: Path, folder: Path
) -> None:
    process = start("train", "rows.yaml")
    wait_for(process, "starts from the beginning")
    while not (rows / "checkpoint_0").exists():
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    asked = wait_for(process, "SIGUSR1: the state is saved at the next possible point")
    assert "saved" not in asked.replace("the state is saved", "")
    saved = wait_for(process, "saved checkpoint_1 (epoch 1, after batch ")
    batch = int(saved.rpartition("batch ")[2].partition(" ")[0])
    assert 0 < batch < 60
    (one,) = (r for r in RunDir(rows).records() if r.id == 1)
    assert one.position.pipes["train"].batches == batch
    assert load_blobs(rows, id=1)["total"] == sum(range(batch))
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 143
    head = RunDir(rows).head()
    assert head is not None
    where = f"epoch 1, after batch {head.position.pipes['train'].batches} of pipe 'train'"
    assert f"  checkpoint  runs/rows/checkpoint_{head.id} ({where})" in out
    (folder / "rows.py").write_text(ROWS.replace("time.sleep(0.05)", "pass"))
    result = call("resume")
    assert result.code == 0
    assert f"rows in runs/rows: continues in {where} (checkpoint_{head.id})\n" in result.err
    assert load_blobs(rows)["total"] == sum(range(60))


def test_a_save_on_demand_where_there_is_nothing_to_save(
    start: Call, folder: Path, rows: Path
) -> None:
    (folder / "rows.yaml").write_text(PIPE.replace("{every: 100}", "false"))
    process = start("train", "rows.yaml")
    wait_for(process, "starts from the beginning")
    process.send_signal(signal.SIGUSR1)
    wait_for(process, "warning: SIGUSR1: this job writes no checkpoints")
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_save_on_demand_while_code_is_imported(start: Call, write: Call) -> None:
    write(("def start", "import sys, time\nprint('importing', file=sys.stderr, flush=True)\n"
           "time.sleep(0.5)\n\ndef start"))  # fmt: skip
    process = start("train", "sum.yaml")
    wait_for(process, "importing")
    process.send_signal(signal.SIGUSR1)
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.parametrize(
    "theirs",
    [
        "signal.signal(signal.SIGTERM, lambda *_: None)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
        "faulthandler.register(signal.SIGTERM, file=open('trace', 'w'))",
    ],
)
def test_handlers_that_an_import_sets_are_not_used(
    theirs: str, start: Call, write: Call, folder: Path
) -> None:
    write(SLOW, MANY, ("def start", f"import faulthandler, signal\n{theirs}\n\ndef start"))
    process = start("-v", "train", "sum.yaml")
    told = wait_for(process, "saved checkpoint_1 ")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, out + err
    assert "resume runs/sum" in out
    seen = theirs.startswith("signal.signal")
    assert (told + err).count("set its own handler of SIGTERM: it is not used") == int(seen)


def test_handlers_that_a_task_sets_from_c_are_not_used_for_long(
    start: Call, write: Call, folder: Path
) -> None:
    """A task is on no thread that may set one in Python; code in C may."""
    fault = "import faulthandler, signal\n    faulthandler.register(signal.SIGTERM)\n    "
    write(MANY, (SLOW[0], f"if total == 100: register()\n    {SLOW[1]}"),
          ("def start", f"def register():\n    {fault}\n\ndef start"))  # fmt: skip
    process = start("-v", "train", "sum.yaml")
    wait_for(process, "saved checkpoint_15 ")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, out + err
    assert "SIGTERM: no new work starts" in err


def test_what_the_code_has_set_is_there_again_afterwards(
    call: Call, write: Call, folder: Path
) -> None:
    def theirs(*_: object) -> None:
        return

    before = signal.getsignal(signal.SIGTERM)
    write(("def start", "import signal, test_signals_theirs\n"
           "signal.signal(signal.SIGTERM, test_signals_theirs.theirs)\n\ndef start"))  # fmt: skip
    sys.modules["test_signals_theirs"] = SimpleNamespace(theirs=theirs)  # type: ignore[assignment]
    try:
        assert call("train", "sum.yaml").code == 0
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
        del sys.modules["test_signals_theirs"]
