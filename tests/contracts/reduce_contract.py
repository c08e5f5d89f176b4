"""What every session must obey where nodes exchange blobs, and reduce them to one value."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same

from jobrun.errors import DataError, TaskError
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.session.base import Session
from jobrun.session.local import LocalSession

__all__ = ["ReduceContract"]

HOW = ["mean", "sum", "min", "max"]


def values(node: str) -> dict[str, Any]:
    """Values whose sum depends on the order in which they are added."""
    seed = int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "little")
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-8, 8, 5)
    return {
        "double": rng.normal(size=5) * scale,
        "single": np.float32(rng.normal(size=(2, 3)) * 1e3),
        "small": rng.integers(100, 255, 4).astype(np.uint8),
        "flags": rng.random(4) < 0.5,
        "list": [float(rng.normal()), int(rng.integers(9)), bool(rng.random() < 0.5)],
        "nan": np.array([np.nan if rng.random() < 0.3 else 1.0, -0.0]),
    }


def tree_of(how: str, items: list[Any]) -> Any:
    """The reduction by hand: neighbours in pairs, then pairs of pairs; one that is left waits."""
    join = {"min": np.minimum, "max": np.maximum}.get(how, np.add)
    level = [np.asarray(item) for item in items]
    if how in ("mean", "sum") and level[0].dtype.kind in "bu":
        level = [item.astype(np.uint64 if item.dtype.kind == "u" else int) for item in level]
    while len(level) > 1:
        pairs = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0] / np.asarray(items[0]).dtype.type(len(items)) if how == "mean" else level[0]


def keep(*given: Any, **named: Any) -> Any:
    """Return what was given."""
    return list(given) if given else named


def first(node: str) -> Any:
    """A vector on one node, and another shape on the others."""
    return np.zeros(3 if node == "n0" else 4)


def text(node: str) -> str:
    return node


def double(g: Any) -> Any:
    return g * 2.0


def average(nodes: int) -> Job:
    with Job("average", nodes=nodes) as job:
        with job.init, Node("*"):
            Task(values, "node", out="g", name="make")
        with Node("*"):
            Task(keep, {how: {"reduce": how, "of": "*:g"} for how in HOW}, out="all", name="all")
            Task(keep, [{"reduce": "mean", "of": "*:g/double"}], out="g/double", name="put")
    return job


def rows_of(node: str, count: int) -> Any:
    """Rows of a node, whose sums depend on the order of the nodes."""
    seed = int.from_bytes(hashlib.sha256(node.encode()).digest()[:4], "little")
    return np.random.default_rng(seed).normal(size=(count, 3)) * 1e3


def ones() -> Any:
    return np.ones(3)


def gradient(x: Any, w: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return {"g": (x - w).mean(axis=0), "n": len(x)}


def times(x: Any, z: Any) -> Any:
    return x * z


def weighted(x: Any, seen: Any) -> Any:
    return {"g": (x * seen[0]).mean(axis=0), "n": len(x)}


def step(g: Any, w: Any) -> None:
    w += 0.1 * g["g"] / g["n"]


def averaging(nodes: int, rows: list[int], seconds: float = 0.0, **pipe: Any) -> Job:
    """Each batch adds the mean gradient of all nodes to the weights of each."""
    names = [f"n{number}" for number in range(nodes)]
    own = {name: {"count": count} for name, count in zip(names, rows, strict=True)}
    with Job("sgd", nodes=own, vars={"seconds": seconds}) as job:
        with job.setup, Node("*"):
            Task(rows_of, ["node", "count"], out="rows", name="load")
        with job.init, Node("*"):
            Task(ones, out="w")
        with Node("*"):
            Pipe(
                from_={"x": "rows"},
                do=[
                    Task(gradient, ["x", "w", "seconds"], out="g", name="gradient"),
                    Task(
                        step,
                        {"g": {"reduce": "mean", "of": "*:g"}},
                        update={"w": "w"},
                        name="step",
                    ),
                ],
                name="train",
                **{"batch": 2, "shuffle": True, **pipe},
            )
    return job


def weights(driver: Driver, nodes: int) -> list[bytes]:
    return [driver.blob(f"n{number}:w").tobytes() for number in range(nodes)]


def after_an_epoch(job: Job, session: Session) -> Driver:
    """A driver of the job, with the scratch of its first epoch."""
    driver = Driver(job, session=session).start()
    assert driver.epoch()
    return driver


class ReduceContract:
    """``make_session`` returns a new session."""

    seconds_of_a_batch = 0.0
    """As long as a cut takes to be noticed."""

    def make_session(self) -> Session:
        """Return a new session."""
        raise NotImplementedError

    @pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
    def test_a_reduction_has_the_bits_of_the_tree(self, session: Session, nodes: int) -> None:
        driver = after_an_epoch(average(nodes), session)
        given = [values(f"n{number}") for number in range(nodes)]
        for how in HOW:
            for name in ("double", "single", "flags", "nan"):
                expected = tree_of(how, [g[name] for g in given])
                if how == "mean" and name == "flags":
                    expected = np.sum([g[name] for g in given], axis=0) / nodes
                found = driver.blob(f"n0:all/{how}/{name}")
                assert found.dtype == expected.dtype
                assert found.tobytes() == expected.tobytes(), (how, name)
            small = driver.blob(f"n0:all/{how}/small")
            assert same(small, getattr(np, how)([g["small"] for g in given], axis=0))
        assert driver.blob("n0:all/sum/list") == [
            tree_of("sum", [g["list"][0] for g in given]),
            sum(g["list"][1] for g in given),
            sum(g["list"][2] for g in given),
        ]
        last = f"n{nodes - 1}"
        assert same(driver.blob("n0:all"), driver.blob(f"{last}:all"))
        assert same(driver.blob("n0:g/double"), driver.blob(f"{last}:g/double"))

    def test_all_copies_read_before_any_writes(self, session: Session) -> None:
        """A reduction of what the copies write, again and again, in a small float."""
        with Job("again", nodes={"t": 5}) as job:
            with job.init, Node("*"):
                Task(values, "node", out={"single": "w"}, name="make")
            with Node("*"):
                Task(double, [{"reduce": "sum", "of": "t_*:w"}], out="w", name="sum")
        driver = Driver(job, session=session).start().epochs(3)
        parts = [values(f"t_{number}")["single"] for number in range(5)]
        for _ in range(3):
            parts = [tree_of("sum", parts) * np.float32(2)] * 5
        for number in range(5):
            assert same(driver.blob(f"t_{number}:w"), parts[number])

    def test_some_nodes_reduce_what_others_have(self, session: Session) -> None:
        """One node reads a reduction over others, and a list beside it."""
        with Job("some", nodes=["server", "t_0", "t_1", "t_2"]) as job:
            with job.init, Node("t_*"):
                Task(values, "node", out={"double": "w"}, name="make")
            with Node("server"):
                Task(keep, [{"reduce": "max", "of": "t_*:w"}, "t_*:w"], out="found", name="take")
            with Node("t_1"):
                Task(keep, [{"reduce": "mean", "of": "t_0:w"}], out="one", name="one")
        driver = after_an_epoch(job, session)
        parts = [values(f"t_{number}")["double"] for number in range(3)]
        assert same(driver.blob("server:found/0"), np.max(parts, axis=0))
        assert same(driver.blob("server:found/1"), parts)
        assert same(driver.blob("t_1:one/0"), parts[0])

    def test_values_that_do_not_fit_are_named(self, session: Session) -> None:
        with Job("fit", nodes=3) as job:
            with job.init, Node("*"):
                Task(first, "node", out="g")
            with Node("*"):
                Task(keep, [{"reduce": "mean", "of": "*:g"}], out="m", name="take")
        driver = Driver(job, session=session).start()
        with pytest.raises(TaskError) as caught:
            driver.epoch()
        assert "n0:g and n1:g cannot be reduced to one value" in caught.value.message
        assert "float64 of shape (3,) and float64 of shape (4,)" in caught.value.message
        assert "task 'take' of group 'epoch'" in caught.value.message

    def test_what_is_no_number_is_named(self, session: Session) -> None:
        with Job("text", nodes=2) as job:
            with job.init, Node("*"):
                Task(text, "node", out="g")
            with Node("n1"):
                Task(keep, [{"reduce": "sum", "of": "*:g"}], out="m", name="take")
        driver = Driver(job, session=session).start()
        with pytest.raises(TaskError, match="n0:g is a str, which has no sum"):
            driver.epoch()

    @pytest.mark.parametrize("nodes", [2, 7])
    def test_each_node_reads_all_others(self, session: Session, nodes: int) -> None:
        """Lists of all nodes, and blobs of one node on the others."""
        with Job("lists", nodes=nodes) as job:
            with job.init, Node("*"):
                Task(values, "node", out={"double": "w"}, name="make")
            with Node("*"):
                Task(keep, ["*:w", "n1:w"], out="got", name="read")
                Task(double, "n0:w", out="w", name="change")
        driver = after_an_epoch(job, session)
        parts = [values(f"n{number}")["double"] for number in range(nodes)]
        for number in range(nodes):
            assert same(driver.blob(f"n{number}:got/0"), parts)
            assert same(driver.blob(f"n{number}:got/1"), parts[1])
            assert same(driver.blob(f"n{number}:w"), parts[0] * 2.0)

    @pytest.mark.parametrize("nodes", [1, 2, 3, 5])
    @pytest.mark.parametrize("threads", [None, 2])
    def test_pipes_average_in_each_batch(
        self, session: Session, nodes: int, threads: int | None
    ) -> None:
        job = averaging(nodes, [8] * nodes, threads=threads, shuffle=False)
        driver = Driver(job, session=session).start().epochs(2)
        w = np.ones(3)
        for _ in range(2):
            for first in range(0, 8, 2):
                batches = [rows_of(f"n{n}", 8)[first : first + 2] for n in range(nodes)]
                g = tree_of("mean", [(x - w).mean(axis=0) for x in batches])
                w = w + 0.1 * g / 2.0
        assert weights(driver, nodes) == [w.tobytes()] * nodes

    @pytest.mark.parametrize("cuts", [[1], [2, 3], [5]])
    def test_a_cut_falls_at_one_batch_on_all(self, session: Session, cuts: list[int]) -> None:
        seconds = self.seconds_of_a_batch
        whole = Driver(averaging(3, [10] * 3, seconds), session=self.make_session()).start()
        parts = Driver(averaging(3, [10] * 3, seconds), session=session).start()
        for _ in range(2):
            whole.epoch()
            done = False
            for batches in cuts:
                done = done or parts.epoch(cut_after(batches))
                if not done:
                    assert len({pipe.batches for pipe in parts.position.pipes.values()}) <= 1
            while not done:
                done = parts.epoch()
            assert weights(parts, 3) == weights(whole, 3)
            assert parts.position.readers == whole.position.readers

    def test_nodes_with_other_numbers_of_batches_are_named(self, session: Session) -> None:
        driver = Driver(averaging(3, [8, 8, 6]), session=session).start()
        before = weights(driver, 3)
        with pytest.raises(DataError) as caught:
            driver.epoch()
        assert caught.value.message == (
            "pipe 'train' reduces over its nodes in each batch, so all need the same batches; "
            "it has 3 batches in this epoch on node 'n2', but 4 on node 'n1'"
        )
        assert weights(driver, 3) == before

    def test_a_limit_makes_the_numbers_equal(self, session: Session) -> None:
        job = averaging(2, [8, 6], batches_per_epoch=3)
        driver = Driver(job, session=session).start().epochs(3)
        one, other = weights(driver, 2)
        assert one == other

    def test_values_of_a_batch_that_do_not_fit_are_named(self, session: Session) -> None:
        with Job("fit", nodes=2) as job:
            with job.setup, Node("*"):
                Task(rows_of, "node", {"count": 4}, out="rows", name="load")
            with Node("*"):
                Pipe(
                    from_={"x": "rows"},
                    batch=2,
                    do=[
                        Task(first, "node", out="g", name="make"),
                        Task(keep, [{"reduce": "sum", "of": "*:g"}], out="m", name="take"),
                    ],
                    name="train",
                )
        driver = Driver(job, session=session).start()
        with pytest.raises(TaskError, match="n0:g and n1:g cannot be reduced") as caught:
            driver.epoch()
        assert "'train/take'" in caught.value.message
        assert "in batch 1" in caught.value.message

    def test_pipes_in_lock_step_beside_other_tasks(self, session: Session) -> None:
        """Each may start only once the others can: a worker may have a single thread."""
        job = averaging(4, [8] * 4)
        with job.init, Node("*"):
            Task(ones, out="v", name="other")
        with job.epoch:
            for name in ("left", "right"):
                with Node("n3"):
                    Task(keep, ["n0:w", "n1:v"], out=f"seen_{name}", name=f"see_{name}")
                with Node("*"):
                    Pipe(
                        from_={"x": "rows"},
                        batch=2,
                        do=[
                            Task(weighted, ["x", "n3:seen_" + name], out="h", name="weighted"),
                            Task(
                                step,
                                {"g": {"reduce": "sum", "of": "*:h"}},
                                update={"w": "v"},
                                name="step",
                            ),
                        ],
                        name=name,
                    )
        alone = Driver(job, session=LocalSession(1)).start().epochs(3)
        driver = Driver(job, session=session).start().epochs(3)
        for number in range(4):
            for blob in ("w", "v"):
                name = f"n{number}:{blob}"
                assert driver.blob(name).tobytes() == alone.blob(name).tobytes()

    def test_a_pipe_that_waits_leaves_the_thread_to_those_it_waits_for(
        self, session: Session
    ) -> None:
        """``late`` on the last node reads what the first one sends behind its own copy."""
        with Job("late", nodes=4) as job:
            with job.setup, Node("*"):
                Task(rows_of, "node", {"count": 4}, out="rows", name="load")
            with job.init, Node("*"):
                Task(ones, out="z")
            with Node("n0"):
                Task(ones, out="y", name="make")
                Task(double, "y", out="y2", name="beside")
            with Node("n3"):
                Task(double, "n0:y", out="z", name="late")
            with Node("*"):
                Pipe(
                    from_={"x": "rows"},
                    batch=2,
                    do=[
                        Task(times, ["x", "z"], out="h", name="times"),
                        Task(keep, [{"reduce": "sum", "of": "*:h"}], out="all", name="take"),
                    ],
                    name="train",
                )
        driver = after_an_epoch(job, session)
        parts = [rows_of(f"n{n}", 4)[2:] * (2.0 if n == 3 else 1.0) for n in range(4)]
        assert same(driver.blob("n1:all/0"), tree_of("sum", parts))
