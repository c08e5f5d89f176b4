"""Progress that a function says from inside."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
from engine import Driver

import jobrun
from jobrun.core.events import TaskProgress
from jobrun.model.job import Job, Pipe, Task


def said(work: Callable[[], None], name: str = "work") -> list[TaskProgress]:
    job = Job("j")
    with job.epoch:
        Task(work, name=name)
    driver = Driver(job)
    driver.epoch()
    return [e for e in driver.events if isinstance(e, TaskProgress)]


def test_a_task_says_how_far_it_is() -> None:
    assert said(lambda: jobrun.progress(0.25)) == [TaskProgress("work", "main", 1, 0.25)]


def test_it_is_passed_on_now_and_then_and_at_the_end() -> None:
    def work() -> None:
        for i in range(1001):
            jobrun.progress(i / 1000)

    fractions = [e.fraction for e in said(work)]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert len(fractions) < 1001
    assert fractions == sorted(fractions)


def test_steps_that_run_ahead_speak_for_their_pipe() -> None:
    def prepare(x: object) -> object:
        jobrun.progress(1.0)
        return x

    job = Job("j")
    with job.init:
        Task(lambda: np.arange(3), out="data", name="load")
    with job.epoch:
        do = [Task(lambda x: None, "x", name="see")]
        Pipe({"x": "data"}, map=[Task(prepare, "x", out="x")], do=do, threads=2)
    driver = Driver(job).start()
    driver.epoch()
    found = [e for e in driver.events if isinstance(e, TaskProgress)]
    assert found == [TaskProgress("pipe", "main", 1, 1.0)] * 3


def test_outside_of_a_task_nothing_happens() -> None:
    thread = threading.Thread(target=jobrun.progress, args=(0.5,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan, 40])
def test_what_is_no_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="fraction from 0 to 1"):
        jobrun.progress(fraction)
