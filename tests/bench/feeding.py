"""What reading ahead on two threads makes of a ``map`` step, against loops and data loaders.

All work on the same batches in the same order, and join what comes out in that order; the sum is
compared at the end of every repetition.  The loaders are given whole batches, which spares them
putting rows together, and keep their threads or processes from one repetition to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.analysis.graph import make_plan
from jobrun.core.position import Position
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.harness import Case, Contestant, Scale, Wanted, faster, timed

Array = npt.NDArray[np.float64]
Work = Callable[[Array], Array]
Batches = Callable[[], Iterable[Array]]

COLUMNS = 1024
THREADS = 2
LOOP, OURS = "plain loop", "jobrun"
FUTURES = "concurrent.futures map"
TORCH, TORCH_WORKERS = "torch DataLoader", "torch DataLoader, 2 workers"
GRAIN = "grain, 2 threads"
PEERS = (FUTURES, TORCH, TORCH_WORKERS, GRAIN)


@dataclass(frozen=True)
class Feed:
    """Batches of so many rows, and the work on each."""

    batches: int
    rows: int
    work: Work

    @property
    def data(self) -> Array:
        """All rows; the same array each time."""
        return _data(self.batches * self.rows)

    def batch(self, index: int) -> Array:
        """The work on one batch."""
        return self.work(self.data[index * self.rows : (index + 1) * self.rows])


@cache
def _data(rows: int) -> Array:
    return np.random.default_rng(0).random((rows, COLUMNS))


def cases(scale: Scale) -> Iterator[Case]:
    """A step of some milliseconds that releases the GIL, and one that does nothing."""
    heavy = Feed(scale.of(100, 4), 128, _heavy)
    wanted = [faster("map step on 2 cores", OURS, LOOP, 1.8)]
    wanted += [faster("map step on 2 cores", OURS, peer) for peer in PEERS]
    yield _case("a map step that releases the GIL", heavy, scale.of(9, 1), wanted)
    empty = Feed(scale.of(3000, 10), 1, _empty)
    yield _case("a map step that does nothing", empty, scale.of(9, 1), [])


def _case(name: str, feed: Feed, rounds: int, wanted: list[Wanted]) -> Case:
    return Case(
        name=f"ahead, {name}",
        contestants=[
            Contestant(LOOP, _consuming(feed, lambda: _loop(feed))),
            Contestant(OURS, _jobrun(feed)),
            Contestant(FUTURES, _consuming(feed, _futures(feed))),
            Contestant(TORCH, _consuming(feed, _torch(feed, 0)), ("torch",)),
            Contestant(TORCH_WORKERS, _consuming(feed, _torch(feed, 2)), ("torch",)),
            Contestant(GRAIN, _consuming(feed, _grain(feed)), ("grain",)),
        ],
        reference=LOOP,
        floor=LOOP,
        items=feed.batches,
        item="batch",
        rounds=rounds,
        wanted=wanted,
    )


# The steps.


def _heavy(x: Array) -> Array:
    y = np.sin(x)
    np.tanh(y, out=y)
    return np.exp(y, out=y)


def _empty(x: Array) -> Array:
    return x


def _join(total: Array, y: Array) -> None:
    """What is done with each batch; the result depends on their order."""
    total *= 0.5
    total += y[0]


@cache
def _expected(feed: Feed) -> Array:
    total = np.zeros(COLUMNS)
    for y in _loop(feed):
        _join(total, y)
    return total


def _check(feed: Feed, total: Array) -> None:
    assert total.tobytes() == _expected(feed).tobytes()


def _consuming(feed: Feed, batches: Batches) -> Callable[[Path], float]:
    """Takes the batches of a loader, and joins them."""

    def run(directory: Path) -> float:
        total = np.zeros(COLUMNS)

        def consume() -> None:
            for y in batches():
                _join(total, np.asarray(y))

        seconds = timed(consume)
        _check(feed, total)
        return seconds

    return run


# Loops and loaders.


def _loop(feed: Feed) -> Iterator[Array]:
    for index in range(feed.batches):
        yield feed.batch(index)


def _futures(feed: Feed) -> Batches:
    @cache
    def pool() -> ThreadPoolExecutor:
        return ThreadPoolExecutor(THREADS)

    return lambda: pool().map(feed.batch, range(feed.batches))


class Batched:
    """A dataset as PyTorch wants it; an item is a whole batch."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __len__(self) -> int:
        return self.feed.batches

    def __getitem__(self, index: int) -> Array:
        return self.feed.batch(index)


def _as_it_is(item: Any) -> Any:
    return item


def _torch(feed: Feed, workers: int) -> Batches:
    @cache
    def loader() -> Any:
        import torch
        from torch.utils.data import DataLoader

        # A worker hands arrays over in shared memory if they are tensors.
        collate = torch.from_numpy if workers else _as_it_is
        return DataLoader(
            Batched(feed),  # type: ignore[arg-type]
            batch_size=None,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    return lambda: iter(loader())


def _grain(feed: Feed) -> Batches:
    @cache
    def dataset() -> Any:
        import grain

        options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * THREADS)
        source: Any = range(feed.batches)
        return grain.MapDataset.source(source).map(feed.batch).to_iter_dataset(options)

    return lambda: iter(dataset())


# jobrun.


def _jobrun(feed: Feed) -> Callable[[Path], float]:
    @cache
    def prepared() -> tuple[LocalSession, Any, Any]:
        with Job("bench") as job:
            with job.setup:
                Task(lambda: feed.data, out="x", name="rows")
            with job.init:
                Task(lambda: np.zeros(COLUMNS), out="total", name="zeros")
            Pipe(
                "x",
                feed.rows,
                threads=THREADS,
                map=[Task(feed.work, "x", out="y", name="work")],
                do=[Task(_join, in_={"y": "y"}, update={"total": "total"}, name="join")],
            )
        session = LocalSession(1)
        session.open(job, Places())
        session.run(make_plan(job, job.setup), Position(), Control())
        return session, make_plan(job, job.init), make_plan(job, job.epoch)

    def run(directory: Path) -> float:
        session, init, epoch = prepared()
        session.run(init, Position(), Control())
        seconds = timed(lambda: session.run(epoch, Position(), Control()))
        _check(feed, session.blob("total"))
        return seconds

    return run
