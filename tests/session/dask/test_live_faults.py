"""A worker that dies: ``setup`` runs again everywhere, then the live state is restored."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from averaging import returns
from engine import within
from live import trainer

from jobrun import CheckpointManager, CheckpointPolicy, Every, Job, JobRunner, LocalSession, Task
from jobrun.core.events import Event

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession

MANY = 60 if os.environ.get("JOBRUN_LONG") else 6


def job_of() -> Job:
    """Two nodes that train, and draw from the global generators."""
    state = {"net": None, "opt": None, "counter": "live:CounterAdapter", "params": None}
    job = trainer(
        ["a", "b"],
        state={**state, "rng.numpy": None, "rng.python": None},
        checkpoint=CheckpointPolicy(every=Every(epochs=1, batches=4)),
    )
    with job.epoch:
        Task(drawn, "weights", out="sum", name="draw", node="*")
    with job.exit:
        Task(len, "sum", out="size", name="look at sums", node="*")
    job.stop(epochs=3)
    return job


def drawn(weights: Any) -> Any:
    return weights.ravel() + np.random.random() + random.random()


def blobs(runner: JobRunner) -> dict[str, bytes]:
    names = [f"{node}:{name}" for node in "ab" for name in ("weights", "sum")]
    return {name: runner.blobs[name].tobytes() for name in names}


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    """The blobs after an undisturbed run in one process."""
    runner = JobRunner(job_of())
    runner.train(LocalSession(2))
    return blobs(runner)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls a run makes, about."""
    with FakeCluster(2) as client:
        train(client, tmp_path_factory.mktemp("whole"))
        return int(client.calls)


def train(client: Any, folder: Path) -> tuple[JobRunner, list[Event]]:
    events: list[Event] = []
    runner = JobRunner(job_of(), CheckpointManager(folder), report=events.append)
    assert within(60, lambda: runner.train(DaskSession(client, threads=2))) == 3
    return runner, events


@pytest.mark.parametrize("seed", range(MANY))
def test_a_worker_dies_at_any_call(
    tmp_path: Path, expected: dict[str, bytes], calls: int, seed: int
) -> None:
    at = calls // 8 + calls * seed * 5 // (MANY * 8)
    with FakeCluster(2, delay=0.002, seed=seed, die_at=[at]) as client:
        runner, events = train(client, tmp_path / "run")
        assert blobs(runner) == expected
        assert len(client.lost) == 1
    assert len(returns(events)) == 1
