"""What the tasks of a job read and write, looked at once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from jobrun.analysis import accesses
from jobrun.analysis.accesses import Access, access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import check
from jobrun.model.job import Job, Node, Pipe, Task


def fn(*args: Any, **kwargs: Any) -> None:
    """What tasks of these tests call."""


def test_a_check_looks_once_at_each_task_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Counter[tuple[str, str]] = Counter()

    def counted(job: Job, task: Task, node: str) -> Access:
        looks[task.name, node] += 1
        return access(job, task, node)

    monkeypatch.setattr(accesses, "access", counted)
    job = Job("j", nodes=["a", "b"], metrics={"loss": "min"})
    with job.init:
        Task(fn, out="model", node="*", name="start")
    with job:
        Pipe({"x": "model"}, do=[Task(fn, "x", out="loss")], node="*", name="read")
    job.stop(epochs=2)
    assert check(job) == []
    assert looks == {(task, node): 1 for task in ("start", "read") for node in ("a", "b")}


def test_what_is_written() -> None:
    job = Job("j")
    with job.init:
        Task(fn, out="m/w")
    with job.epoch:
        Pipe({"x": "m/w"}, do=[Task(fn, "x", out="loss")])
    assert JobAnalysis(job).written == {"m/w", "loss"}
    several = Job("j", nodes=["a", "b"])
    with several.epoch, Node("*"):
        Task(fn, out="loss")
    assert JobAnalysis(several).written == {"loss", "a:loss", "b:loss"}
