"""Pipes that meet in each batch hold a thread: they begin where nothing else needs it any more."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun import Job, Pipe, Task

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession


class Tool:
    """An object that stays where it was made."""

    def __reduce__(self) -> Any:
        raise TypeError("a tool stays where it was made")


def slow() -> float:
    time.sleep(0.2)
    return 1.0


def meeting(**made: Any) -> Job:
    """Nodes ``t_a`` and ``t_b`` with a tool, and a pipe on both that reduces in each batch."""
    with Job("meeting", nodes=["t_a", "t_b", "c"]) as job:
        with job.setup:
            Task(Tool, out="tool", name="make", node="*", **made)
            Task(lambda: np.arange(4.0), out="rows", name="rows", node="*")
        with job.init:
            Task(lambda: (0.0, 0.0, 0.0), out=["w", "v", "y"], name="begin", node="*")
    return job


def meet(job: Job) -> None:
    with job.epoch:
        Pipe(
            {"x": "rows"},
            2,
            do=[
                Task(lambda x, tool: float(x.sum()), ["x", "tool"], out="g", name="sum"),
                Task(lambda g, w: w + g, [{"reduce": "sum", "of": "t_*:g"}, "w"], out="w"),
            ],
            name="meet",
            node="t_*",
        )


def run(job: Job) -> None:
    with FakeCluster(3) as client:
        driver = Driver(job, session=DaskSession(client, threads=1)).start().epochs(2)
        assert [driver.blob(f"t_{n}:w") for n in "ab"] == [24.0, 24.0]


def test_a_pipe_waits_for_users_of_an_object_on_other_workers() -> None:
    """One of which needs the thread here: only the worker of the object knows of their order."""
    job = meeting()
    with job.epoch:
        Task(slow, out="z", name="slow", node="c")
        Task(lambda z: z + 1, "c:z", out="y", name="later", node="t_b")
        Task(lambda tool, y: y, ["tool", "t_b:y"], out="v", name="use", node="t_a")
    meet(job)
    run(job)


def test_a_pipe_on_the_one_thread_of_its_objects_begins_on_all_workers() -> None:
    job = meeting(thread="same")
    meet(job)
    run(job)
