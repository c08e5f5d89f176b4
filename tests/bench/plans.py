"""What it costs to make a group ready: build the job, plan it, compile it.  Once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from jobrun.analysis.graph import make_plan
from jobrun.model.job import Job
from jobrun.session.base import Places
from jobrun.session.local import LocalSession
from tests.bench.graphs import Shape, make_job, opened, run_epoch, shapes, sorter_of
from tests.bench.harness import Case, Contestant, Scale, timed

COUNTERS, GRAPHLIB = "bare counters", "graphlib, prepared"


def cases(scale: Scale) -> Iterator[Case]:
    """A case per shape of graph."""
    for shape in shapes(scale):
        yield Case(
            name=f"making ready, {shape.name}",
            contestants=[
                Contestant(COUNTERS, _simply(shape, _counters)),
                Contestant(GRAPHLIB, _simply(shape, sorter_of)),
                Contestant("jobrun, Job and Tasks", _simply(shape, make_job)),
                Contestant("jobrun, make_plan", _of_job(shape, _plan)),
                Contestant("jobrun, open a session", _of_job(shape, _open)),
                Contestant("jobrun, compile and run once", _of_job(shape, _first_run)),
            ],
            reference=GRAPHLIB,
            floor=COUNTERS,
            items=len(shape.before),
            item="task",
            rounds=scale.of(5, 2),
            warm=False,
        )


def _simply(shape: Shape, make: Callable[[Shape], object]) -> Callable[[Path], float]:
    return lambda directory: timed(lambda: make(shape))


def _of_job(shape: Shape, seconds: Callable[[Job], float]) -> Callable[[Path], float]:
    return lambda directory: seconds(make_job(shape))


def _counters(shape: Shape) -> object:
    """What any scheduler needs: how many each task waits for, and who waits for it."""
    waits = [len(before) for before in shape.before]
    successors: list[list[int]] = [[] for _ in waits]
    for number, before in enumerate(shape.before):
        for other in before:
            successors[other].append(number)
    return waits, successors


def _plan(job: Job) -> float:
    return timed(lambda: make_plan(job, job.epoch))


def _open(job: Job) -> float:
    return timed(lambda: LocalSession(1).open(job, Places()))


def _first_run(job: Job) -> float:
    session, plan = opened(job, 1), make_plan(job, job.epoch)
    seconds = run_epoch(session, plan)
    session.close()
    return seconds
