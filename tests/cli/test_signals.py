"""SIGINT and SIGTERM: the run ends at a boundary, says what is on disk, and can go on."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.blobs import load_blobs
from jobrun.rundir import RunDir

Call = Callable[..., Any]
SLOW = ("return total + step", "import time; time.sleep(0.1); return total + step")
STUCK = (
    "return total + step",
    "import time; time.sleep(60 if total > 103 else 0); return total + 2",
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_run_at_a_boundary(
    number: signal.Signals, code: int, start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(SLOW, MANY)
    process = start("train", "sum.yaml")
    wait_for(process, "saved checkpoint_1 ")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert f"{number.name}: no new work starts" in err
    assert out.splitlines()[-1] == "jobrun resume runs/sum"
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.reason) == ("interrupted", number.name)
    done = state.epoch
    assert out.startswith(f"sum: interrupted after {done} epoch")
    assert f"  checkpoint  runs/sum/checkpoint_{done} (epoch {done})" in out
    assert load_blobs(folder / "runs/sum")["total"] == 100 + 2 * done
    write(MANY)
    result = call("resume", "--epochs", str(done + 2))
    assert result.code == 0
    assert f"goes on after epoch {done} (checkpoint_{done})" in result.err
    assert load_blobs(folder / "runs/sum")["total"] == 100 + 2 * (done + 2)


def test_the_second_signal_leaves_at_once(start: Call, write: Call, folder: Path) -> None:
    write(STUCK, MANY)
    process = start("train", "sum.yaml")
    wait_for(process, "saved checkpoint_2 ")
    time.sleep(0.1)  # the third epoch is asleep in a task now
    process.send_signal(signal.SIGINT)
    wait_for(process, "SIGINT: no new work starts")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "SIGINT again: left at once; the last checkpoint is whole" in err
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert (state.state, state.reason) == ("interrupted", "the process ended without a word")
    assert load_blobs(folder / "runs/sum")["total"] == 104


def test_a_signal_while_code_is_imported(start: Call, write: Call, folder: Path) -> None:
    slow = "import sys, time\nprint('importing', file=sys.stderr, flush=True)\ntime.sleep(60)\n"
    write(code=slow)
    process = start("train", "sum.yaml")
    wait_for(process, "importing")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=10)
    assert (process.returncode, out) == (143, "")
    assert not (folder / "runs").exists()


def test_a_killed_run_is_interrupted_and_goes_on(
    start: Call, call: Call, write: Call, folder: Path
) -> None:
    write(SLOW, MANY)
    process = start("train", "sum.yaml")
    wait_for(process, "saved checkpoint_2 ")
    process.kill()
    process.communicate()
    state = RunDir(folder / "runs/sum").state()
    assert state is not None
    assert state.state == "interrupted"
    write()
    assert call("train", "sum.yaml").code == 0
    assert load_blobs(folder / "runs/sum", epoch=3)["total"] == 106
