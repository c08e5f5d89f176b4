"""What a batch of a pipe costs, with a step that does nothing, against a loop over slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.analysis.graph import Plan, make_plan
from jobrun.core.position import Position
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed

Array = npt.NDArray[np.float32]

ROWS, COLUMNS, LEAVES = 32, 16, 800
LOOP, OURS = "plain loop", "jobrun"


def cases(scale: Scale) -> Iterator[Case]:
    """Batches in order and shuffled; the step reads, updates in place, or puts out a number."""
    batches = scale.of(10_000, 100)
    yield _case("read a batch", batches, scale, _see, _loop)
    yield _case("read a batch, threads: 2", batches, scale, _see, _loop, threads=2)
    yield _case("read a shuffled batch", batches, scale, _see, _shuffled_loop, shuffle=True)
    yield _case("update in place", batches, scale, _change, _updating_loop, update="weights")
    yield _tree_case(scale.of(1_000, 10), scale)
    yield _case("put out a number", batches, scale, _number, _mean_loop, out="loss")


def _case(
    name: str,
    batches: int,
    scale: Scale,
    step: Callable[..., Any],
    loop: Callable[[Array, int], None],
    *,
    shuffle: bool = False,
    threads: int = 1,
    **accesses: Any,
) -> Case:
    return Case(
        name=f"pipe, {name}",
        contestants=[
            Contestant(LOOP, lambda directory: _run_loop(loop, batches)),
            Contestant(OURS, _jobrun(step, batches, shuffle, threads, accesses)),
        ],
        reference=LOOP,
        floor=LOOP,
        items=batches,
        item="batch",
        rounds=scale.of(15, 2),
        wanted=[Wanted(f"pipe, {name}: µs a batch over those of the loop", _over_loop, 10)],
    )


def _tree_case(batches: int, scale: Scale) -> Case:
    """A step that updates a tree of arrays, and copies none."""
    name = f"update a tree of {LEAVES} arrays"
    case = _case(name, batches, scale, _change, _updating_loop, update="tree")
    limit = 10 + 0.3 * LEAVES
    wanted = Wanted(f"pipe, {name}: µs a batch over those of the loop", _over_loop, limit)
    return replace(case, wanted=[wanted])


def _over_loop(measured: Measured) -> float:
    return measured.micros(OURS) - measured.micros(LOOP)


# The steps.


def _see(x: Array) -> None:
    return None


def _change(x: Array, weights: Array) -> None:
    return None


def _number(x: Array) -> float:
    return 1.0


# Plain loops.


def _rows(batches: int) -> Array:
    return np.zeros((batches * ROWS, COLUMNS), np.float32)


def _tree() -> dict[str, Array]:
    return {f"w{number}": np.zeros(4, np.float32) for number in range(LEAVES)}


def _run_loop(loop: Callable[[Array, int], None], batches: int) -> float:
    x = _rows(batches)
    return timed(lambda: loop(x, batches))


def _loop(x: Array, batches: int) -> None:
    for i in range(batches):
        _see(x[i * ROWS : (i + 1) * ROWS])


def _shuffled_loop(x: Array, batches: int) -> None:
    order = np.random.default_rng(0).permutation(len(x))
    for i in range(batches):
        _see(np.take(x, order[i * ROWS : (i + 1) * ROWS], axis=0))


def _updating_loop(x: Array, batches: int) -> None:
    weights = np.zeros(COLUMNS, np.float32)
    for i in range(batches):
        _change(x[i * ROWS : (i + 1) * ROWS], weights)


def _mean_loop(x: Array, batches: int) -> None:
    total = 0.0
    for i in range(batches):
        total += _number(x[i * ROWS : (i + 1) * ROWS]) * ROWS
    assert total == len(x)


# jobrun.


def _jobrun(
    step: Callable[..., Any], batches: int, shuffle: bool, threads: int, accesses: dict[str, Any]
) -> Callable[[Path], float]:
    @cache
    def prepared() -> tuple[LocalSession, Plan]:
        with Job("bench") as job:
            with job.setup:
                Task(lambda: _rows(batches), out="x", name="rows")
            with job.init:
                Task(lambda: np.zeros(COLUMNS, np.float32), out="weights", name="zeros")
                Task(_tree, out="tree", name="tree")
            Pipe("x", ROWS, shuffle=shuffle, threads=threads, do=[Task(step, "x", **accesses)])
        session = LocalSession(1)
        session.open(job, Places())
        for group in (job.setup, job.init):
            session.run(make_plan(job, group), Position(), Control())
        return session, make_plan(job, job.epoch)

    def run(directory: Path) -> float:
        session, plan = prepared()
        reached: list[Position] = []
        seconds = timed(lambda: reached.append(session.run(plan, Position(), Control())))
        assert reached[0].readers["pipe"].passes == 1
        return seconds

    return run
