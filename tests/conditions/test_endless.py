"""Runs whose conditions have no value: a warning after one epoch, an error after the third."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task
from jobrun.core.events import Event, Warned
from jobrun.errors import TaskError, Where
from jobrun.model.job import ConditionSpec

Loss = Callable[[int], Any]


def job_of(loss: Loss, stop: dict[str, Any], fail: dict[str, Any] | None = None) -> Job:
    """Puts out ``loss`` of the epoch; never runs longer than 40 epochs, whatever is wrong."""

    def train(epoch: int) -> Any:
        assert epoch <= 40, "the run does not end"
        return loss(epoch)

    with Job("endless", metrics={"loss": "min"}) as job:
        with job.init:
            Task(lambda: 0.0, out="other", name="begin")
        Task(train, "epoch", out="loss", name="train")
        Task(lambda other: other + 1, "other", out="other", name="count")
        job.stop(**stop)
        if fail:
            job.fail(**fail)
    return job


def run(job: Job, folder: Path | None = None) -> tuple[int, list[str]]:
    """The epochs that are done, and the warnings."""
    events: list[Event] = []
    manager = None if folder is None else CheckpointManager(folder)
    done = JobRunner(job, manager, report=events.append).train(LocalSession(1))
    return done, [e.message for e in events if isinstance(e, Warned)]


def epochs_before_error(job: Job, folder: Path | None = None) -> tuple[int, TaskError]:
    manager = None if folder is None else CheckpointManager(folder)
    runner = JobRunner(job, manager, report=lambda event: None)
    with pytest.raises(TaskError, match="this run would never end") as caught:
        runner.train(LocalSession(1))
    assert runner._attempt is not None
    return runner._attempt.progress.position.epochs, caught.value


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ({"when": "loss < 0.25"}, "when: loss < 0.25"),
        ({"when": "loss < 0.25 and other > 100"}, "when: loss < 0.25 and other > 100"),
        ({"when": "loss < 0.25 or loss > 2"}, "when: loss < 0.25 or loss > 2"),
        ({"blob": "loss"}, "blob: loss"),
        ({"patience": {"loss": 3}}, "patience: loss"),
    ],
)
def test_a_condition_that_never_has_a_value_is_an_error_after_three_epochs(
    stop: dict[str, Any], text: str
) -> None:
    done, error = epochs_before_error(job_of(lambda epoch: None, stop))
    assert done == 3
    assert f"the condition '{text}' needs 'loss', which task 'train' of group 'epoch'" in str(error)
    assert "None in each of 3 epochs" in error.message
    assert "NaN" in error.hint
    assert "'epochs'" in error.hint


@pytest.mark.parametrize(
    ("stop", "fail", "epochs"),
    [
        ({"when": "loss < 1", "epochs": 6}, None, 6),
        ({"when": "loss < 1 or epoch >= 6"}, None, 6),
        ({"when": "epoch >= 6 or loss < 1"}, None, 6),
        ({"when": "not (epoch < 6 and loss > 1)"}, None, 6),
        ({"blob": "loss", "when": "other >= 6"}, None, 6),
        ({"when": "loss < 1"}, {"when": "other >= 6"}, 6),
    ],
)
def test_another_condition_may_end_the_run(
    stop: dict[str, Any], fail: dict[str, Any] | None, epochs: int | None
) -> None:
    job = job_of(lambda epoch: None, stop, fail)
    if epochs is None:
        assert epochs_before_error(job)[0] == 3
    else:
        assert run(job)[0] == epochs


def test_a_fail_condition_without_a_value_ends_nothing() -> None:
    done, error = epochs_before_error(
        job_of(lambda epoch: None, {"when": "loss < 1"}, {"not_finite": "loss"})
    )
    assert done == 3
    assert "'when: loss < 1'" in error.message
    assert "'not_finite: loss'" in error.message


def test_a_value_that_comes_late_or_now_and_then_is_waited_for() -> None:
    late = job_of(lambda epoch: None if epoch < 3 else 0.0, {"when": "loss < 1"})
    assert run(late)[0] == 3
    seldom = job_of(lambda epoch: 9 / epoch if epoch % 8 == 1 else None, {"when": "loss < 1"})
    assert run(seldom)[0] == 17


def test_nan_is_a_value() -> None:
    nan = float("nan")
    job = job_of(lambda epoch: nan if epoch < 7 else 0.5, {"when": "loss < 1"})
    assert run(job) == (7, [])


def test_the_first_none_is_a_warning_and_said_once() -> None:
    job = job_of(lambda epoch: None, {"when": "loss < 1", "patience": {"loss": 2}, "epochs": 5})
    done, warnings = run(job)
    assert done == 5
    (warning,) = warnings
    assert "the condition 'when: loss < 1' cannot be true while 'loss' is None" in warning
    assert "task 'train' of group 'epoch'" in warning


def test_only_epochs_in_which_its_writer_ran_are_counted() -> None:
    job = job_of(lambda epoch: None, {"when": "loss < 1"})
    job.epoch.tasks[0].every = 4
    done, error = epochs_before_error(job)
    assert done == 12
    assert "in each of 3 epochs" in error.message


def test_what_was_seen_is_kept_over_a_resume(tmp_path: Path) -> None:
    """The epochs are those of the whole run; a mended function is waited for again."""
    job = job_of(lambda epoch: None, {"when": "loss < 1"})
    runner = JobRunner(job, CheckpointManager(tmp_path / "r"))
    stops = iter(range(99))
    runner._run.report = lambda event: (  # type: ignore[method-assign]
        runner.interrupt("SIGINT")
        if type(event).__name__ == "EpochFinished" and next(stops) == 1
        else None
    )
    runner.train(LocalSession(1))
    assert epochs_before_error(job, tmp_path / "r")[0] == 3
    assert epochs_before_error(job, tmp_path / "r")[0] == 4
    mended = job_of(lambda epoch: 9.0 / epoch, {"when": "loss < 1"})
    assert run(mended, tmp_path / "r")[0] == 10


def test_a_step_of_a_pipe_is_named() -> None:
    def put(x: Any, epoch: int) -> Any:
        assert epoch <= 40, "the run does not end"
        return None

    with Job("endless") as job:
        with job.setup:
            Task(lambda: np.arange(2.0), out="rows", name="rows")
        Pipe({"x": "rows"}, do=[Task(put, ["x", "epoch"], out="loss")], name="read")
        job.stop(when="loss < 1")
    assert "task 'read/put' of group 'epoch'" in epochs_before_error(job)[1].message


def test_a_job_that_never_stops_may_go_on() -> None:
    job = job_of(lambda epoch: None, {})
    job.never_stops = True
    job.fail(not_finite="loss")
    with pytest.raises(TaskError, match="the run does not end"):
        JobRunner(job, report=lambda event: None).train(LocalSession(1))


def test_the_error_has_the_place_of_the_condition() -> None:
    job = job_of(lambda epoch: None, {})
    places = [Where("job.yaml", line, 9) for line in (4, 5, 6)]
    job.conditions = [
        ConditionSpec("stop", "when", "other > 1e9 and loss < 2", {"": places[0]}),
        ConditionSpec("stop", "when", "loss < 1", {"": places[1]}),
        ConditionSpec("fail", "not_finite", "loss", {"": places[2]}),
    ]
    assert epochs_before_error(job)[1].where == places[0]
