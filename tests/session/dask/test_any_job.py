"""Any job on any number of workers, however messages are delayed: the top-to-bottom result."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from engine import Driver, cut_after, same
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from oracle import Oracle, Step
from random_nodes import LATE_ALIAS, WAITING_COPY, build, descriptions, names
from random_steps import FIRST, first_values, job_of, steps

from jobrun import CheckpointPolicy, Every
from jobrun.core.position import Position

pytest.importorskip("distributed")

from fake_cluster import FakeCluster

from jobrun.session.dask import group_run
from jobrun.session.dask.session import DaskSession


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that cuts fall everywhere, also into short runs."""
    monkeypatch.setattr(group_run, "_LOOK", 0.0005)


NODES = ("n0", "n1", "n2")
MANY = 200 if os.environ.get("JOBRUN_LONG") else 10


def cut_by_chance(chance: float, seed: int) -> Callable[[], bool]:
    """A ``cut`` that becomes true at some look, and stays so."""
    rng, state = random.Random(seed), [False]

    def cut() -> bool:
        state[0] = state[0] or rng.random() < chance
        return state[0]

    return cut


def check(
    specs: Sequence[Step],
    nodes: Sequence[str],
    seed: int,
    chance: float,
    batches: int | None = None,
) -> None:
    """Two epochs, cut here and there, and gone on with from the position as it is saved.

    They are cut by chance, and after so many ``batches`` too.
    """
    oracle = Oracle(list(specs), {p: first_values(i) for i, p in enumerate(nodes)}, FIRST)
    with FakeCluster(2, delay=0.004, seed=seed) as client:
        session = DaskSession(client, threads=2)
        job = job_of(list(specs), nodes)
        job.checkpoint = CheckpointPolicy(every=Every(batches=batches))
        driver = Driver(job, session=session).start()
        for epoch in (1, 2):
            cuts = 0
            left = None if batches is None else (lambda: batches)
            while not driver.epoch(cut_by_chance(chance if cuts < 6 else 0.0, seed + cuts), left):
                driver.position = Position.from_json(driver.position.to_json())
                cuts += 1
            oracle.epoch(epoch)
            for node in nodes:
                for name in FIRST:
                    found = driver.blob(f"{node}:{name}")
                    assert same(found, oracle.state[node][name]), (epoch, node, name)
            session.end_epoch()
        session.close()


# A key that a pipe adds to a tree of another node stands where the spec has it, there too.
_NEW_KEY = [
    Step(0, ("n0:t", "a", "b"), (), ("a", "b", "n0:t/n0"), "n1", 1, True, ()),
    Step(1, (), (), ("a", "t/x"), "n0", 1, False, ()),
]


@settings(deadline=None, max_examples=MANY)
@given(steps(("n0", "n1", "n2", "n*", "n*"), across=True), st.integers(0, 1000))
@example(_NEW_KEY, 0)
def test_any_job_gives_the_top_to_bottom_result(specs: list[Step], seed: int) -> None:
    check(specs, NODES, seed, 0.0)


def _step(number: int, node: str, reads: tuple[str, ...] = (), outs: tuple[str, ...] = ()) -> Step:
    return Step(number, reads, (), outs, node, 1, False, ())


# Cut between a gathering and its copy: what was gathered must be there when it is gone on with.
_GATHERED = [
    *(_step(number, "n0") for number in range(2)),
    _step(2, "n*"),
    _step(3, "n0", ("t", "n1:a")),
    *(_step(number, "n0") for number in range(4, 7)),
    _step(7, "n*", ("a", "b", "n0:t"), ("t",)),
    _step(8, "n0"),
]


@settings(deadline=None, max_examples=MANY)
@given(steps(("n0", "n1", "n2", "n*"), across=True), st.integers(0, 1000))
@example(_GATHERED, 1)
def test_any_cut_can_be_gone_on_with(specs: list[Step], seed: int) -> None:
    check(specs, NODES, seed, 0.1)


@settings(deadline=None, max_examples=MANY)
@given(
    steps(("n0", "n1", "n2", "n*"), across=True),
    st.integers(0, 1000),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.05, 0.2]),
)
def test_any_cut_of_counted_batches_can_be_gone_on_with(
    specs: list[Step], seed: int, batches: int, chance: float
) -> None:
    check(specs, NODES, seed, chance, batches)


# Objects: which units wait for which shows on the nodes alone.


def blobs_after(
    description: dict[str, Any], seed: int, cuts: Sequence[Callable[[], bool]]
) -> tuple[dict[str, Any], int]:
    """The blobs after two epochs, cut by one of ``cuts`` after the other; and how often."""
    left, count = list(cuts), 0
    with FakeCluster(2, delay=0.002, seed=seed) as client:
        session = DaskSession(client, threads=2)
        driver = Driver(build(description), session=session).start()
        for _ in range(2):
            while not driver.epoch(left.pop(0) if left else lambda: False):
                driver.position = Position.from_json(driver.position.to_json())
                gathered = [key for key in driver.position.tasks if ":gather" in key]
                for key in gathered:
                    assert all(f"n_{i}:{key.partition(':')[2]}" in gathered for i in range(2)), key
                count += 1
            session.end_epoch()
        found = {name: driver.blob(name) for name in names(description)}
        session.close()
    return found, count


def blobs_of_one_process(description: dict[str, Any]) -> dict[str, Any]:
    driver = Driver(build(description), 1).start().epochs(2)
    return {name: driver.blob(name) for name in names(description)}


@pytest.mark.parametrize("tasks", [WAITING_COPY, LATE_ALIAS], ids=["waiting copy", "late alias"])
def test_copies_that_wait_for_users_of_an_object_can_be_cut_anywhere(tasks: dict[str, Any]) -> None:
    wanted = blobs_of_one_process(tasks)
    for place in range(0, 1 << 30, 4):
        found, count = blobs_after(tasks, place, [cut_after(place)])
        assert same(found, wanted), place
        if not count:
            break


@settings(deadline=None, max_examples=MANY, suppress_health_check=[HealthCheck.too_slow])
@given(descriptions, st.integers(0, 1000))
def test_any_job_with_objects_can_be_cut_anywhere(description: dict[str, Any], seed: int) -> None:
    cuts = [cut_by_chance(0.1, seed + k) for k in range(6)]
    found, _ = blobs_after(description, seed, cuts)
    assert same(found, blobs_of_one_process(description))
