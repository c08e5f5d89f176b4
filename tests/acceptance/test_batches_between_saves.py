"""``every: {batches: n}`` where several pipes run at once: the same places with any threads."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest
from whole_runs import bytes_of_checkpoints, die_after_save, records, train

from jobrun import CheckpointPolicy, Every, Job, Pipe, Task
from jobrun.core.position import Position


def rows(n: int) -> np.ndarray:
    return np.arange(n)


def job_of(chance: random.Random, nodes: list[str] | None = None, batches: int = 5) -> Job:
    """Pipe ``c`` comes after ``b``, ``a`` runs beside both, and ``end`` comes after all."""

    def add(x: np.ndarray, total: int) -> int:
        time.sleep(chance.random() * 0.0005)
        return total + int(x.sum())

    def slow(long: int) -> int:
        time.sleep(chance.random() * 0.002)
        return long + 1

    policy = CheckpointPolicy(every=Every(epochs=None, batches=batches))
    job = Job("beside", nodes=nodes, checkpoint=policy)
    node = "*" if nodes else None
    with job.setup:
        for name, n in (("a", 25), ("b", 7), ("c", 10)):
            Task(rows, with_={"n": n}, out=f"{name}_rows", name=f"make_{name}", node=node)
    with job.init:
        zero = ["total_a", "total_b", "total_c", "long", "sum"]
        Task(lambda: (0, 0, 0, 0, 0), out=zero, name="zero", node=node)
    with job.epoch:
        for name in "abc":
            steps = [Task(add, {"x": "x", "total": f"total_{name}"}, out=f"total_{name}")]
            after = ["b"] if name == "c" else []
            Pipe({"x": f"{name}_rows"}, batch=1, do=steps, name=name, node=node, after=after)
        Task(slow, "long", out="long", name="long", node=node)
        Task(lambda a, b, c: a + b + c, zero[:3], out="sum", name="end", node=node)
    job.stop(epochs=2)
    return job


def place(position: Position) -> tuple[int, list[str], dict[str, int]]:
    pipes = {key: state.batches for key, state in position.pipes.items()}
    return position.epochs, sorted(position.tasks), pipes


PLACES = [
    (0, [], {}),
    (0, ["long"], {"a": 5, "b": 5}),
    (0, ["b", "long"], {"a": 10, "c": 3}),
    (0, ["b", "long"], {"a": 15, "c": 8}),
    (0, ["b", "c", "long"], {"a": 20}),
    (0, ["a", "b", "c", "long"], {}),
    (1, ["long"], {"a": 5, "b": 5}),
    (1, ["b", "long"], {"a": 10, "c": 3}),
    (1, ["b", "long"], {"a": 15, "c": 8}),
    (1, ["b", "c", "long"], {"a": 20}),
    (1, ["a", "b", "c", "long"], {}),
    (2, [], {}),
]


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_each_pipe_is_saved_after_as_many_batches(tmp_path: Path, threads: int) -> None:
    train(job_of(random.Random(threads)), tmp_path, threads=threads)
    assert [place(r.position) for r in records(tmp_path)] == PLACES


def test_nodes_are_saved_at_the_same_batch(tmp_path: Path) -> None:
    train(job_of(random.Random(3), ["n", "m"]), tmp_path, threads=4)
    both = [
        (epochs, sorted(f"{n}:{t}" for n in "nm" for t in tasks), pipes)
        for epochs, tasks, pipes in PLACES
    ]
    found = [place(r.position) for r in records(tmp_path)]
    assert [(e, t) for e, t, _ in found] == [(e, t) for e, t, _ in both]
    for (_, _, pipes), (_, _, expected) in zip(found, both, strict=True):
        assert pipes == {f"{n}:{key}": count for n in "nm" for key, count in expected.items()}


@pytest.mark.parametrize("batches", [1, 3, 5, 20])
def test_a_run_that_is_killed_saves_the_same_bytes(tmp_path: Path, batches: int) -> None:
    chance = random.Random(batches)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    train(job_of(chance, batches=batches), alone, threads=1)
    for id, threads in ((0, 4), (1, 2), (3, 8)):
        die_after_save(job_of(chance, batches=batches), killed, id, threads=threads)
    train(job_of(chance, batches=batches), killed, threads=3)
    assert bytes_of_checkpoints(killed) == bytes_of_checkpoints(alone)
    states = [[r.position.to_json() for r in records(run)] for run in (killed, alone)]
    assert str(states[0]) == str(states[1])  # in the same order, too
