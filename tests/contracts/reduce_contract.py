"""What every session must obey where nodes exchange blobs, and reduce them to one value."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from engine import Driver, same

from jobrun.errors import TaskError
from jobrun.model.job import Job, Node, Task
from jobrun.session.base import Session

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


def after_an_epoch(job: Job, session: Session) -> Driver:
    """A driver of the job, with the scratch of its first epoch."""
    driver = Driver(job, session=session).start()
    assert driver.epoch()
    return driver


class ReduceContract:
    """``make_session`` returns a new session."""

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
