"""The placement of nodes: shares of workers, workers without jobrun, and waits that are served."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from engine import within

from jobrun import Job, JobRunner, Task
from jobrun.core.events import Event, RunEnded, Warned
from jobrun.errors import ClusterLostError, UsageError
from jobrun.session.base import Control

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask import waiting
from jobrun.session.dask.cluster import shares
from jobrun.session.dask.session import DaskSession


def one() -> float:
    return 1.0


def job() -> Job:
    with Job("j", nodes=["a", "b"]) as made:
        with made.init:
            Task(one, out="x", node="*")
        made.stop(epochs=1)
    return made


def test_neighbours_share_a_worker() -> None:
    assert shares("abcde", 2) == [("a", "b"), ("c", "d", "e")]
    assert shares("ab", 5) == [("a",), ("b",)]


def test_a_worker_without_jobrun_is_named_and_gets_no_node() -> None:
    events: list[Event] = []
    runner = JobRunner(job(), report=events.append)
    with FakeCluster(2) as client:
        bare, good = client.workers
        client.run = lambda *_, **__: {bare: False, good: True}  # type: ignore[method-assign]
        session = DaskSession(client)
        within(30, lambda: runner.train(session))
        assert set(session.where.values()) == {good}
    said = [e.message for e in events if isinstance(e, Warned)]
    text = (
        f"jobrun is not installed on the worker {bare}: the nodes are placed on the other workers"
    )
    assert said == [text]


def test_workers_without_jobrun_are_an_error_at_once() -> None:
    with FakeCluster(2) as client:
        client.run = lambda *_, **__: dict.fromkeys(client.workers, False)  # type: ignore[method-assign]
        runner = JobRunner(job())
        with pytest.raises(UsageError, match="jobrun is not installed on the workers tcp://fake"):
            within(30, lambda: runner.train(DaskSession(client)))


def test_a_signal_ends_the_wait_for_a_worker() -> None:
    events: list[Event] = []
    runner = JobRunner(job(), report=events.append)
    with FakeCluster(0) as client:
        threading.Timer(0.3, lambda: runner.interrupt("SIGTERM")).start()
        start = time.monotonic()
        within(30, lambda: runner.train(DaskSession(client, wait=60)))
        assert time.monotonic() - start < 10
    (end,) = [e for e in events if isinstance(e, RunEnded)]
    assert (end.outcome, end.exit_code) == ("interrupted", 143)


def test_a_long_wait_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_SAY", 0.1)
    events: list[Event] = []
    session: Any
    with FakeCluster(0) as client:
        session = DaskSession(client, wait=0.5)
        session.control = Control(report=events.append)
        with pytest.raises(ClusterLostError, match="the cluster has no worker"):
            JobRunner(job(), report=events.append).train(session)
    assert [e.message for e in events if isinstance(e, Warned)] == [
        "waiting for a worker to join the cluster, for at most 0.5 s"
    ]
