"""LocalSession: any schedule of any job gives the bits of running it from top to bottom."""

from __future__ import annotations

import copy
import ctypes
import os
import threading
import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Oracle, Step
from random_steps import FIRST, first_values, job_of, steps

from jobrun.core.position import Position
from jobrun.errors import TaskError, Where
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession, default_threads
from jobrun.values.views import view

LONG = bool(os.environ.get("JOBRUN_LONG"))

# Random jobs.


def check_against_oracle(
    specs: list[Step], threads: int, cuts: Sequence[int], nodes: Sequence[str] = ()
) -> None:
    """Two epochs, cut here and there; earlier epochs stay as they were in whoever kept them."""
    driver = Driver(job_of(specs, nodes), threads).start()
    places = nodes or ("main",)
    oracle = Oracle(specs, {p: first_values(i) for i, p in enumerate(places)}, FIRST)
    left, kept = list(cuts), []
    for epoch in (1, 2):
        while not driver.epoch(cut_after(left.pop()) if left else lambda: False):
            pass
        oracle.epoch(epoch)
        found = {p: {n: _get(driver, p, n, nodes) for n in FIRST} for p in places}
        for place in places:
            for name in FIRST:
                assert same(found[place][name], oracle.state[place][name]), (place, name)
        kept.append((found, copy.deepcopy(found), driver.session.snapshot()))
        driver.session.end_epoch()
    for views, copies, token in kept:
        assert same(views, copies)
        for place in places:
            for name in FIRST:
                assert same(view(token.blobs[place][name]), copies[place][name])


def _get(driver: Driver, node: str, name: str, nodes: Sequence[str]) -> Any:
    return driver.blob(f"{node}:{name}" if nodes else name)


@settings(deadline=None, max_examples=300 if LONG else 40)
@given(steps(), st.sampled_from([1, 2, 8]), st.lists(st.integers(0, 8), max_size=3))
def test_any_schedule_gives_the_top_to_bottom_result(
    specs: list[Step], threads: int, cuts: list[int]
) -> None:
    check_against_oracle(specs, threads, cuts)


@settings(deadline=None, max_examples=300 if LONG else 40)
@given(
    steps(("n0", "n1", "n*", "n*")),
    st.sampled_from([1, 2, 8]),
    st.lists(st.integers(0, 8), max_size=3),
)
def test_any_schedule_over_nodes_gives_the_top_to_bottom_result(
    specs: list[Step], threads: int, cuts: list[int]
) -> None:
    """Copies of a task read all before any writes."""
    check_against_oracle(specs, threads, cuts, ("n0", "n1"))


def test_leaves_written_in_parallel_are_in_the_order_of_the_spec() -> None:
    names = [f"k{i}" for i in range(16)]
    barrier = threading.Barrier(8, timeout=120)

    def make(number: int) -> int:
        barrier.wait()
        time.sleep(0.001 * (number % 3))
        return number

    with Job("j") as job:
        for number in range(16):
            Task(lambda n=number: make(n), out=f"tree/{names[number]}")
        Task(lambda tree: list(tree), "tree", out="order")
    driver = Driver(job, 8).start()
    driver.epoch()
    assert driver.blob("order") == names


# Nodes.


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("how", ["out", "update"])
def test_the_mean_over_nodes_is_the_same_on_each(threads: int, how: str) -> None:
    def mean(all_w: list[Any], w: Any = None) -> Any:
        found = np.mean(all_w, axis=0)
        if w is None:
            return found
        time.sleep(0.001)
        w[...] = found
        return None

    job = Job("j", nodes={f"trainer_{i}": {"k": i} for i in range(4)})
    with job.init, Node("trainer_*"):
        Task(lambda k: np.full(100, k + 0.1), "k", out="w")
    with job.epoch, Node("trainer_*"):
        if how == "out":
            Task(mean, {"all_w": "trainer_*:w"}, out="w")
        else:
            Task(mean, {"all_w": "trainer_*:w"}, update={"w": "w"})
    driver = Driver(job, threads).start().epochs(2)
    found = [driver.blob(f"trainer_{i}:w") for i in range(4)]
    assert all(same(f, found[0]) for f in found)
    assert same(found[0], np.mean([np.full(100, i + 0.1) for i in range(4)], axis=0))


def test_each_copy_gets_a_list_and_views_of_its_own() -> None:
    given: list[list[Any]] = []
    job = Job("j", nodes=3)
    with job.init, Node("*"):
        Task(lambda: np.zeros(3), out="w")
    with job.epoch, Node("*"):
        Task(given.append, "*:w")
    Driver(job, 2).start().epoch()
    objects = [each for ws in given for each in (ws, *ws)]
    assert len({id(each) for each in objects}) == len(objects) == 12


def test_nodes_never_see_each_others_blobs() -> None:
    job = Job("j", nodes={"a": {"k": 1}, "b": {"k": 10}})
    with job.init, Node("*"):
        Task(lambda k: k, "k", out="total")
    with job.epoch, Node("*"):
        Task(lambda total, k: total + k, ["total", "k"], out="total")
    driver = Driver(job, 2).start().epochs(3)
    assert driver.blob("a:total") == 4
    assert driver.blob("b:total") == 40
    assert driver.session.names() == ["a:total", "b:total"]


# Memory.


def test_updates_stay_in_place_over_epochs_and_are_copied_once_for_a_snapshot() -> None:
    places: list[int] = []

    def step(w: Any) -> None:
        w += 1
        places.append(w.__array_interface__["data"][0])

    job = Job("j")
    with job.init:
        Task(lambda: np.zeros(100_000), out="w")
    with job.epoch:
        Task(step, update="w", name="first")
        Task(step, update="w", name="second")
    driver = Driver(job, 2).start().epochs(2)
    token = driver.session.snapshot()
    driver.epochs(1)
    token.release()
    del token
    driver.epochs(2)
    assert len(set(places[:4])) == 1, "nobody else holds it"
    assert places[4] != places[3], "the snapshot holds it"
    assert len(set(places[4:])) == 1


def test_a_view_that_a_task_kept_does_not_change() -> None:
    kept: list[Any] = []

    def step(w: Any) -> None:
        w += 1

    job = Job("j")
    with job.init:
        Task(lambda: np.zeros(3), out="w")
    with job.epoch:
        Task(lambda w: kept.append(w), "w", name="keep")
        Task(step, update="w")
    Driver(job, 2).start().epochs(3)
    assert [k[0] for k in kept] == [0, 1, 2]


# Threads.


def test_how_many_threads() -> None:
    assert LocalSession(3).threads == 3
    assert LocalSession().threads == default_threads() >= 1
    assert LocalSession(1).description == "local, 1 thread"
    assert LocalSession(2).description == "local, 2 threads"
    for number in (0, -1):
        with pytest.raises(ValueError, match="1 or more"):
            LocalSession(number)


def test_the_check_of_inputs_names_the_culprit_and_no_bystander() -> None:
    """Others read the same blob meanwhile."""

    def poke(w: Any) -> None:
        time.sleep(0.002)
        ctypes.memset(w.__array_interface__["data"][0], 1, 1)
        time.sleep(0.01)

    def look(w: Any) -> float:
        time.sleep(0.004)
        return float(w.sum())

    for _ in range(3):
        job = Job("j")
        with job.init:
            Task(lambda: np.zeros(3), out="w")
        with job.epoch:
            for i in range(4):
                Task(look, "w", out=f"s{i}", name=f"look{i}")
            Task(poke, "w", name="poke")
            Task(look, "w", out="s9", name="look9")
        driver = Driver(job, 8, check_inputs=True).start()
        with pytest.raises(TaskError, match=r"task 'poke'.*changed one of its inputs"):
            driver.epoch()


# A session is used again.


def simple(start: int = 0) -> Job:
    job = Job("j")
    with job.init:
        Task(lambda: start, out="n")
    with job.epoch:
        Task(lambda n: n + 1, "n", out="n")
    return job


def test_one_session_runs_one_job_after_another() -> None:
    session = LocalSession(2)
    assert Driver(simple(), session=session).start().epochs(2).blob("n") == 2
    session.close()
    assert session.blob("n") == 2, "the blobs stay readable"
    assert Driver(simple(10), session=session).start().epochs(1).blob("n") == 11


def test_a_closed_session_says_so() -> None:
    driver = Driver(simple()).start()
    driver.session.close()
    with pytest.raises(RuntimeError, match="closed"):
        driver.epoch()


def test_a_blob_whose_update_failed_is_not_half_readable() -> None:
    def fail(w: Any) -> None:
        w += 1
        raise ValueError

    job = Job("j")
    with job.init:
        Task(lambda: {"x": np.zeros(3)}, out="w")
        Task(lambda: 1, out="n")
    with job.epoch:
        Task(lambda w: fail(w["x"]), update="w", name="fail")
    driver = Driver(job).start()
    with pytest.raises(TaskError):
        driver.epoch()
    with pytest.raises(TaskError, match="'w' was being updated"):
        driver.blob("w")
    assert driver.blob("n") == 1


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"a": 1}, "a dict of 1"),
        ((1.0, 2.0), "a tuple of 2"),
        ({1, 2}, "a set"),
        (1j, "a complex"),
        ("high", "a str"),
        (np.zeros(3), "an array of shape (3,)"),
        (np.array(["high"]), "of dtype <U4"),
        (np.datetime64("2020-01-01"), "of dtype datetime64[D]"),
        (np.datetime64("2020-01-01", "ns"), "of dtype datetime64[ns]"),
        (np.timedelta64(3, "ns"), "of dtype timedelta64[ns]"),
        (2**64, "an integer of more than 64 bits"),
    ],
)
def test_a_metric_that_is_no_number_is_told_as_what_it_is(value: Any, what: str) -> None:
    job = Job("j", metrics={"loss": "min"})
    with job.epoch:
        Task(lambda: value, out="loss", name="t")
    job.stop(epochs=1)
    job.marks["metrics:loss"] = Where("job.yaml", 9, 12)
    driver = Driver(job).start()
    assert driver.epoch()
    with pytest.raises(TaskError) as caught:
        driver.session.scalars(["loss"])
    assert caught.value.message == f"blob 'loss' must be a single number, but is {what}"
    part = {"a dict of 1": "loss/a", "a tuple of 2": "loss/0"}.get(what)
    assert caught.value.hint.endswith(f"name too: {part}" if part else "of one element")
    assert str(caught.value.where) == "job.yaml:9:12"


def test_a_metric_of_one_element_is_not_silently_that_of_the_last_batch() -> None:
    """A number would be the mean over the epoch."""

    def job_of(step: Task, **pipe: Any) -> Job:
        job = Job("j", metrics={"loss": "min"})
        with job.init:
            Task(lambda: np.zeros(1), out="loss", name="start")
        with job.epoch:
            Pipe(call=lambda: np.arange(4.0), from_=["x"], do=[step], name="p", **pipe)
        return job

    def scalars(job: Job) -> Any:
        driver = Driver(job).start()
        assert driver.epoch()
        return driver.session.scalars(["loss"])["loss"]

    with pytest.raises(TaskError, match=r"of shape \(1,\), so what pipe 'p' keeps") as caught:
        scalars(job_of(Task(lambda x: x, "x", out="loss")))
    assert "reduce: {loss: last}" in caught.value.hint
    assert scalars(job_of(Task(lambda x: x, "x", out="loss"), reduce={"loss": "last"})) == 3
    assert scalars(job_of(Task(lambda x: x[0], "x", out="loss"))) == 1.5
    assert scalars(job_of(Task(lambda x, loss: loss + x, ["x", "loss"], out="loss"))) == 6


def test_the_functions_of_a_python_job_need_no_names() -> None:
    session = LocalSession(1)
    job = simple()
    job.init.named()
    session.open(job, Places())
    assert session.names() == []
    with pytest.raises(TaskError, match="no blob 'n'"):
        session.blob("n")
    assert session.scalars(["n"]) == {}
    assert Control().cut() is False
    assert Position().at_boundary


# Context variables.

MODE: ContextVar[str] = ContextVar("mode", default="warn")
"""A setting of a library, as that of ``np.seterr``."""


def test_what_is_set_where_modules_are_imported_holds_on_all_threads() -> None:
    """In tasks and in ``map`` steps that run ahead; ``processes`` import the modules themselves."""
    both = threading.Barrier(2)
    seen: set[tuple[str, str]] = set()

    def look() -> None:
        both.wait(10)
        seen.add((threading.current_thread().name, MODE.get()))

    def look_ahead(x: Any) -> Any:
        seen.add((threading.current_thread().name, MODE.get()))
        return x

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4), out="rows", name="make")
    with job.epoch:
        Task(look, name="a")
        Task(look, name="b")
        step = Task(look_ahead, "x", out="x")
        Pipe({"x": "rows"}, ahead=1, map=[step], do=[Task(len, "x", out="n")], name="p")
    token = MODE.set("raise")
    driver = Driver(job, 2)
    MODE.reset(token)
    driver.start().epochs(1)
    assert seen == {(name, "raise") for name in ("jobrun-0", "jobrun-1", "jobrun-ahead-0")}
