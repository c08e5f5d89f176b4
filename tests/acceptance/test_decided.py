"""What starting the same command again does: every row of the table, with real runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import Ended, ids_and_epochs, start, state_of_disk, train, train_and_die

from jobrun import Best, CheckpointPolicy, Every, Job, Keep, Pipe, Task
from jobrun.core.events import RunStarted
from jobrun.engine.resume_policy import Request
from jobrun.errors import RunRefusedError
from jobrun.model.rows import Shuffle

EPOCHS = 4
Edit = Callable[[Job], None]


def add(x: np.ndarray, lr: float, total: np.ndarray) -> None:
    """Add a batch to the total."""
    total += lr * x.sum()


def other_add(x: np.ndarray, lr: float, total: np.ndarray) -> None:
    """Something else."""
    total -= lr * x.sum()


def made() -> Job:
    """The job that was run."""
    with Job("decided", seed=1, vars={"lr": 0.5}, metrics={"loss": "min"}) as job:
        with job.setup:
            Task(lambda: np.arange(10.0), out="rows", name="rows")
        with job.init:
            Task(lambda: np.zeros(1), out="total", name="zero")
        step = Task(add, {"x": None, "lr": None}, update={"total": None})
        Pipe({"x": "rows"}, 2, batches_per_epoch=2, do=[step], name="read")
        Task(lambda total: float(total[0]), "total", out="loss", name="measure")
        job.stop(epochs=EPOCHS)
    return job


def reader(role: str, **changes: Any) -> Edit:
    """Change a part of the pipe's reader."""

    def edit(job: Job) -> None:
        pipe = job.epoch.tasks[0]
        assert isinstance(pipe, Pipe)
        part = replace(getattr(pipe.reader, role) or Shuffle(), **changes)
        pipe.reader = replace(pipe.reader, **{role: part})

    return edit


def more_epochs(job: Job) -> None:
    """``stop.epochs``: two more."""
    job.conditions.clear()
    job.stop(epochs=EPOCHS + 2)


def policy(job: Job) -> None:
    """``checkpoint``."""
    job.checkpoint = CheckpointPolicy(Every(2), Keep(last=2, best=Best("loss")))


def metrics(job: Job) -> None:
    """``metrics``."""
    job.metrics = {"loss": "max"}


def passes(job: Job) -> None:
    """``passes``, with the condition that it needs."""
    reader("batches", passes=100)(job)
    job.stop(data_finished="read")


def var(job: Job) -> None:
    """A var."""
    job.vars["lr"] = 0.25


def seed(job: Job) -> None:
    """The seed."""
    job.seed = 2


def function(job: Job) -> None:
    """A task's function."""
    job.epoch.tasks[0].do[0].fn = other_add


def new_task(job: Job) -> None:
    """One more task."""
    with job.exit:
        Task(lambda total: None, "total", name="report")


def nodes(job: Job) -> None:
    """Nodes instead of none."""
    job.nodes, job.multi_node = {"a": {}, "b": {}}, True
    for group in job.groups.values():
        for task in group.tasks:
            task.node = "*"


FREE: dict[str, Edit] = {
    "nothing": lambda job: None,
    "stop": more_epochs,
    "batches_per_epoch": reader("batches", batches_per_epoch=1),
    "passes": passes,
    "threads": reader("workers", threads=4),
    "checkpoint policy": policy,
    "metrics": metrics,
}
OF_THE_JOB: dict[str, Edit] = {
    "tasks": new_task,
    "a function": function,
    "vars": var,
    "seed": seed,
    "nodes": nodes,
    "shuffle": reader("shuffle"),
    "drop_last": reader("batches", drop_last=True),
    "batch": reader("batches", batch=3),
}


def edited(edit: Edit) -> Job:
    job = made()
    edit(job)
    return job


@pytest.fixture
def unfinished(run_dir: Path) -> Path:
    """A run that was killed after epoch 2."""
    train_and_die(made(), run_dir, after=2)
    return run_dir


@pytest.fixture
def finished(run_dir: Path) -> Path:
    """A run that has ended."""
    train(made(), run_dir)
    return run_dir


def notes(ended: Ended) -> str:
    """What was said at the start."""
    (started,) = ended.said(RunStarted)
    return "\n".join(started.notes)


@pytest.mark.parametrize("command", ["train", "resume"])
@pytest.mark.parametrize("what", FREE)
def test_unfinished_and_nothing_of_the_job_has_changed_resumes(
    unfinished: Path, what: str, command: str
) -> None:
    ended = train(edited(FREE[what]), unfinished, request=Request(command=command))
    expected = EPOCHS + 2 * (what == "stop")
    assert (ended.epochs, ended.outcome.ran) == (expected, expected - 2)
    assert bool(notes(ended)) == (what != "nothing"), "what changed is printed"


@pytest.mark.parametrize("command", ["train", "resume"])
@pytest.mark.parametrize("what", OF_THE_JOB)
def test_unfinished_and_the_job_has_changed_refuses_and_changes_nothing(
    unfinished: Path, what: str, command: str
) -> None:
    before = state_of_disk(unfinished)
    with pytest.raises(RunRefusedError) as caught:
        train(edited(OF_THE_JOB[what]), unfinished, request=Request(command=command))
    assert caught.value.exit_code == 2
    assert "not finished (epoch 2), and the job differs" in str(caught.value)
    assert "accept_changes" in str(caught.value)
    assert state_of_disk(unfinished) == before


@pytest.mark.parametrize("what", [w for w in OF_THE_JOB if w != "nodes"])
def test_unfinished_and_the_changes_are_accepted_resumes(unfinished: Path, what: str) -> None:
    ended = train(edited(OF_THE_JOB[what]), unfinished, request=Request(accept_changes=True))
    assert (ended.epochs, ended.outcome.ran) == (EPOCHS, EPOCHS - 2)
    assert "changed since the run was started" in notes(ended)
    again = train(edited(OF_THE_JOB[what]), unfinished)
    assert again.outcome.outcome == "nothing", "the accepted job is the run's job now"


def test_accepted_changes_of_what_init_writes_are_refused_before_anything_is_written(
    unfinished: Path,
) -> None:
    job = made()
    with job.init:
        Task(lambda: np.zeros(1), out="speed", name="rest")
    before = state_of_disk(unfinished)
    with pytest.raises(RunRefusedError) as caught:
        train(job, unfinished, request=Request(accept_changes=True, afresh="afresh"))
    assert "'init' now writes 'speed', which" in caught.value.message
    assert caught.value.hint == (
        "'init' is not run again, and there is total; to start a new run: afresh"
    )
    assert state_of_disk(unfinished) == before
    assert train(made(), unfinished).epochs == EPOCHS, "the run is still that of the job before"


@pytest.mark.parametrize("command", ["train", "resume"])
@pytest.mark.parametrize("what", [w for w in FREE if w != "stop"])
def test_finished_and_the_verdict_stays_is_done_and_writes_nothing(
    finished: Path, what: str, command: str
) -> None:
    before = state_of_disk(finished)
    ended = train(edited(FREE[what]), finished, request=Request(command=command))
    assert (ended.epochs, ended.outcome.ran, ended.outcome.outcome) == (EPOCHS, 0, "nothing")
    assert ended.outcome.exit_code == 0
    assert "is finished, nothing is left to do" in ended.outcome.reason
    assert state_of_disk(finished) == before


def test_finished_and_the_verdict_is_another_goes_on(finished: Path) -> None:
    ended = train(edited(more_epochs), finished)
    assert (ended.epochs, ended.outcome.ran) == (EPOCHS + 2, 2)
    assert "stop.epochs: 4 -> 6" in notes(ended)


@pytest.mark.parametrize("what", OF_THE_JOB)
def test_finished_and_the_job_has_changed_train_starts_another_run_and_resume_refuses(
    finished: Path, what: str
) -> None:
    before = state_of_disk(finished)
    job = edited(OF_THE_JOB[what])
    typed = Request(command="train", again="jobrun train sum.yaml")
    choice = start(job, finished, request=typed).runner.choose()
    assert choice.action == "new_run"
    assert "is finished, and the job differs" in choice.lines[0]
    choice = start(job, finished, request=Request(command="resume")).runner.choose()
    assert (choice.action, choice.exit_code) == ("refuse", 2)
    # one directory is one run: a runner cannot choose another
    for request in (typed, Request(command="train"), Request(command="resume")):
        with pytest.raises(RunRefusedError):
            train(job, finished, request=request)
    assert state_of_disk(finished) == before


def test_fresh_starts_from_the_beginning_whatever_there_is(finished: Path) -> None:
    ended = train(edited(seed), finished, request=Request(fresh=True))
    assert (ended.epochs, ended.outcome.ran) == (EPOCHS, EPOCHS)
    assert list(ids_and_epochs(finished).values()) == list(range(EPOCHS + 1))
    assert min(ids_and_epochs(finished)) == EPOCHS + 1


def test_a_run_ended_by_fail_is_finished_too(run_dir: Path) -> None:
    def failing(job: Job) -> None:
        job.fail(when="epoch >= 2")

    assert train(edited(failing), run_dir).outcome.exit_code == 7
    before = state_of_disk(run_dir)
    again = train(edited(failing), run_dir)
    assert (again.outcome.ran, again.outcome.exit_code) == (0, 7)
    assert "ended as a failure" in again.outcome.reason
    assert state_of_disk(run_dir) == before

    rerun = train(edited(failing), run_dir, 1)
    assert (rerun.outcome.ran, rerun.outcome.exit_code) == (1, 7), "--epoch is given"
    assert train(made(), run_dir).epochs == EPOCHS, "changed conditions say go on"


@pytest.mark.parametrize("state", ["unfinished", "finished"])
def test_only_code_files_have_changed(run_dir: Path, state: str) -> None:
    code = run_dir.parent / "code"
    code.mkdir()
    (code / "acceptance_code.py").write_text("def one():\n    return 1\n")

    def job() -> Job:
        with Job("code") as job:
            with job.init:
                Task("acceptance_code:one", out="x")
            job.stop(epochs=3)
        return job

    request = Request(folder=code)
    if state == "finished":
        train(job(), run_dir, request=request)
    else:
        train_and_die(job(), run_dir, after=1, request=request)
    (code / "acceptance_code.py").write_text("def one():\n    return 2\n")
    before = state_of_disk(run_dir)
    ended = train(job(), run_dir, request=request)
    if state == "finished":
        assert ended.outcome.outcome == "nothing"
        assert "acceptance_code.py" in ended.outcome.reason
        assert state_of_disk(run_dir) == before
    else:
        assert (ended.epochs, ended.outcome.ran) == (3, 2)
        assert "acceptance_code.py" in notes(ended)
