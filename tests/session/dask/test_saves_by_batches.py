"""``every: {batches: n}``: a job has its checkpoints where it has them in one process."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import same, within
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oracle import Step
from random_nodes import LATE_ALIAS, WAITING_COPY, build, many_pipes
from random_steps import job_of, steps
from whole_runs import MEMORY, bytes_of_checkpoints, records, start, train

from jobrun import CheckpointPolicy, Every, Job, Node, Pipe, Task
from jobrun.session.base import Session
from jobrun.session.local import LocalSession

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask.session import DaskSession

NODES = ("n0", "n1", "n2")
MANY = 200 if os.environ.get("JOBRUN_LONG") else 10


@dataclass
class Saved:
    """The places of the checkpoints of a whole run, all their bytes, and those of the values."""

    places: list[str]
    files: dict[str, bytes]
    values: list[dict[str, bytes]]


def checkpoints(make: Callable[[], Job], session: Session) -> Saved:
    """Train a job; return what it has saved."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        run = Path(folder) / "run"
        within(60, lambda: train(make(), run, session=session))
        found = records(run)
        files = bytes_of_checkpoints(run)
    values: dict[int, dict[str, bytes]] = {record.id: {} for record in found}
    for path, data in files.items():
        checkpoint, *name = path.split("/")
        if len(name) > 1:  # of a node, not of the checkpoint, whose own files hold its number
            values[int(checkpoint.partition("_")[2])]["/".join(name)] = data
    return Saved([str(record.position.to_json()) for record in found], files, [*values.values()])


def check(make: Callable[[], Job], workers: int, seed: int) -> None:
    alone = checkpoints(make, LocalSession(2))
    with FakeCluster(workers, delay=0.004, seed=seed) as client:
        found = checkpoints(make, DaskSession(client, threads=2))
    assert found.places == alone.places
    assert found.files == alone.files


def saved_by_batches(job: Job, batches: int) -> Job:
    job.checkpoint = CheckpointPolicy(every=Every(epochs=None, batches=batches))
    return job


@settings(deadline=None, max_examples=MANY, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps(("n0", "n1", "n2", "n*"), across=True),
    st.integers(1, 7),
    st.integers(2, 3),
    st.integers(0, 1000),
)
def test_any_job_is_saved_at_the_same_places(
    specs: list[Step], batches: int, workers: int, seed: int
) -> None:
    def make() -> Job:
        job = saved_by_batches(job_of(specs, NODES), batches)
        job.stop(epochs=2)
        return job

    check(make, workers, seed)


@settings(deadline=None, max_examples=MANY, suppress_health_check=[HealthCheck.too_slow])
@given(many_pipes, st.integers(1, 7), st.integers(0, 1000))
@example(WAITING_COPY, 2, 0)
@example(LATE_ALIAS, 2, 0)
def test_any_job_with_objects_is_saved_at_the_same_places(
    description: dict[str, object], batches: int, seed: int
) -> None:
    check(lambda: saved_by_batches(build(description), batches), 2, seed)


def rows(n: int) -> np.ndarray:
    return np.arange(float(n))


def slowly(most: float) -> None:
    time.sleep(random.random() * most)


def add(x: np.ndarray, v: float) -> float:
    slowly(0.001)
    return v + float(x.sum())


def pipe(name: str, node: str, batches: int, **more: Any) -> Pipe:
    """A pipe that adds its rows to ``v_<name>``, after some that were prepared ahead."""
    total = f"v_{name}"
    return Pipe(
        {"x": f"rows_{batches}"},
        1,
        threads=2,
        map=[Task(np.sqrt, "x", out="x", name="root")],
        do=[Task(add, {"x": "x", "v": total}, out=total, name="add")],
        name=name,
        node=node,
        **more,
    )


def meeting(name: str) -> Pipe:
    """A pipe on all nodes that reduces in each batch."""
    return Pipe(
        {"x": "rows_6"},
        1,
        do=[
            Task(lambda x: float(x.sum()), "x", out=f"g_{name}", name="gradient"),
            Task(
                lambda g, v: v + g,
                [{"reduce": "sum", "of": f"*:g_{name}"}, f"v_{name}"],
                out=f"v_{name}",
                name="step",
            ),
        ],
        name=name,
        node="*",
    )


def pipes(batches: int) -> Job:
    """Pipes one after another and beside each other, on nodes that wait for each other or not."""
    with saved_by_batches(Job("pipes", nodes=["a", "b", "c"]), batches) as job:
        with job.setup, Node("*"):
            for n in (3, 6, 11):
                Task(rows, with_={"n": n}, out=f"rows_{n}", name=f"make_{n}")
        with job.init, Node("*"):
            names = ["first", "short", "long", "behind", "m", "n"]
            zeros = [f"v_{name}" for name in names]
            Task(lambda: (0.0,) * 6, out=zeros, name="zero")
            Task(lambda: 0.0, out="w", name="begin")
        meeting("m")
        meeting("n")
        pipe("first", "a", 6)
        pipe("short", "b", 3)
        pipe("long", "c", 11)
        Task(lambda v: v + 1, "a:v_first", out="w", name="reads", node="b")
        Task(lambda v: v * 2, "v_first", out="v_first", name="writes", node="a")
        pipe("behind", "b", 6, after=["first", "short"])
        Task(lambda vs: sum(vs), "*:v_first", out="v_first", name="all", node="*")
    job.stop(epochs=2)
    return job


@pytest.mark.parametrize("batches", [1, 4, 7, 13])
@pytest.mark.parametrize("workers", [2, 3])
def test_many_pipes_are_saved_at_the_same_places(batches: int, workers: int) -> None:
    check(lambda: pipes(batches), workers, batches)


class Tool:
    """An object that stays where it was made."""

    def __reduce__(self) -> Any:
        raise TypeError("a tool stays where it was made")


def gathered_behind_a_tool(batches: int) -> Job:
    """What gathers waits for a pipe on one node, since both use the tool there."""
    with saved_by_batches(Job("tool", nodes=["a", "b"]), batches) as job:
        with job.setup, Node("*"):
            Task(Tool, out="tool", name="make")
            Task(rows, with_={"n": 4}, out="rows", name="rows")
        with job.init, Node("*"):
            Task(lambda: (0.0, 0.0), out=["w", "v"], name="begin")
        step = Task(lambda x, v, _: v + x.sum(), ["x", "v", "tool"], out="v", name="step")
        Pipe({"x": "rows"}, 1, do=[step], name="use", node="a")
        Task(lambda ws, _: sum(ws) + 1, ["*:w", "tool"], out="w", name="all", node="*")
    job.stop(epochs=2)
    return job


@pytest.mark.parametrize("batches", [1, 3, 5])
def test_an_object_of_one_worker_holds_the_copies_on_others(batches: int) -> None:
    check(lambda: gathered_behind_a_tool(batches), 2, batches)


# Faults and signals.


@pytest.mark.parametrize("seed", range(MANY // 3))
@pytest.mark.parametrize("fault", ["die_at", "drop_at"])
def test_a_lost_worker_changes_no_checkpoint(fault: str, seed: int) -> None:
    chance = random.Random(seed)
    batches, at = chance.choice([1, 2, 4]), chance.randint(1, 150)
    alone = checkpoints(lambda: pipes(batches), LocalSession(2))
    faults: Any = {fault: [at]}
    with FakeCluster(3, delay=0.002, seed=seed, **faults) as client:
        found = checkpoints(lambda: pipes(batches), DaskSession(client, threads=2))
    assert found.places == alone.places
    assert found.values == alone.values


_beside = threading.Event()


def beside(n: int) -> int:
    if n == 3:
        _beside.set()
    time.sleep(0.01)
    return n + 1


def held_beside() -> Job:
    """Node ``a`` is held at once, while ``b`` has more to do."""
    with saved_by_batches(Job("held", nodes=["a", "b"]), 2) as job:
        with job.setup, Node("*"):
            Task(rows, with_={"n": 6}, out="rows", name="rows")
        with job.init, Node("*"):
            Task(lambda: (0.0, 0), out=["v", "n"], name="begin")
        for node in "ab":
            step = Task(add, ["x", "v"], out="v", name="add")
            Pipe({"x": "rows"}, 1, do=[step], name=f"pipe_{node}", node=node)
        for number in range(40):
            Task(beside, "n", out="n", name=f"beside_{number}", node="b")
    job.stop(epochs=2)
    return job


def test_a_signal_is_served_while_a_worker_is_held(tmp_path: Path) -> None:
    alone = train(held_beside()).blobs
    _beside.clear()
    with FakeCluster(2, delay=0.002) as client:
        run = start(held_beside(), tmp_path, session=DaskSession(client, threads=2))

        def interrupt() -> None:
            _beside.wait(30)
            run.runner.interrupt("SIGTERM")

        threading.Thread(target=interrupt, daemon=True).start()
        within(30, lambda: run.runner.train(run.session))
        assert run.outcome.exit_code == 143
        tasks = records(tmp_path)[-1].position.tasks
        assert 3 < len(tasks) < 40
        ended = within(30, lambda: train(held_beside(), tmp_path, session=DaskSession(client)))
        assert all(same(ended.blobs[name], alone[name]) for name in alone)
