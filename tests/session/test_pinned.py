"""``thread: same``: what may be used on one thread only is made and used on one."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engine import Driver

from jobrun.errors import TaskError
from jobrun.model.job import Job, Node, Pipe, Task


def connect() -> sqlite3.Connection:
    """A connection that sqlite lets be used on this thread only."""
    db = sqlite3.connect(":memory:")
    db.execute("create table seen (x)")
    return db


def insert(db: sqlite3.Connection, x: Any) -> None:
    db.execute("insert into seen values (?)", (float(np.sum(x)),))


def add(x: np.ndarray, w: np.ndarray) -> None:
    w += x.sum()


def count(db: sqlite3.Connection) -> int:
    (found,) = db.execute("select count(*) from seen").fetchone()
    return int(found)


def wait() -> None:
    time.sleep(0.005)


def job_of(thread: str | None) -> Job:
    """Tasks of all groups that use a connection, among others that keep the threads busy."""
    job = Job("j", vars={"one": 1.0})
    with job.setup:
        for n in range(3):
            Task(wait, name=f"early_{n}")
        Task(connect, out="db", name="connect", thread=thread)
        Task(lambda: np.arange(4.0), out="x", name="rows")
    with job.init:
        Task(insert, ["db", "one"], name="first")
        Task(count, "db", out="n", name="begin")
    with job.epoch:
        for n in range(6):
            Task(wait, name=f"other_{n}")
        Pipe({"x": "x"}, 2, do=[Task(insert, ["db", "x"])], name="read")
        Task(insert, ["db", "n"], name="more")
        Task(count, "db", out="n", name="count")
    with job.exit:
        Task(lambda db, n: count(db) == n or 1 / 0, ["db", "n"], out="same", name="look")
    return job


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_connection_of_setup_is_used_in_all_groups(threads: int) -> None:
    driver = Driver(job_of("same"), threads).start().epochs(3)
    assert driver.blob("n") == 1 + 3 * 3
    driver.run("exit")
    assert driver.blob("same") is True


def test_without_it_the_error_says_what_to_do() -> None:
    """Two tasks that meet are on two threads, of which one is not that of ``setup``."""
    both = threading.Barrier(2)

    def use(db: sqlite3.Connection) -> None:
        both.wait(5)
        count(db)

    job = Job("j")
    with job.setup:
        Task(lambda: [connect(), connect()], out="dbs", name="connect")
        Task(lambda dbs: (dbs[0], dbs[1]), "dbs", out=["a", "b"], name="apart")
    with job.epoch:
        Task(use, "a", name="one")
        Task(use, "b", name="two")
    driver = Driver(job, 2)
    driver.run("setup")
    with pytest.raises(TaskError, match=r"SQLite objects created in a thread") as caught:
        driver.epoch()
    assert "'thread: same' on the task that makes such an object" in caught.value.hint


@pytest.mark.parametrize("threads", [1, 8])
def test_a_source_that_reads_a_connection(threads: int) -> None:
    def rows(db: sqlite3.Connection) -> Iterator[dict[str, float]]:
        for n in range(4):
            yield {"x": float(n + count(db))}

    job = Job("j")
    with job.setup:
        Task(connect, out="db", name="connect", thread="same")
    with job.init:
        Task(lambda: np.zeros(1), out="w", name="begin")
    with job.epoch:
        for n in range(4):
            Task(wait, name=f"other_{n}")
        Pipe(["x"], 2, call=rows, in_="db", do=[Task(add, "x", update="w")], name="read")
    assert Driver(job, threads).start().epochs(2).blob("w") == 12.0


def test_it_is_one_thread_for_several_nodes_and_others_are_free() -> None:
    used: dict[str, set[str]] = {"pinned": set(), "free": set()}
    meet = threading.Barrier(3)

    def note(kind: str) -> None:
        used[kind].add(threading.current_thread().name)

    def free() -> None:
        meet.wait(5)
        note("free")

    job = Job("j", nodes=["a", "b", "c"])
    with job.setup, Node("*"):
        Task(lambda: note("pinned") or object(), out="thing", name="make", thread="same")
    with job.epoch, Node("*"):
        Task(lambda thing: note("pinned"), "thing", name="use")
        Task(free, name="free")
    Driver(job, 3).start().epochs(2)
    assert len(used["pinned"]) == 1
    assert len(used["free"]) == 3


def test_values_beside_the_object_keep_their_order_and_their_kinds() -> None:
    """The results are those without it."""
    results = []
    for thread in (None, "same"):
        job = Job("j", seed=5)
        with job.setup:
            Task(lambda: (object(), 3.0), out=["thing", "x"], name="make", thread=thread)
        with job.init:
            Task(lambda rng: rng.random(3), "rng", out="w", name="begin")
        with job.epoch:
            Task(lambda rng, x, w: w * x + rng.random(3), ["rng", "x", "w"], out="w", name="step")
        results.append(Driver(job, 4).start().epochs(3).blob("w").tobytes())
    assert results[0] == results[1]
