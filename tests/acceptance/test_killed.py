"""The digits, killed right after any of their checkpoints and resumed: the bytes of one left alone.

SIGKILL to a process of its own, and a resume in another.  All epochs with JOBRUN_LONG, else a few.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_runs import bytes_of_checkpoints, facts_of_checkpoints, ids_and_epochs

from jobrun.runs.rundir import RunDir

ROOT = Path(__file__).parent.parent.parent
SPEC = str(ROOT / "specs" / "digits.yaml")
SUPPORT = str(ROOT / "tests" / "support")
LONG = bool(os.environ.get("JOBRUN_LONG"))


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with the helpers on its path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    return subprocess.run(
        [sys.executable, "-m", *args],
        env={**env, "PYTHONPATH": SUPPORT},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def alone(memory: Path) -> Path:
    """The run that nobody disturbed."""
    done = python("jobrun", "train", SPEC, "--runs-dir", str(memory / "alone"))
    assert done.returncode == 0, done.stderr
    return memory / "alone" / "digits-mlp"


def last(run: Path) -> int:
    """The epoch of the newest checkpoint."""
    return max(ids_and_epochs(run).values())


def metrics(run: Path) -> list[list[str]]:
    """``metrics.csv`` without the columns of times."""
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    kept = [i for i, name in enumerate(rows[0]) if name not in ("seconds", "elapsed")]
    return [[row[i] for i in kept] for row in rows]


def assert_same(run: Path, alone: Path) -> None:
    """The same stopping epoch, metrics, checkpoints and report, byte for byte."""
    states = [RunDir(path).state() for path in (run, alone)]
    assert all(s is not None and s.state == "finished" for s in states)
    assert len({s.reason for s in states if s}) == 1
    assert ids_and_epochs(run) == ids_and_epochs(alone)
    assert metrics(run) == metrics(alone)
    assert [row[0] for row in metrics(run)[1:]] == [str(e) for e in range(1, last(alone) + 1)]
    assert bytes_of_checkpoints(run) == bytes_of_checkpoints(alone)
    assert facts_of_checkpoints(run) == facts_of_checkpoints(alone)
    assert (run / "report.txt").read_bytes() == (alone / "report.txt").read_bytes()


def kill_and_resume(runs: Path, epoch: int, resume: Callable[[Path], tuple[str, ...]]) -> Path:
    """Train, killed after the checkpoint of ``epoch``; then go on to the end."""
    killed = python("killed_at", str(epoch), "train", SPEC, "--runs-dir", str(runs))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = runs / "digits-mlp"
    assert last(run) == epoch
    state = RunDir(run).state()
    assert state is not None
    assert state.state == "interrupted"
    done = python("jobrun", *resume(run))
    assert done.returncode == 0, done.stderr
    assert f"checkpoint_{epoch}" in done.stderr
    return run


@pytest.mark.parametrize(
    "place", ["after init", "first", "middle", "last"] if LONG else ["after init", "last"]
)
def test_killed_after_a_checkpoint_and_resumed_equals_left_alone(
    run_dir: Path, alone: Path, place: str
) -> None:
    end = last(alone)
    epoch = {"after init": 0, "first": 1, "middle": end // 2, "last": end}[place]
    run = kill_and_resume(run_dir, epoch, lambda run: ("resume", str(run)))
    assert_same(run, alone)


@pytest.mark.skipif(not LONG, reason="JOBRUN_LONG is not set")
def test_killed_after_every_checkpoint_and_resumed_equals_left_alone(
    run_dir: Path, alone: Path
) -> None:
    for epoch in range(last(alone) + 1):
        run = kill_and_resume(run_dir / str(epoch), epoch, lambda run: ("resume", str(run)))
        assert_same(run, alone)


def test_killed_and_the_same_command_again_on_other_threads_equals_left_alone(
    run_dir: Path, alone: Path
) -> None:
    again = ("train", SPEC, "--runs-dir", str(run_dir), "--threads", "7")
    assert_same(kill_and_resume(run_dir, 3, lambda run: again), alone)
