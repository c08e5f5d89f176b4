"""How often tasks and steps run."""

from __future__ import annotations

from typing import Any

import pytest

from jobrun.analysis.schedule import batches_between, epochs_between, every_problems
from jobrun.model.job import Job, Pipe, Task


def fn(*args: Any) -> None:
    """What tasks of these tests call."""


def job(task: Any = None, step: Any = None, map_step: Any = None) -> Job:
    made = Job(
        "j", vars={"two": 2, "zero": 0, "half": 0.5}, nodes={"a": {"own": 3}, "b": {"own": 4}}
    )
    with made.epoch:
        Task(fn, every=task, name="t", node="*")
        Pipe(
            ["x"],
            map=[Task(fn, "x", out="x", every=map_step, name="m")],
            do=[Task(fn, "x", every=step, name="s")],
            node="b",
        )
    return made


def problems(made: Job) -> list[str]:
    return [p.message for p in every_problems(made)]


@pytest.mark.parametrize(
    ("every", "node", "epochs", "batches"),
    [
        (None, "a", 1, 1),
        (3, "a", 3, 1),
        ("two", "a", 2, 1),
        ("own", "a", 3, 1),
        ("own", "b", 4, 1),
        ({"epochs": "two"}, "a", 2, 1),
        ({"batches": 5}, "a", 1, 5),
        ({"batches": "own", "epochs": 2}, "b", 2, 4),
    ],
)
def test_how_often(every: Any, node: str, epochs: int, batches: int) -> None:
    made = job(step=every)
    (step,) = made.epoch.tasks[1].do  # type: ignore[attr-defined]
    assert epochs_between(made, step, node) == epochs
    assert batches_between(made, step, node) == batches
    assert problems(made) == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"task": 0}, "'every' of task 't' is 0, not a whole number from 1"),
        ({"task": -1}, "is -1, not a whole number"),
        ({"task": 0.5}, "is 0.5, not a whole number"),
        ({"task": True}, "is True, not a whole number"),
        ({"task": "zero"}, "is the var 'zero', 0, not"),
        ({"task": "half"}, "is the var 'half', 0.5, not"),
        ({"task": "nothing"}, "is 'nothing', which is not a var, not"),
        ({"task": {"batches": 2}}, "'every' of task 't' knows no 'batches'"),
        ({"step": {"batches": 0}}, "'every' of task 's' is 0"),
        ({"step": {"epoch": 2}}, "'every' of task 's' knows no 'epoch'"),
        ({"map_step": 2}, "the 'map' step 'm' runs on each batch"),
    ],
)
def test_what_cannot_be(kwargs: Any, message: str) -> None:
    assert any(message in text for text in problems(job(**kwargs)))
