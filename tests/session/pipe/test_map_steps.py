"""The ``map`` steps of a batch: which columns are left after each."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun.model.job import Job, Pipe, Task


def job_of(batch_map: list[Task], do: Task, **pipe: Any) -> Job:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(12.0), out="a", name="load")
    with job.epoch:
        Pipe({"x": "a", "y": "a", "unread": "a"}, batch=3, map=batch_map, do=[do], **pipe)
    return job


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("second", "do", "alive"),
    [
        ("p", ["q"], []),
        ("p", ["q", "y"], ["y"]),
        (["p", "x"], ["q"], ["x"]),
        (["p", "x"], ["q", "y"], ["x", "y"]),
    ],
)
def test_a_column_is_dropped_once_nothing_reads_it(
    threads: int, second: Any, do: list[str], alive: list[str]
) -> None:
    held: dict[int, dict[str, Any]] = {}
    found: list[list[str]] = []

    def first(x: Any, y: Any) -> float:
        arrays = {"x": x, "y": y}
        held[int(x[0])] = {
            n: weakref.ref(a if a.base is None else a.base) for n, a in arrays.items()
        }
        return float(x[0])

    def look(p: float, *x: Any) -> float:
        found.append([n for n, array in held[int(p)].items() if array() is not None])
        return p

    steps = [
        Task(first, ["x", "y"], out="p", name="first"),
        Task(look, second, out="q", name="second"),
    ]
    job = job_of(steps, Task(lambda *seen: None, do, name="use"), threads=threads)
    Driver(job, 1).start().epochs(1)
    assert found == [alive] * 4


def test_a_column_that_only_determines_the_rows_is_kept() -> None:
    means: list[float] = []

    def half(x: Any) -> Any:
        return x[x % 2 == 0]

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(12), out="a", name="load")
    with job.epoch:
        Pipe(
            {"x": "a"},
            batch=3,
            map=[
                Task(half, "x", out="x", name="half"),
                Task(lambda x: int(x.sum()), "x", out="s", name="sum"),
            ],
            do=[Task(lambda s: s, "s", out="m", name="mean")],
        )
        Task(means.append, "m", name="keep")
    Driver(job, 1).start().epochs(1)
    # Even numbers: 0, 2 | 4 | 6, 8 | 10: each sum weighs as many rows as it has.
    assert means == [(2 * 2 + 1 * 4 + 2 * 14 + 1 * 10) / 6]
