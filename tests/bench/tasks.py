"""What a no-op task costs: a plain loop, jobrun, graphlib with a thread pool, dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.bench.graphs import Shape, dask_get, graphlib_pool, jobrun_session, plain_loop, shapes
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted

LOOP = "plain loop"
OURS, OURS_2 = "jobrun, 1 thread", "jobrun, 2 threads"
POOL, POOL_2 = "graphlib + pool, 1", "graphlib + pool, 2"

_LIMITS = {"independent": 10.0, "chain": 5.0}
"""µs a task that a no-op may cost, on a quiet core."""


def cases(scale: Scale) -> Iterator[Case]:
    """A case per shape of graph."""
    for shape in shapes(scale):
        yield Case(
            name=f"no-op tasks, {shape.name}",
            contestants=[
                Contestant(LOOP, plain_loop(shape)),
                Contestant(OURS, jobrun_session(shape, 1)),
                Contestant(OURS_2, jobrun_session(shape, 2)),
                Contestant(POOL, graphlib_pool(shape, 1)),
                Contestant(POOL_2, graphlib_pool(shape, 2)),
                Contestant("dask.get", dask_get(shape, 1), ("dask",), at_most=3),
                Contestant("dask.threaded.get, 2", dask_get(shape, 2), ("dask",), at_most=3),
            ],
            reference=POOL_2,
            floor=LOOP,
            items=len(shape.before),
            item="task",
            rounds=scale.of(15, 2),
            wanted=list(_wanted(shape)),
        )


def _wanted(shape: Shape) -> Iterator[Wanted]:
    limit = _LIMITS.get(shape.name)
    if limit is None:
        return
    for ours, pool in ((OURS, POOL), (OURS_2, POOL_2)):
        yield Wanted(f"{shape.name}, {ours}: µs a task", _micros(ours), limit)
        yield Wanted(
            f"{shape.name}, {ours}: times faster than {pool}", _faster(ours, pool), 3, at_least=True
        )


def _micros(name: str) -> Callable[[Measured], float]:
    return lambda measured: measured.micros(name)


def _faster(name: str, other: str) -> Callable[[Measured], float]:
    return lambda measured: measured.ratio(other, name)
