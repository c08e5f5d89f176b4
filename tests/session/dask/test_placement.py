"""The placement of nodes: shares of workers, workers without jobrun, and waits that are served."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from averaging import averaging, bits, returns
from engine import within

from jobrun import Job, JobRunner, LocalSession, Task
from jobrun.core.events import Event, RunEnded, Warned
from jobrun.errors import ClusterLostError, UsageError
from jobrun.session.base import Control

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask import waiting
from jobrun.session.dask.placement import Avoided, assign, needs_of, shares
from jobrun.session.dask.session import DaskSession
from jobrun.session.dask.worker_session import WorkerSession
from jobrun.usercode.environment import versions


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
    text = f"jobrun is not installed on the worker {bare}: the other workers are used"
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


# Resources.


def test_nodes_go_to_workers_that_have_enough() -> None:
    gpu = {"GPU": 1.0}
    needs = {"t0": gpu, "t1": gpu, "t2": gpu}
    nodes = ["main", "t0", "t1", "t2"]
    has = {"a": {}, "b": {"GPU": 1.0}, "c": {"GPU": 2.0, "memory": 8e9}}
    placed = {"b": ("t0",), "c": ("t1", "t2"), "a": ("main",)}
    assert assign(nodes, ["a", "b", "c"], needs, has) == placed
    assert assign(nodes, ["c"], {"t0": gpu, "t2": gpu}, has) == {"c": ("main", "t0", "t1", "t2")}
    assert assign(nodes, ["b", "c"], {**needs, "main": gpu}, has) == "t2"
    assert assign(nodes, ["c"], {"t1": {"memory": 9e9}}, has) == "t1"


def test_what_nodes_need_by_pattern() -> None:
    wanted = {"t*": {"GPU": 1.0}, "t1": {"GPU": 2.0, "memory": 4e9}}
    found = needs_of(["main", "t0", "t1"], wanted)
    assert found == {"t0": {"GPU": 1.0}, "t1": {"GPU": 2.0, "memory": 4e9}}
    with pytest.raises(UsageError, match="'tt', which no node matches"):
        needs_of(["t0", "t1"], {"tt": {"GPU": 1.0}})


def test_a_node_is_placed_where_its_resources_are() -> None:
    with FakeCluster(3) as client:
        *_, last = client.workers
        client.resources = {last: {"GPU": 1.0}}
        runner = JobRunner(job())
        session = DaskSession(client, resources={"b": {"GPU": 1.0}})
        within(30, lambda: runner.train(session))
        assert session.where["b"] == last != session.where["a"]
        assert client.submitted[session.where["b"]] == {"GPU": 1.0}
        assert client.submitted[session.where["a"]] is None


def test_resources_that_no_worker_has_end_the_run_within_wait() -> None:
    with FakeCluster(2) as client:
        first, second = client.workers
        client.resources = {first: {"GPU": 1.0}}
        session = DaskSession(client, resources={"*": {"GPU": 1.0}}, wait=0.2)
        with pytest.raises(ClusterLostError) as caught:
            within(30, lambda: JobRunner(job()).train(session))
    assert caught.value.message == (
        "no worker has the resources of node 'b' (GPU=1) left: "
        f"{first} has GPU=1; {second} has no resources"
    )
    assert "dask worker ADDRESS --resources 'GPU=1'" in caught.value.hint


def test_a_worker_with_the_resources_is_waited_for() -> None:
    with FakeCluster(1) as client:

        def join() -> None:
            client.resources = {client.start_worker(): {"GPU": 2.0}}

        threading.Timer(0.3, join).start()
        session = DaskSession(client, resources={"*": {"GPU": 1.0}}, wait=20)
        within(30, lambda: JobRunner(job()).train(session))
        assert set(session.where.values()) == set(client.resources)


def test_a_worker_that_joins_meanwhile_is_asked_whether_it_has_jobrun() -> None:
    events: list[Event] = []
    with FakeCluster(1) as client:
        (first,) = client.workers
        bare, good = "tcp://fake:101", "tcp://fake:102"
        client.resources = {bare: {"GPU": 1.0}, good: {"GPU": 1.0}}
        client.run = lambda *_, workers, **__: {w: w != bare for w in workers}  # type: ignore[method-assign]
        for seconds in (0.3, 0.6):
            threading.Timer(seconds, client.start_worker).start()
        session = DaskSession(client, resources={"*": {"GPU": 0.5}}, wait=20)
        runner = JobRunner(job(), report=events.append)
        within(30, lambda: runner.train(session))
        assert set(session.where.values()) == {good}
        assert first not in session.where.values()
    said = [e.message for e in events if isinstance(e, Warned)]
    assert said == [f"jobrun is not installed on the worker {bare}: the other workers are used"]


# Versions.


def test_another_version_on_a_worker_is_an_error_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = {**versions(), "numpy": "1.0"}
    monkeypatch.setattr(WorkerSession, "versions", lambda self: other)
    with FakeCluster(2) as client:
        session = DaskSession(client, same_versions=True)
        with pytest.raises(UsageError, match=r"of node 'a' has numpy 1.0, the client \d"):
            within(30, lambda: JobRunner(job()).train(session))
    monkeypatch.undo()
    with FakeCluster(2) as client:
        within(30, lambda: JobRunner(job()).train(DaskSession(client, same_versions=True)))


# Two workers that do not reach each other.


def test_of_two_workers_that_are_apart_one_is_left_out() -> None:
    assert Avoided(apart={("a", "b")}).usable("abc") == ["a", "c"]
    assert Avoided(apart={("a", "b"), ("c", "a")}).usable("abc") == ["b", "c"]
    assert Avoided(lost={"c"}, apart={("c", "b")}).usable("abc") == ["a", "b"]
    assert Avoided(apart={("a", "b"), ("b", "c"), ("a", "c")}).usable("abc") == ["a"]


@pytest.mark.filterwarnings("ignore::jobrun.core.events.JobrunWarning")
@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_partition_between_two_workers_is_given_up_at_once(workers: int) -> None:
    """The nodes go elsewhere, or to one of both, and the result is the same."""
    expected = JobRunner(averaging())
    expected.train(LocalSession(1))
    events: list[Event] = []
    runner = JobRunner(averaging(), report=events.append)
    with FakeCluster(workers) as client:
        client.apart = {frozenset([*client.workers][:2])}
        session = DaskSession(client, max_restarts=1)
        within(60, lambda: runner.train(session))
        assert not client.apart & {frozenset(session.where.values())}
        assert not client.lost
        assert bits(runner.blobs) == bits(expected.blobs)
    assert len(returns(events)) == 1
    assert "cannot be reached from another node's worker" in returns(events)[0].message
