"""A job of several nodes with all that a lost worker may interrupt: for tests of faults."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jobrun import CheckpointPolicy, Every, Job, Node, Pipe, Task
from jobrun.core.events import CheckpointSaved, Event, RunWentBack

__all__ = ["averaging", "bits", "returns"]


def rows(count: int) -> Any:
    return np.arange(count, dtype=float)


def start(rng: Any) -> Any:
    return rng.normal(size=100)


def step(x: Any, rng: Any, seconds: float, w: Any) -> float:
    time.sleep(seconds)
    w += x.sum() * 1e-3 + rng.normal(size=w.shape) * 1e-3
    return float(w[0])


def mean(ws: list[Any]) -> Any:
    return np.mean(ws, axis=0)


def total(ws: list[Any]) -> float:
    return float(sum(w.sum() for w in ws))


def look(result: float) -> None:
    """Needs the result."""


def averaging(
    nodes: int = 3, epochs: int = 4, seconds: float = 0.0, every: Every | None = None
) -> Job:
    """Each node adds batches to its vector; after each epoch all take the mean."""
    names = [f"t_{i}" for i in range(nodes)]
    policy = CheckpointPolicy(every=every or Every())
    job = Job("averaging", seed=3, nodes=names, vars={"seconds": seconds}, checkpoint=policy)
    with job.setup, Node("*"):
        Task(rows, with_={"count": 12}, out="rows")
    with job.init, Node("*"):
        Task(start, "rng", out="w")
    with job.epoch, Node("*"):
        do = Task(step, {"x": None, "rng": None, "seconds": None}, update={"w": None}, out="first")
        Pipe({"x": "rows"}, 2, shuffle=True, do=[do], name="train")
        Task(mean, "*:w", out="w", name="average")
    with job.epoch, Node("t_0"):
        Task(total, "*:w", out="sum")
    with job.download, Node("t_0"):
        Task(total, "*:w", out="result")
    with job.exit, Node("t_0"):
        Task(look, "result")
    job.metrics = {"t_0:sum": "max"}
    job.stop(epochs=epochs)
    return job


def bits(blobs: Mapping[str, Any]) -> dict[str, bytes]:
    """The blobs of a run, to compare."""
    return {name: np.asarray(value).tobytes() for name, value in blobs.items()}


def returns(events: Sequence[Event]) -> list[RunWentBack]:
    """How often a run went back, each time to the newest checkpoint that it had saved."""
    found: list[RunWentBack] = []
    newest: CheckpointSaved | None = None
    for event in events:
        if isinstance(event, CheckpointSaved):
            newest = event
        elif isinstance(event, RunWentBack):
            found.append(event)
            assert event.checkpoint == (newest.id if newest else None)
            assert event.epoch == (newest.epoch if newest else 0)
    return found
