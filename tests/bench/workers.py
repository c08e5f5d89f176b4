"""``map`` steps in worker processes: steps in plain Python, large arrays, and what a batch costs.

The processes are started once, as in a run, and are not in the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.analysis.graph import Plan, make_plan
from jobrun.core.position import Position
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.harness import Case, Contestant, Scale, faster, timed

Array = npt.NDArray[np.float64]
Step = Callable[[Array], Array]

LOOP, POOL, OURS = "plain loop", "ProcessPoolExecutor.map, 2", "jobrun, processes: 2"
_LOOPS = 100_000
_MIB = 1 << 17
"""float64 in a MiB."""


def cases(scale: Scale) -> Iterator[Case]:
    """Steps that hold the interpreter; arrays of 8 MiB there and back; a step that does nothing.

    What two processes can reach is twice the loop, where two cores are free.
    """
    batches, large = scale.of(100, 4), scale.of(20, 3)
    yield _case("workers, 5 ms of plain Python", "step", hold, batches, 16, scale)
    short = scale.of(1000, 20)
    yield _case("workers, 0.2 ms of plain Python", "step", hold_briefly, short, 512, scale)
    size = 2 * large * 8 << 20
    yield _case("workers, 8 MiB to and fro", "array", negate, large, 8 * _MIB, scale, size)
    yield _case("workers, a step that does nothing", "batch", same, scale.of(2000, 20), 512, scale)


def hold(x: Array) -> Array:
    """A loop in plain Python."""
    total = 0
    for i in range(_LOOPS):
        total += i * i % 7
    return x + total


def hold_briefly(x: Array) -> Array:
    """A short loop in plain Python."""
    total = 0
    for i in range(_LOOPS // 25):
        total += i * i % 7
    return x + total


def negate(x: Array) -> Array:
    """One pass over the memory."""
    return -x


def same(x: Array) -> Array:
    """Nothing."""
    return x


def _see(x: Array) -> None:
    return None


def _case(
    name: str, item: str, step: Step, batches: int, cells: int, scale: Scale, size: int = 0
) -> Case:
    @cache
    def rows() -> Array:
        return np.ones((batches, cells))

    return Case(
        name=name,
        contestants=[
            Contestant(LOOP, lambda directory: _loop(step, rows())),
            Contestant(POOL, _pool(step, rows)),
            Contestant("jobrun, threads: 2", _jobrun(step, rows, threads=2)),
            Contestant(OURS, _jobrun(step, rows, processes=2)),
        ],
        reference=LOOP,
        floor=LOOP,
        items=batches,
        item=item,
        rounds=scale.of(15, 2),
        bytes=size,
        wanted=[faster(name, OURS, POOL)],
    )


def _loop(step: Step, rows: Array) -> float:
    def run() -> None:
        for i in range(len(rows)):
            _see(step(rows[i : i + 1]))

    return timed(run)


def _pool(step: Step, rows: Callable[[], Array]) -> Callable[[Path], float]:
    @cache
    def pool() -> ProcessPoolExecutor:
        started = ProcessPoolExecutor(2, get_context("spawn"))
        list(started.map(same, np.zeros((4, 1))))
        return started

    def run(directory: Path) -> float:
        x = rows()
        batches = [x[i : i + 1] for i in range(len(x))]
        return timed(lambda: [_see(y) for y in pool().map(step, batches)])

    return run


def _jobrun(step: Step, rows: Callable[[], Array], **pipe: Any) -> Callable[[Path], float]:
    @cache
    def prepared() -> tuple[LocalSession, Plan]:
        with Job("bench") as job:
            with job.setup:
                Task(rows, out="x", name="rows")
            Pipe("x", map=[Task(step, "x", out="x")], do=[Task(_see, "x")], **pipe)
        session, plan = LocalSession(1), make_plan(job, job.epoch)
        session.open(job, Places())
        session.run(make_plan(job, job.setup), Position(), Control())
        session.run(plan, Position(), Control())  # starts the processes
        return session, plan

    def run(directory: Path) -> float:
        session, plan = prepared()
        return timed(lambda: session.run(plan, Position(), Control()))

    return run
