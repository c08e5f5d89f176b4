"""The specs, killed or interrupted inside an epoch and resumed, end as those left alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from whole_runs import bytes_of_checkpoints, facts_of_checkpoints, records

from jobrun import load_blobs

ROOT = Path(__file__).parents[2]
FINISHED = {
    "metropolis": 22,
    "gridworld": 42,
    "heat": 234,
    "life": 23,
    "mixture": 12,
    "pagerank": 75,
}
"""The epochs that each takes."""

needs_awk = pytest.mark.skipif(not (shutil.which("awk") and shutil.which("bash")), reason="no awk")
specs = pytest.mark.parametrize(
    "spec", [pytest.param(name, marks=needs_awk if name == "life" else ()) for name in FINISHED]
)


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with the helpers on its path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    env["PYTHONPATH"] = str(ROOT / "tests" / "support")
    return subprocess.run(
        [sys.executable, "-m", *args], env=env, capture_output=True, text=True, timeout=120
    )


def jobrun(*args: str) -> None:
    """Run the command to a good end."""
    code, _, err = warm.jobrun(args, ROOT, warm.environment())
    assert code == 0, err


def train(spec: str, runs: Path) -> tuple[str, ...]:
    """The arguments that train a spec."""
    return ("train", str(ROOT / "specs" / f"{spec}.yaml"), "--runs-dir", str(runs))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that nobody disturbed, each made when it is first needed."""
    return tmp_path_factory.mktemp("alone")


def left_alone(spec: str, alone: Path) -> Path:
    """The run of a spec that nobody disturbed."""
    if not (alone / spec).exists():
        jobrun(*train(spec, alone))
    assert records(alone / spec)[-1].epoch == FINISHED[spec]
    return alone / spec


def files(run: Path) -> dict[str, bytes]:
    """What ``exit`` has written into the directory of a run."""
    names = ("report.txt", "rod.csv", "rank.csv", "policy.txt", "cells.txt")
    return {name: (run / name).read_bytes() for name in names if (run / name).exists()}


@pytest.mark.sampled(2)
@specs
@pytest.mark.parametrize("part", [0, 0.5])
def test_killed_after_a_checkpoint_and_resumed_equals_left_alone(
    spec: str, part: float, alone: Path, tmp_path: Path
) -> None:
    undisturbed = left_alone(spec, alone)
    saved = {"heat": 20, "mixture": 10, "pagerank": 10}.get(spec, 5)
    epoch = int(part * FINISHED[spec] / saved + 0.5) * saved
    killed = python("killed_at", str(epoch), *train(spec, tmp_path))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert records(tmp_path / spec)[-1].epoch == epoch
    jobrun(*train(spec, tmp_path), "--threads", "5")
    assert bytes_of_checkpoints(tmp_path / spec) == bytes_of_checkpoints(undisturbed)
    assert facts_of_checkpoints(tmp_path / spec) == facts_of_checkpoints(undisturbed)
    assert files(tmp_path / spec) == files(undisturbed) != {}


@specs
def test_interrupted_inside_epochs_and_resumed_equals_left_alone(
    spec: str, alone: Path, tmp_path: Path
) -> None:
    undisturbed = left_alone(spec, alone)
    inside = False
    for place in (1, 9, 2, 3, 5):  # which place is inside depends on the threads that look
        cut = python("cut_at", str(place), *train(spec, tmp_path))
        assert cut.returncode == 128 + signal.SIGTERM, cut.stderr
        inside |= bool(records(tmp_path / spec)[-1].position.tasks)
        if place != 1 and (inside or spec in ("life", "pagerank")):
            break
    assert inside == (spec not in ("life", "pagerank")), "their epochs are one task"
    jobrun(*train(spec, tmp_path))
    first, second = load_blobs(undisturbed), load_blobs(tmp_path / spec)
    assert list(first) == list(second)
    for name in first:
        assert np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes(), name
    assert records(tmp_path / spec)[-1].metrics == records(undisturbed)[-1].metrics
    assert files(tmp_path / spec) == files(undisturbed)
