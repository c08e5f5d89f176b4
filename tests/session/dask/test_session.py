"""What the session keeps of its nodes, and what nodes do that it has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine import Driver

from jobrun import Job, Node, Task
from jobrun.errors import WorkerLostError

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession


@pytest.fixture
def client() -> Iterator[Any]:
    with FakeCluster(2) as made:
        yield made


def test_scalars_of_scratch_are_forgotten_with_it(client: Any) -> None:
    """Also those that the nodes told of at the end of the group."""
    with Job("j", nodes=["a", "b"]) as job, Node("*"):
        Task(lambda: 1.0, out="scratch", name="put")
    driver = Driver(job, session=DaskSession(client)).start()
    for _ in range(2):
        assert driver.epoch()
        assert driver.session.scalars(["a:scratch"]) == {"a:scratch": 1.0}
        driver.session.end_epoch()
        assert driver.session.scalars(["a:scratch"]) == {}


_begun, _killed = threading.Event(), threading.Event()


def until_killed() -> int:
    _begun.set()
    assert _killed.wait(30)
    return 1


def test_a_node_that_was_left_does_not_wait_for_messages_for_ever(client: Any) -> None:
    with Job("j", nodes=["a", "b"]) as job:
        with Node("a"):
            Task(until_killed, out="x", name="slow")
        with Node("b"):
            Task(lambda x: None, "a:x", name="take")
    session = DaskSession(client, max_restarts=0)
    driver = Driver(job, session=session).start()
    waits = session.where["b"]
    (actor,) = client.workers[waits].state.actors.values()

    def kill() -> None:
        _begun.wait(30)
        time.sleep(0.3)  # until the other one waits
        client.loop.asyncio_loop.call_soon_threadsafe(client.kill, waits)
        _killed.set()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(WorkerLostError):
        driver.epoch()
    actor._threads.shutdown(wait=False)
    for thread in actor._threads._threads:
        thread.join(10)
        assert not thread.is_alive()
