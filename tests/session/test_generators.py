"""The global random generators under ``state``: seeded, saved, and apart for each user."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same
from fake_torch import FakeTorch
from live import on_disk

from jobrun.analysis.checks import check
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.errors import BindError, TaskError, ValueRefusedError
from jobrun.model.job import Job, Node, Pipe, Task, data
from jobrun.session.generators import Generators, SlotAdapter
from jobrun.session.local import LocalSession
from jobrun.values.boxes import Value
from jobrun.values.plain import put_back, read_state


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """A module ``torch`` with generators alone."""
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr("jobrun.usercode.requirements.find_spec", lambda name: fake)
    return fake


NAMES = ("rng.python", "rng.numpy", "rng.torch")


def drawn() -> list[float]:
    """One number of each global generator."""
    return [random.gauss(), float(np.random.standard_normal()), sys.modules["torch"].draw()]


def draw(*given: Any) -> Any:
    return np.array(drawn())


def add(total: Any, *given: Any) -> Any:
    return total + np.array(drawn()) + sum(float(np.sum(x)) for x in given)


def noisy(x: Any) -> Any:
    return x + np.random.standard_normal(len(x)) + random.random()


class Rows:
    """Rows that are drawn when they are read."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> float:
        return row + random.random() + sys.modules["torch"].draw()


def iterate() -> Iterator[float]:
    for row in range(10):
        yield row + random.random() + np.random.random()


def zeros() -> Any:
    return np.zeros(3)


def rows() -> Any:
    return np.arange(10.0)


def job_of(nodes: list[str] | None = None, **pipe: Any) -> Job:
    """All kinds of users of the generators; worker processes have no torch."""
    names = NAMES[:2] if "processes" in pipe else NAMES
    sys.modules["torch"].is_drawn = names == NAMES
    job = Job("draws", seed=7, nodes=nodes, state=names)
    node = "*" if nodes else None
    with job.setup:
        Task(rows, out="rows", node=node)
        Task(draw, out="noise", node=node)
    with job.init:
        Task(zeros, out="total", node=node)
        Task(draw, out="first", name="first", node=node)
    with job.epoch:
        do = [
            Task(add, ["total", "x"], out="total", name="add"),
            Task(add, ["total", "noise"], out="total", name="more"),
        ]
        Pipe(**{"from_": {"x": "rows"}, "batch": 2, "name": "train", **pipe}, do=do, node=node)
        Task(add, ["total"], out="total", name="last", node=node)
    return job


def save(driver: Driver, path: Path) -> Path:
    source = driver.session.snapshot()
    assert source is not None
    fields = RecordFields(job="j", position=driver.position)
    found = CheckpointManager(path).save_snapshot(source, fields).path
    source.release()
    return found


def straight(job: Job, path: Path, nodes: list[str] | None, threads: int = 1) -> Any:
    driver = Driver(job, threads).start().epochs(2)
    return on_disk(save(driver, path), nodes or ["main"])


PIPES: dict[str, dict[str, Any]] = {
    "blobs": {},
    "map steps": {"map": [Task(noisy, "x", out="x")]},
    "map steps on threads": {"map": [Task(noisy, "x", out="x")], "threads": 3},
    "map steps in processes": {"map": [Task(noisy, "x", out="x")], "processes": 2},
    "items": {"from_": ["x"], "call": Rows},
    "items, shuffled": {"from_": ["x"], "call": Rows, "shuffle": True, "batches_per_epoch": 3},
    "items in blocks": {"from_": ["x"], "call": Rows, "shuffle": {"buffer": 4}},
    "an iterable": {"from_": ["x"], "call": iterate, "batches_per_epoch": 3},
    "an iterable ahead": {"from_": ["x"], "call": iterate, "ahead": 3, "batches_per_epoch": 4},
}


@pytest.mark.parametrize("nodes", [None, ["a", "b"]])
@pytest.mark.parametrize("kind", PIPES)
def test_a_cut_and_restored_run_draws_the_same(
    tmp_path: Path, kind: str, nodes: list[str] | None
) -> None:
    def job() -> Job:
        return job_of(nodes, **PIPES[kind])

    expected = straight(job(), tmp_path / "straight", nodes)
    assert same(straight(job(), tmp_path / "again", nodes, threads=4), expected)
    driver = Driver(job()).start().epochs(1)
    for number, batches in enumerate([2, 1]):
        driver.epoch(cut=cut_after(batches))
        path = save(driver, tmp_path / f"cut_{number}")
        position = driver.position
        driver.session.close()
        random.seed(number)  # another process has other states
        np.random.seed(number)
        driver = Driver(job())
        driver.run("setup")
        for node in nodes or ["main"]:
            driver.session.load_part(node, path)
        driver.session.take_over()
        driver.position = position
    if driver.position.epochs < 2:
        driver.epochs(1)
    assert same(on_disk(save(driver, tmp_path / "end"), nodes or ["main"]), expected)


def test_nodes_draw_other_numbers_whatever_nodes_there_are(tmp_path: Path) -> None:
    two = straight(job_of(["a", "b"]), tmp_path / "two", ["a", "b"])
    three = straight(job_of(["a", "b", "c"]), tmp_path / "three", ["a", "b", "c"])
    assert same(two["a"], three["a"])
    assert not same(two["a"]["total"], two["b"]["total"])


def test_what_others_draw_meanwhile_is_not_seen(tmp_path: Path) -> None:
    """Another session in the same process, between the epochs of the first."""
    expected = straight(job_of(), tmp_path / "alone", None)
    driver = Driver(job_of()).start().epochs(1)
    other = Driver(job_of(["x", "y"], map=[Task(noisy, "x", out="x")])).start().epochs(1)
    driver.epochs(1)
    assert same(on_disk(save(driver, tmp_path / "end")), expected)
    other.session.close()


def test_a_call_that_is_repeated_draws_the_same(tmp_path: Path) -> None:
    tries: list[int] = []

    def flaky(total: Any) -> Any:
        found = total + np.array(drawn())
        tries.append(0)
        if len(tries) % 3:
            raise ValueError("again")
        return found

    def steady(total: Any) -> Any:
        return total + np.array(drawn())

    ends = []
    for function, retries in ((steady, None), (flaky, 2)):
        job = Job("j", seed=1, state=list(NAMES))
        with job.init:
            Task(zeros, out="total")
        with job.epoch:
            Task(function, "total", out="total", name="flaky", retries=retries)
        driver = Driver(job).start().epochs(2)
        ends.append(on_disk(save(driver, tmp_path / str(retries))))
    assert same(ends[0], ends[1])
    assert len(tries) == 6


def test_a_call_that_was_given_up_does_not_keep_the_generators() -> None:
    job = Job("j", state=list(NAMES))
    with job.epoch:
        Task(threading.Event().wait, with_={"timeout": 20}, out="x", name="hangs", timeout=0.05)
    with pytest.raises(TaskError, match="exceeded its timeout"):
        Driver(job).start().epochs(1)
    began = time.monotonic()
    Driver(job_of()).start().epochs(1)
    assert time.monotonic() - began < 10


def test_a_seed_of_its_own_for_each_generator_and_place() -> None:
    both = Generators(NAMES, 3, ["a"])
    one = Generators(["rng.numpy"], 3, ["a"])
    with both.using(both.of_node("a")):
        found = np.random.random()
    with one.using(one.of_node("a")):
        assert np.random.random() == found
    with both.using(both.slot("other")):
        assert np.random.random() != found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_used", [False, True])
def test_a_state_is_read_and_restored_while_it_is_in_use(name: str, is_used: bool) -> None:
    generators = Generators(NAMES, 3, ["a"])
    slot, adapter = generators.of_node("a"), SlotAdapter(name)
    if is_used:
        with generators.using(slot):
            drawn()
    items: dict[str, Value] = {"": read_state(adapter, slot)}
    with generators.using(slot):
        first = drawn()
    put_back(adapter, slot, items, "")
    with generators.using(slot):
        second = drawn()
    number = NAMES.index(name)
    assert [a == b for a, b in zip(first, second, strict=True)] == [i == number for i in range(3)]


@pytest.mark.parametrize("place", [-50_000_000, 625])
def test_a_forged_state_of_the_generator_of_numpy_is_refused(place: int) -> None:
    """numpy itself would read outside of its numbers, and end the process."""
    slot, adapter = Generators(NAMES, 7, ["a"]).of_node("a"), SlotAdapter("rng.numpy")
    state: Any = adapter.state(slot)
    forged = {**state, "state": {**state["state"], "pos": place}}
    with pytest.raises(ValueRefusedError, match="no place"):
        adapter.restore(slot, forged)


def test_devices_that_are_used_later_are_seeded(torch: FakeTorch) -> None:
    generators = Generators(["rng.torch"], 3, ["a", "b"])
    with generators.using(generators.of_node("a")):
        torch.cuda.start()
        first = torch.cuda.draw()
    with generators.using(generators.of_node("b")):
        other = torch.cuda.draw()
    again = Generators(["rng.torch"], 3, ["a"])
    with again.using(again.of_node("a")):
        assert torch.cuda.draw() == first
    with generators.using(generators.of_node("a")):
        second = torch.cuda.draw()
    assert len({first, other, second}) == 3


def test_torch_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.usercode.requirements.find_spec", lambda name: None)
    with pytest.raises(BindError, match=r"'state' names 'rng.torch', but torch is not installed"):
        Driver(job_of(), session=LocalSession(1))


def test_joined_sources_of_functions_are_refused() -> None:
    job = Job("j", state=["rng.numpy"])
    with job.epoch, Node("main"):
        sources = [data(["x"], call=iterate), data(["y"], call=Rows)]
        Pipe(zip=sources, do=[Task(noisy, "x", out="n")], name="odd")
    (problem,) = check(job)
    assert "pipe 'odd' joins a source that" in problem.message
    assert "could not be repeated on a resume" in problem.message
