"""The Slurm job of a run: what its environment says, and the interruption before it ends."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task
from jobrun.checkpoint.catalog import listed
from jobrun.core.events import Event, Stopping, Warned
from jobrun.engine.slurm import SlurmJob, slurm_job, time_to_stop
from jobrun.errors import SpecError, UsageError

END = "SLURM_JOB_END_TIME"


def column() -> np.ndarray:
    return np.arange(40)


def zero() -> int:
    return 0


def add(total: int, x: Any) -> int:
    time.sleep(0.02)
    return total + int(x.sum())


def job_of(**stop: Any) -> Job:
    with Job("sum") as job:
        with job.setup:
            Task(column, out="rows")
        with job.init:
            Task(zero, out="total")
        Pipe({"x": "rows"}, batch=1, do=[Task(add, ["total", "x"], out="total")], name="sum")
        job.stop(**{"epochs": 2, "walltime": "slurm", **stop})
    return job


def train(directory: Path, job: Job) -> tuple[JobRunner, list[Event]]:
    events: list[Event] = []
    runner = JobRunner(job, CheckpointManager(directory), report=events.append)
    runner.train(LocalSession(1))
    return runner, events


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, SlurmJob()),
        ({"SLURM_JOB_ID": "17", END: "1700000000"}, SlurmJob("17", 0, 1.7e9)),
        ({"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "2"}, SlurmJob("17", 2)),
        (
            {"SLURM_JOB_ID": "19", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"},
            SlurmJob("17_3"),
        ),
    ],
)
def test_what_the_environment_says(environ: dict[str, str], job: SlurmJob) -> None:
    assert slurm_job(environ) == job


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "1e300"])
def test_an_end_that_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=f"{END}: expected seconds since 1970, got '{text}'"):
        slurm_job({END: text})


@pytest.mark.parametrize(("longest_save", "last"), [(0.0, 940.0), (100.0, 740.0)])
def test_there_is_time_for_two_of_the_longest_saves(
    longest_save: float, last: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now, stops in ((last - 1, False), (last, True)):
        monkeypatch.setattr("jobrun.engine.slurm.time", SimpleNamespace(time=lambda now=now: now))
        assert time_to_stop(1000.0, longest_save) == stops


def test_a_run_is_interrupted_in_time_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within an epoch, as by SIGTERM; in the next job it resumes at the very next batch."""
    monkeypatch.setenv(END, str(time.time() + 60.3))
    runner, events = train(tmp_path, job_of())
    ended = runner.outcome
    assert ended is not None
    assert (ended.outcome, ended.exit_code) == ("interrupted", 143)
    assert ended.reason.startswith("the Slurm job ends at ")
    assert [e.signal for e in events if isinstance(e, Stopping)] == [ended.reason]
    batches = listed(tmp_path)[-1].position.pipes["sum"].batches
    assert 0 < batches < 40
    monkeypatch.setenv(END, str(time.time() + 3600))
    runner, _ = train(tmp_path, job_of())
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.epoch) == ("finished", 2)
    assert runner.blobs["total"] == 2 * sum(range(40))


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "this is not a Slurm job: SLURM_JOB_END_TIME is not set"),
        ({"SLURM_JOB_ID": "17"}, "as Slurm does from 23.02 on; before 'jobrun': export SLURM_JOB_"),
    ],
)
def test_where_the_end_is_not_known_there_is_a_warning(
    environ: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(END, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    runner, events = train(tmp_path, job_of(epochs=1))
    assert runner.blobs["total"] == sum(range(40))
    (warning,) = (e.message for e in events if isinstance(e, Warned))
    assert warning.startswith("'walltime: slurm' has no effect: ")
    assert why in warning


def test_a_job_that_does_not_ask_for_it_is_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(END, str(time.time()))
    runner, _ = train(tmp_path, job_of(epochs=1, walltime="1h"))
    assert runner.outcome is not None
    assert runner.outcome.outcome == "finished"


def test_it_never_ends_a_run_and_is_no_failure() -> None:
    with Job("sum") as job:
        Task(zero, out="total")
        job.stop(walltime="slurm")
    with pytest.raises(SpecError, match="interrupts a run, which resumes later"):
        JobRunner(job)
    job.stop(epochs=1)
    job.fail(walltime="slurm")
    with pytest.raises(SpecError, match=r"fail\.walltime: 'slurm' interrupts a run"):
        JobRunner(job)
