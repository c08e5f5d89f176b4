"""A worker that dies at any call: the run goes on from its last checkpoint, with the same bits."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from averaging import averaging, bits, returns
from engine import within

from jobrun import CheckpointManager, Every, Job, JobRunner, LocalSession
from jobrun.errors import ClusterLostError, WorkerLostError
from jobrun.events import Event, LeftoversCleaned

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession

MANY = 100 if os.environ.get("JOBRUN_LONG") else 12
INSIDE = Every(epochs=1, batches=4)


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    """The blobs after an undisturbed run in one process."""
    runner = JobRunner(averaging(every=INSIDE))
    runner.train(LocalSession(2))
    return bits(runner.blobs)


def train(client: Any, job: Job, folder: Path | None, **how: Any) -> tuple[JobRunner, list[Event]]:
    events: list[Event] = []
    manager = CheckpointManager(folder) if folder is not None else None
    runner = JobRunner(job, manager, report=events.append)
    session = DaskSession(client, threads=2, **how)
    assert within(60, lambda: runner.train(session)) == 4
    return runner, events


def calls_of_a_run(folder: Path) -> int:
    with FakeCluster(2) as client:
        train(client, averaging(every=INSIDE), folder)
        return client.calls


@pytest.mark.parametrize("seed", range(MANY))
def test_a_worker_dies_at_any_call(tmp_path: Path, expected: dict[str, bytes], seed: int) -> None:
    calls = calls_of_a_run(tmp_path / "whole")
    at = random.Random(seed).randint(1, calls * 3 // 4)  # how often it is cut varies
    with FakeCluster(2, delay=0.002, seed=seed, die_at=at) as client:
        runner, events = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert bits(runner.blobs) == expected
        assert len(client.lost) <= 1
        assert len(returns(events)) <= 1
    left = {p.name for p in (tmp_path / "run").glob(".checkpoint*")}
    assert not left, [e for e in events if isinstance(e, LeftoversCleaned)]


def test_the_message_says_what_happened(tmp_path: Path, expected: dict[str, bytes]) -> None:
    calls = calls_of_a_run(tmp_path / "whole")
    with FakeCluster(2, die_at=calls * 2 // 3) as client:
        runner, events = train(client, averaging(every=INSIDE), tmp_path / "run")
        (lost,) = client.lost
        assert bits(runner.blobs) == expected
    (back,) = returns(events)
    assert back.checkpoint is not None
    assert f"the worker {lost} of node 't_" in back.message
    assert (back.restart, back.most) == (1, 3)


def test_the_nodes_of_a_lost_worker_go_to_one_that_is_left(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    with FakeCluster(2, die_at=60) as client:
        client.nanny = False
        runner, _ = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert len(client.workers) == 1
        assert bits(runner.blobs) == expected


def test_without_a_worker_it_waits_for_one(tmp_path: Path, expected: dict[str, bytes]) -> None:
    with FakeCluster(1, die_at=60) as client:
        client.nanny = False
        client.loop.asyncio_loop.call_later(1.5, client.start_worker)
        runner, _ = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert bits(runner.blobs) == expected


def test_without_a_worker_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with FakeCluster(1, die_at=60) as client:
        client.nanny = False
        with pytest.raises(ClusterLostError, match="no worker"):
            train(client, averaging(), tmp_path / "run", wait=0.3)


def test_at_most_so_many_restarts(tmp_path: Path) -> None:
    with FakeCluster(2, die_at=60) as client, pytest.raises(WorkerLostError):
        train(client, averaging(), tmp_path / "run", max_restarts=0)
    runner = JobRunner(averaging(), CheckpointManager(tmp_path / "run"))
    assert runner.train(LocalSession(1)) == 4


def test_without_checkpoints_it_begins_again(expected: dict[str, bytes]) -> None:
    with FakeCluster(2, die_at=25) as client:
        runner, events = train(client, averaging(every=INSIDE), None)
        assert bits(runner.blobs) == expected
    (back,) = returns(events)
    assert back.checkpoint is None
