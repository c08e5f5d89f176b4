"""A run without a directory: its history has the face of one with a directory."""

from __future__ import annotations

import inspect

import pytest

from jobrun import Job, JobRunner, LocalSession, Task
from jobrun.core.events import ignore
from jobrun.engine.history import History, history_of
from jobrun.engine.no_history import NoHistory
from jobrun.engine.resume_policy import Choice, Request
from jobrun.errors import UsageError


def methods(kind: type) -> dict[str, list[str]]:
    """Return the parameters of each public method of a class."""
    return {
        name: list(inspect.signature(method).parameters)
        for name, method in vars(kind).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


def counting_job() -> Job:
    with Job("counting") as job:
        with job.init:
            Task(lambda: 0, out="count", name="begin")
        Task(lambda count: count + 1, in_="count", out="count", name="add")
        job.stop(epochs=2)
    return job


def test_both_histories_have_the_same_methods_with_the_same_parameters() -> None:
    assert methods(NoHistory) == methods(History)


def test_a_run_without_a_directory_is_always_a_fresh_one() -> None:
    history = history_of(counting_job(), None, Request(), ignore)
    assert isinstance(history, NoHistory)
    assert history.choose(()) == Choice("fresh")
    runner = JobRunner(counting_job())
    for _ in range(2):
        assert runner.train(LocalSession(1)) == 2
        assert runner.blobs["count"] == 2


@pytest.mark.parametrize("request_", [Request(epoch=1), Request(id=0), Request(only="exit")])
def test_a_checkpoint_cannot_be_named_without_a_directory(request_: Request) -> None:
    with pytest.raises(UsageError, match="no CheckpointManager"):
        history_of(counting_job(), None, request_, ignore).choose(())
