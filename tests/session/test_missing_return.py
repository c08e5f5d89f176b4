"""A blob that becomes None since a function ended without a ``return`` is said, once."""

# ruff: noqa: RET503 - functions that forget their return are the matter here

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun.core.events import Warned
from jobrun.errors import BindError, TaskError
from jobrun.model.job import Job, Pipe, Task


def odd_only(epoch: int) -> Any:
    if epoch % 2:
        return float(epoch)


def odd_or_none(epoch: int) -> Any:
    return float(epoch) if epoch % 2 else None


def never(epoch: int) -> Any:
    if epoch > 100:
        return float(epoch)


def large_only(x: Any) -> Any:
    if x[0] > 100:
        return float(x[0])


def forgets(epoch: int) -> Any:
    epoch += 1


def warned(driver: Driver) -> list[str]:
    return [e.message for e in driver.events if isinstance(e, Warned)]


def job_of(function: Any, *, init: Any = None, read: bool = False, **options: Any) -> Job:
    job = Job("j")
    if init is not None:
        with job.init:
            Task(lambda: init, out="a", name="begin")
    with job.epoch:
        Task(function, "epoch", out="a", name="make", **options)
        if read:
            Task(lambda a: None, "a", name="look")
    return job


@pytest.mark.parametrize(
    ("init", "before"),
    [(3, "an int"), (np.zeros(2), "an array"), ({"k": 1}, "a dict"), ("x", "a str")],
)
@pytest.mark.parametrize("options", [{}, {"timeout": 60}])
def test_a_blob_that_held_a_value_is_said_once(
    init: Any, before: str, options: dict[str, Any]
) -> None:
    driver = Driver(job_of(never, init=init, **options)).start().epochs(3)
    (text,) = warned(driver)
    line = inspect.getsourcelines(never)[1]
    assert text.startswith("task 'make' of group 'epoch': it left 'a' None, which was")
    assert f"was {before} before: " in text
    assert (
        f"test_missing_return.py:{line} ended without a 'return'; did you forget 'return'?" in text
    )


def test_a_value_of_an_earlier_epoch_counts() -> None:
    job = job_of(odd_only, init=1)
    driver = Driver(job).start().epochs(1)
    assert not warned(driver)
    assert len(warned(driver.epochs(3))) == 1


def test_a_blob_that_another_task_reads_is_said_once() -> None:
    driver = Driver(job_of(never, read=True)).start().epochs(3)
    (text,) = warned(driver)
    assert "it left 'a' None, which task 'look' reads: " in text


@pytest.mark.parametrize(
    "job",
    [
        job_of(odd_or_none, init=1, read=True),
        job_of(lambda epoch: None, init=1, read=True),
        job_of(never),
    ],
)
def test_a_none_that_is_written_or_that_nobody_reads_is_not_said(job: Job) -> None:
    assert not warned(Driver(job).start().epochs(3))


def test_a_step_of_a_pipe_is_said_too() -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(6), out="data", name="load")
    with job.init:
        Task(lambda: 0.0, out="a", name="begin")
    with job.epoch:
        Pipe({"x": "data"}, batch=2, do=[Task(large_only, "x", out="a", name="make")], name="p")
    (text,) = warned(Driver(job).start().epochs(2))
    assert "task 'p/make' of group 'epoch' in batch 1: it left 'a' None" in text


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (["a", "b"], "'out' names 2 blobs, but it returned None"),
        ({"k": "a"}, "'out' expects a dict, but it returned None"),
    ],
)
def test_none_for_several_blobs_has_the_hint(out: Any, text: str) -> None:
    job = Job("j")
    with job.epoch:
        Task(never, "epoch", out=out, name="make")
    with pytest.raises(TaskError, match=text) as caught:
        Driver(job).start().epoch()
    assert caught.value.hint.startswith("did you forget 'return'?")


def test_a_function_that_never_returns_a_value_does_not_start() -> None:
    with pytest.raises(BindError, match=r"has no 'return' with a value, but 'out' names 'a'"):
        Driver(job_of(forgets))
