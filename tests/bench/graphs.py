"""Graphs of no-op tasks, and the ways to run one: what ``tasks`` and ``plans`` measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from jobrun.analysis.graph import Plan, make_plan
from jobrun.core.position import Position
from jobrun.model.job import Job, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.harness import Scale, timed

__all__ = [
    "Shape",
    "dask_get",
    "drive",
    "graphlib_pool",
    "jobrun_session",
    "make_job",
    "opened",
    "plain_loop",
    "run_epoch",
    "shapes",
    "sorter_of",
]

Run = Callable[[Path], float]


@dataclass(frozen=True)
class Shape:
    """A graph of tasks: ``before[i]`` are those that task ``i`` waits for, all of them earlier.

    With ``passes`` each task is given the value that the one before it returned; else tasks have
    neither inputs nor outputs.
    """

    name: str
    before: Sequence[Sequence[int]]
    passes: bool = False

    @property
    def function(self) -> Callable[..., Any]:
        """What each task does: nothing."""
        return _pass if self.passes else _nothing


def _nothing() -> None:
    return None


def _pass(value: float) -> float:
    return value


def shapes(scale: Scale) -> list[Shape]:
    """10,000 tasks each: independent, chains, layers of 100."""
    count, width = scale.of(10_000, 200), scale.of(100, 10)
    chain = [[i - 1] if i else [] for i in range(count)]
    return [
        Shape("independent", [[] for _ in range(count)]),
        Shape("chain", chain),
        Shape("chain by data", chain, passes=True),
        Shape(f"layers of {width}, 3 edges a task", _layers(count, width, 3)),
        Shape(f"layers of {width}, {width} edges a task", _layers(count, width, width)),
    ]


def _layers(count: int, width: int, edges: int) -> list[list[int]]:
    """Each task waits for ``edges`` of the layer before: those at its own place and after it."""
    return [
        [(i // width - 1) * width + (i + k) % width for k in range(edges)] if i >= width else []
        for i in range(count)
    ]


# jobrun.


def make_job(shape: Shape) -> Job:
    """The graph as a job, ordered by ``after``, or by what tasks read and write."""
    with Job("bench") as job:
        if shape.passes:
            with job.init:
                Task(float, out="value")
        for i, before in enumerate(shape.before):
            if shape.passes:
                Task(_pass, "value", out="value", name=f"t{i}")
            else:
                Task(_nothing, name=f"t{i}", after=[f"t{b}" for b in before])
    return job


def opened(job: Job, threads: int) -> LocalSession:
    """A session that has run ``init`` of the job."""
    session = LocalSession(threads)
    session.open(job, Places())
    session.run(make_plan(job, job.init), Position(), Control())
    return session


def run_epoch(session: LocalSession, plan: Plan) -> float:
    """The seconds of one run of the group; all its tasks must be finished by it."""
    reached: list[Position] = []
    seconds = timed(lambda: reached.append(session.run(plan, Position(), Control())))
    assert plan.finished(set(reached[0].tasks))
    return seconds


def jobrun_session(shape: Shape, threads: int) -> Run:
    """A LocalSession that has compiled the group, as in every epoch but the first."""

    @cache
    def prepared() -> tuple[LocalSession, Plan]:
        job = make_job(shape)
        return opened(job, threads), make_plan(job, job.epoch)

    return lambda directory: run_epoch(*prepared())


# Others.


def plain_loop(shape: Shape) -> Run:
    """The tasks one after another."""

    def loop() -> None:
        for _ in shape.before:
            _nothing()

    def loop_with_value() -> None:
        value = 0.0
        for _ in shape.before:
            value = _pass(value)

    return lambda directory: timed(loop_with_value if shape.passes else loop)


def sorter_of(shape: Shape) -> TopologicalSorter[int]:
    """The graph in graphlib, ready to be taken from."""
    sorter = TopologicalSorter(dict(enumerate(shape.before)))
    sorter.prepare()
    return sorter


def graphlib_pool(shape: Shape, threads: int) -> Run:
    """graphlib with a pool of threads, which is warm; the sorter is made before the clock runs."""

    @cache
    def pool() -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads)

    def run(directory: Path) -> float:
        sorter = sorter_of(shape)
        values = dict.fromkeys(range(-1, len(shape.before)), 0.0)
        seconds = timed(lambda: drive(sorter, pool(), _task_of(shape, values)))
        assert not sorter.is_active()
        return seconds

    return run


def _task_of(shape: Shape, values: dict[int, float]) -> Callable[[int], None]:
    if not shape.passes:
        return lambda number: _nothing()

    def task(number: int) -> None:
        values[number] = _pass(values[number - 1])

    return task


def drive(
    sorter: TopologicalSorter[int], pool: ThreadPoolExecutor, task: Callable[[int], None]
) -> None:
    """Submit what is ready, wait for one that is done, take all that are; the first error ends."""
    finished: SimpleQueue[tuple[int, BaseException | None]] = SimpleQueue()

    def call(number: int) -> None:
        try:
            task(number)
        except BaseException as error:
            finished.put((number, error))
        else:
            finished.put((number, None))

    while sorter.is_active():
        for number in sorter.get_ready():
            pool.submit(call, number)
        done = [finished.get()]
        while True:
            try:
                done.append(finished.get_nowait())
            except Empty:
                break
        for number, error in done:
            if error is not None:
                raise error
            sorter.done(number)


def dask_get(shape: Shape, threads: int) -> Run:
    """``dask.get`` for one thread, else ``dask.threaded.get``, asked for the last tasks."""

    @cache
    def graph() -> tuple[dict[str, Any], list[str]]:
        waited_for = {b for before in shape.before for b in before}
        last = [f"t{i}" for i in range(len(shape.before)) if i not in waited_for]
        tasks: dict[str, Any] = {
            f"t{i}": (_any, *(f"t{b}" for b in before)) for i, before in enumerate(shape.before)
        }
        return tasks, last

    def run(directory: Path) -> float:
        import dask.local
        import dask.threaded

        tasks, last = graph()
        if threads == 1:
            return timed(lambda: dask.local.get_sync(tasks, last))
        return timed(lambda: dask.threaded.get(tasks, last, num_workers=threads))

    return run


def _any(*values: Any) -> Any:
    return values[0] if values else 0.0
