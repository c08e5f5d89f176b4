"""``jobrun.log``: numbers of single steps."""

from __future__ import annotations

import timeit
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after

import jobrun
from jobrun.core.current_task import enter, enter_batch
from jobrun.core.events import StepLogged
from jobrun.errors import TaskError
from jobrun.model.job import Job, Node, Pipe, Task


def rows() -> Any:
    return np.arange(20.0)


def step(x: Any) -> float:
    jobrun.log(mean=x.mean(), first=x[0], every=2)
    return float(x.sum())


def same(x: Any) -> Any:
    return x


def loop() -> int:
    for number in range(5):
        jobrun.log(a=number, every=2)
        jobrun.log(b=number * 0.5)
    return 1


def job_of(do: Any = step, **pipe: Any) -> Job:
    job = Job("j")
    with job.setup:
        Task(rows, out="data")
    with job.epoch:
        Pipe({"x": "data"}, batch=4, do=[Task(do, "x", out="loss", name="step")], name="p", **pipe)
    return job


def logged(driver: Driver) -> list[StepLogged]:
    return [event for event in driver.events if isinstance(event, StepLogged)]


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_of_a_pipe_are_its_batches(threads: int) -> None:
    driver = Driver(job_of(threads=threads)).start().epochs(2)
    assert logged(driver) == [
        StepLogged("p", "main", epoch, batch, {"mean": mean, "first": mean - 1.5}, 5)
        for epoch in (1, 2)
        for batch, mean in ((2, 5.5), (4, 13.5))
    ]
    assert [event.step for event in logged(driver)] == [2, 4, 7, 9]


def test_a_step_behind_a_map_step_logs_its_batch() -> None:
    driver = Driver(job_of(map=[Task(same, "x", out="x")])).start().epochs(1)
    assert [event.batch for event in logged(driver)] == [2, 4]


def gradient(x: Any) -> Any:
    jobrun.log(mean=x.mean())
    return x.mean()


def test_copies_in_lock_step_log_each_for_its_node() -> None:
    """Not all under one name, where the numbers of one node replaced those of the others."""
    job = Job("j", nodes={"a": {"k": 1}, "b": {"k": 2}})
    with job.setup, Node("*"):
        Task(lambda k: np.arange(8.0) * k, "k", out="data", name="rows")
    with job.epoch, Node("*"):
        do = [
            Task(gradient, "x", out="g"),
            Task(same, [{"reduce": "mean", "of": "*:g"}], out="mean"),
        ]
        Pipe({"x": "data"}, batch=4, do=do, name="p")
    driver = Driver(job, 1).start().epochs(1)
    assert [(e.node, e.batch, e.batches, e.values) for e in logged(driver)] == [
        ("a", 1, 2, {"mean": 1.5}),
        ("b", 1, 2, {"mean": 3.0}),
        ("a", 2, 2, {"mean": 5.5}),
        ("b", 2, 2, {"mean": 11.0}),
    ]


def test_a_cut_epoch_logs_each_step_once() -> None:
    driver = Driver(job_of()).start()
    assert not driver.epoch(cut_after(3))
    assert driver.epoch()
    assert [(event.epoch, event.batch) for event in logged(driver)] == [(1, 2), (1, 4)]


def test_steps_of_other_tasks_are_calls() -> None:
    job = Job("j")
    with job.epoch:
        Task(loop, out="n")
    driver = Driver(job).start().epochs(2)
    found = [(e.epoch, e.batch, dict(e.values)) for e in logged(driver) if "a" in e.values]
    assert found == [(n, b, {"a": b - 1}) for n in (1, 2) for b in (2, 4)]
    assert [e.batch for e in logged(driver) if "b" in e.values] == [1, 2, 3, 4, 5] * 2


def test_outside_of_a_task_it_does_nothing() -> None:
    jobrun.log(loss="no number")
    assert loop() == 1


def in_map(x: Any) -> Any:
    jobrun.log(x=1)
    return x


def wrong(x: Any) -> float:
    jobrun.log(loss=x)
    return 0.0


def never(x: Any) -> float:
    jobrun.log(loss=1, every=0)
    return 0.0


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (job_of(map=[Task(in_map, "x", out="x")]), "in a 'map' step, which runs ahead"),
        (job_of(wrong), "expected a number for 'loss', got a ndarray"),
        (job_of(never), "expected 'every' of 1 or more, got 0"),
    ],
)
def test_wrong_uses_are_errors(job: Job, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        Driver(job).start().epochs(1)


def test_a_call_that_is_not_due_is_cheap() -> None:
    class Never:
        def running(self, number: int) -> Any:
            raise AssertionError("looked up")

    try:
        enter((Never(), 0))
        enter_batch(1)
        timer = timeit.Timer(lambda: jobrun.log(loss=0.5, every=50))
        assert min(timer.repeat(20, 1000)) / 1000 < 20e-6  # 0.5 µs; a busy machine may be slow
    finally:
        enter(None)
