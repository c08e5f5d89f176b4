"""A worker that dies at any call, or twice, or a message that does not arrive: the run goes on from
its last checkpoint, with the same bits, or ends with an error; it never hangs."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from averaging import averaging, bits, returns
from engine import within

from jobrun import (
    CheckpointManager,
    CheckpointPolicy,
    Every,
    Job,
    JobRunner,
    LocalSession,
    Node,
    Pipe,
    Task,
)
from jobrun.core.events import CheckpointSaved, Event, LeftoversCleaned, RunStarted
from jobrun.errors import ClusterLostError, WorkerLostError

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.base import Session
from jobrun.session.dask.session import DaskSession

MANY = 100 if os.environ.get("JOBRUN_LONG") else 6
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


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls a run makes, about: how often it is cut varies."""
    with FakeCluster(2) as client:
        train(client, averaging(every=INSIDE), tmp_path_factory.mktemp("whole"))
        return client.calls


@pytest.mark.parametrize("seed", range(MANY))
def test_a_worker_dies_at_any_call(
    tmp_path: Path, expected: dict[str, bytes], calls: int, seed: int
) -> None:
    at = random.Random(seed).randint(1, calls * 3 // 4)
    with FakeCluster(2, delay=0.002, seed=seed, die_at=[at]) as client:
        runner, events = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert bits(runner.blobs) == expected
        assert len(client.lost) <= 1
        assert len(returns(events)) <= 1
    left = {p.name for p in (tmp_path / "run").glob(".checkpoint*")}
    assert not left, [e for e in events if isinstance(e, LeftoversCleaned)]


@pytest.mark.parametrize("seed", range(MANY))
def test_a_message_does_not_arrive(
    tmp_path: Path, expected: dict[str, bytes], calls: int, seed: int
) -> None:
    """From the client or from another node, which may have ended its part of the run by then."""
    at = random.Random(seed).randint(1, calls * 3 // 4)
    with FakeCluster(2, delay=0.002, seed=seed, drop_at=[at]) as client:
        runner, events = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert bits(runner.blobs) == expected
        assert not client.lost
    assert len(returns(events)) <= 1


def test_a_message_that_was_the_last_of_its_node_does_not_arrive() -> None:
    """Nobody runs any more on the node that sends it: the client is told."""
    with Job("j", nodes=["a", "b"]) as job:
        with job.init:
            Task(lambda: 1.0, out="x", name="make", node="a")
            Task(lambda x: x + 1, "a:x", out="x", name="take", node="b")
        Task(lambda x: x, "x", out="x", name="keep", node="b")
        job.stop(epochs=1)
    events: list[Event] = []
    runner = JobRunner(job, report=events.append)
    with FakeCluster(2, delay=0.2, drop_first="deliver") as client:
        within(30, lambda: runner.train(DaskSession(client)))
        assert runner.blobs["b:x"] == 2.0
    (back,) = returns(events)
    assert "of node 'b' cannot be reached from another node's worker" in back.message


@pytest.mark.filterwarnings("ignore::jobrun.core.events.JobrunWarning")
@pytest.mark.parametrize("seed", range(MANY))
def test_a_second_worker_dies_while_the_run_goes_back(
    tmp_path: Path, expected: dict[str, bytes], calls: int, seed: int
) -> None:
    """With one restart the second loss ends the run, and what was saved is there to go on from."""
    rng = random.Random(seed)
    at = rng.randint(1, calls * 3 // 4)
    second = at + rng.randint(1, 40)  # from the end of the old nodes to the first groups again
    job, folder = averaging(every=INSIDE), tmp_path / "run"
    with FakeCluster(2, delay=0.002, seed=seed, die_at=[at, second]) as client:
        runner = JobRunner(job, CheckpointManager(folder))
        session = DaskSession(client, threads=2, max_restarts=1)
        with suppress(WorkerLostError):
            assert within(60, lambda: runner.train(session)) == 4
            assert bits(runner.blobs) == expected
    if runner.outcome is None or runner.outcome.outcome == "error":
        runner = JobRunner(job, CheckpointManager(folder))
        assert runner.train(LocalSession(2)) == 4
        assert bits(runner.blobs) == expected
    assert not list(folder.glob(".checkpoint*"))


def test_the_message_says_what_happened(
    tmp_path: Path, expected: dict[str, bytes], calls: int
) -> None:
    with FakeCluster(2, die_at=[calls * 2 // 3]) as client:
        runner, events = train(client, averaging(every=INSIDE), tmp_path / "run")
        (lost,) = client.lost
        assert bits(runner.blobs) == expected
    (back,) = returns(events)
    assert back.checkpoint is not None
    assert f"the worker {lost} of node" in back.message
    assert (back.restart, back.most) == (1, 3)


def test_the_nodes_of_a_lost_worker_go_to_one_that_is_left(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    with FakeCluster(2, die_at=[20]) as client:
        client.nanny = False
        runner, _ = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert len(client.workers) == 1
        assert bits(runner.blobs) == expected


def test_without_a_worker_it_waits_for_one(tmp_path: Path, expected: dict[str, bytes]) -> None:
    with FakeCluster(1, die_at=[20]) as client:
        client.nanny = False
        client.loop.asyncio_loop.call_later(1.5, client.start_worker)
        runner, _ = train(client, averaging(every=INSIDE), tmp_path / "run")
        assert bits(runner.blobs) == expected


def test_without_a_worker_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with FakeCluster(1, die_at=[20]) as client:
        client.nanny = False
        with pytest.raises(ClusterLostError, match="no worker"):
            train(client, averaging(), tmp_path / "run", wait=0.3)


def test_at_most_so_many_restarts(tmp_path: Path) -> None:
    with FakeCluster(2, die_at=[20]) as client, pytest.raises(WorkerLostError):
        train(client, averaging(), tmp_path / "run", max_restarts=0)
    runner = JobRunner(averaging(), CheckpointManager(tmp_path / "run"))
    assert runner.train(LocalSession(1)) == 4


def test_without_checkpoints_it_begins_again(expected: dict[str, bytes]) -> None:
    with FakeCluster(2, die_at=[12]) as client:
        runner, events = train(client, averaging(every=INSIDE), None)
        assert bits(runner.blobs) == expected
    (back,) = returns(events)
    assert back.checkpoint is None


# Pipes in lock step.


def load(node: str) -> Any:
    return np.random.default_rng(int(node[-1])).normal(size=(12, 3))


def in_lock_step(every: Every = INSIDE) -> Job:
    """Gradients that are averaged over the nodes in each batch."""
    with Job("sgd", nodes={"t": 3}, checkpoint=CheckpointPolicy(every=every)) as job:
        with job.setup, Node("*"):
            Task(load, "node", out="rows")
        with job.init, Node("*"):
            Task(np.ones, with_={"shape": 3}, out="w", name="start")
        with Node("*"):
            Pipe(
                from_={"x": "rows"},
                batch=2,
                shuffle=True,
                do=[
                    Task(lambda x, w: (x - w).sum(axis=0), ["x", "w"], out="g", name="gradient"),
                    Task(
                        lambda g, w: w + 0.1 * g,
                        [{"reduce": "sum", "of": "*:g"}, "w"],
                        out="w",
                        name="step",
                    ),
                ],
                name="train",
            )
        job.stop(epochs=4)
    return job


@pytest.mark.parametrize("batches", [1, 4, 7, 30])
@pytest.mark.parametrize("workers", [2, 3])
def test_saves_within_epochs_are_those_of_one_process(
    tmp_path: Path, batches: int, workers: int
) -> None:
    """Each worker knows of the batches of the others, without a message about them."""

    def saves(session: Session, folder: Path) -> list[tuple[int, str]]:
        events: list[Event] = []
        job = in_lock_step(Every(batches=batches))
        runner = JobRunner(job, CheckpointManager(folder), report=events.append)
        within(60, lambda: runner.train(session))
        assert not any(e.notes for e in events if isinstance(e, RunStarted))
        return [(e.epoch, e.place) for e in events if isinstance(e, CheckpointSaved)]

    alone = saves(LocalSession(2), tmp_path / "local")
    with FakeCluster(workers) as client:
        assert saves(DaskSession(client), tmp_path / "dask") == alone
    assert len(alone) > 2


@pytest.fixture(scope="module")
def of_lock_step() -> dict[str, bytes]:
    runner = JobRunner(in_lock_step())
    runner.train(LocalSession(2))
    return bits(runner.blobs)


@pytest.fixture(scope="module")
def calls_of_lock_step(tmp_path_factory: pytest.TempPathFactory) -> int:
    with FakeCluster(3) as client:
        train(client, in_lock_step(), tmp_path_factory.mktemp("steps"))
        return client.calls


@pytest.mark.parametrize("seed", range(MANY))
@pytest.mark.parametrize("fault", ["die_at", "drop_at"])
def test_pipes_in_lock_step_lose_a_worker_or_a_message(
    tmp_path: Path, of_lock_step: dict[str, bytes], calls_of_lock_step: int, fault: str, seed: int
) -> None:
    at = [random.Random(seed).randint(1, calls_of_lock_step * 3 // 4)]
    with FakeCluster(3, delay=0.002, seed=seed, **{fault: at}) as client:  # type: ignore[arg-type]
        runner, events = train(client, in_lock_step(), tmp_path / "run")
        assert bits(runner.blobs) == of_lock_step
    assert len(returns(events)) <= 1
