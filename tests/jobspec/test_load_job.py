"""``Job.load``: a spec for Python and notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, Task
from jobrun.errors import SpecError, UsageError

SPEC = """\
vars: {lr: 0.25, first: 1, tag: a}
init: [{call: "loadable:start", in: first, out: x}]
epoch: [{call: "loadable:step", in: {x, lr}, with: {file: "${spec.dir}/add.txt"}, out: x}]
stop: {epochs: 2}
"""
CODE = """\
def start(first):
    return float(first)

def step(x, lr, file):
    return x + lr + float(open(file).read())
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec in ``configs/``, and its code above."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "loadable.py").write_text(CODE)
    (tmp_path / "configs/add.txt").write_text("1")
    path = tmp_path / "configs/job.yaml"
    path.write_text(SPEC)
    return path


def test_it_runs_and_the_command_line_knows_its_spec(spec: Path, tmp_path: Path) -> None:
    job = Job.load(spec, set={"lr": 0.5, "stop.epochs": 3}, code=tmp_path)
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"))
    assert repr(runner) == f"JobRunner(Job('job'), {tmp_path / 'run'})"
    assert runner.train() == 3
    assert runner.blobs["x"] == 5.5
    assert repr(runner).endswith("run, finished after 3 epochs)")
    state: dict[str, Any] = json.loads((tmp_path / "run/run.json").read_text())
    assert (state["spec"], state["built_in_python"]) == ("configs/job.yaml", False)
    assert "lr: 0.5" in (tmp_path / "run/spec.resolved.yaml").read_text()


@pytest.mark.parametrize(
    ("value", "found"),
    [(2, 2.0), (np.float32(0.5), 0.5), (1e-5, 1e-5), (float("inf"), float("inf"))],
)
def test_values_of_python(spec: Path, value: object, found: float) -> None:
    assert Job.load(spec, {"lr": value}).vars["lr"] == found


def test_strings_and_none(spec: Path) -> None:
    job = Job.load(spec, {"tag": "true", "checkpoint.every": 5, "seed": None})
    assert (job.vars["tag"], job.seed) == ("true", 0)
    assert job.checkpoint is not None
    assert job.checkpoint.every.epochs == 5


def test_what_cannot_be(spec: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a number, a string, a bool or None for 'lr'"):
        Job.load(spec, {"lr": [1]})
    with pytest.raises(UsageError, match="there is no 'lrr'"):
        Job.load(spec, {"lrr": 1})
    with pytest.raises(SpecError, match="expected a number of epochs from 1 up, got 0"):
        Job.load(spec, {"stop.epochs": 0})
    with pytest.raises(UsageError, match="there is no spec"):
        Job.load(spec.with_name("gone.yaml"))


def test_one_run_of_a_sweep(spec: Path) -> None:
    spec.write_text(SPEC + "matrix: {lr: [0.25, 0.5], first: [1, 2]}\n")
    with pytest.raises(UsageError, match="is a sweep of 4 runs") as caught:
        Job.load(spec)
    assert caught.value.hint.startswith("choose it: set={'lr': …, 'first': …}")
    job = Job.load(spec, {"lr": 0.5, "first": 2})
    assert (job.vars["lr"], job.vars["first"]) == (0.5, 2)


def test_the_picture_of_a_job(spec: Path) -> None:
    picture = Job.load(spec)._repr_svg_()
    assert picture is not None
    assert picture.startswith("<svg ")
    with Job("begun") as job:
        assert job._repr_svg_() is not None
        with job.epoch:
            Task(abs, "nothing", out="x")
    assert job._repr_svg_() is None
