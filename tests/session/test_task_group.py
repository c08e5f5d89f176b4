"""A compiled group: rare tasks, gatherings, opaque values, what is said and what is refused."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.events import GroupFinished, GroupStarted, TaskFailed, TaskFinished
from jobrun.core.position import Position, ReaderState
from jobrun.errors import TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Node, Task
from jobrun.session.base import Control


class Handle:
    """An opaque value that notices two users at once, and in which order they came."""

    def __init__(self) -> None:
        self.users: list[str] = []
        self._busy = threading.Lock()

    def use(self, name: str) -> None:
        assert self._busy.acquire(blocking=False), f"{name} came while another was there"
        self.users.append(name)
        time.sleep(0.002)
        self._busy.release()


def user(name: str) -> Callable[[Handle], None]:
    def use(handle: Any) -> None:
        (handle["handle"] if isinstance(handle, dict) else handle).use(name)

    return use


# Tasks that run in some epochs.


@pytest.mark.parametrize("every", [2, "k"])
def test_a_task_may_run_every_few_epochs(every: Any) -> None:
    job = Job("j", vars={"k": 2})
    with job.init:
        Task(list, out="ran", name="begin")
    with job.epoch:
        Task(lambda ran, epoch: [*ran, epoch], ["ran", "epoch"], out="ran", every=every)
    assert Driver(job).start().epochs(5).blob("ran") == [2, 4]


@pytest.mark.parametrize("threads", [1, 8])
def test_a_task_that_is_left_out_runs_neither_at_once_nor_later(threads: int) -> None:
    """Though what it waits for is run."""
    ran: list[tuple[str, int]] = []
    job = Job("j")
    with job.epoch:
        Task(lambda epoch: epoch, "epoch", out="x", name="make")
        Task(lambda x: ran.append(("rare", x)), "x", every=2)
        Task(lambda x: ran.append(("always", x)), "x")
    Driver(job, threads).start().epochs(4)
    assert sorted(ran) == [("always", e) for e in (1, 2, 3, 4)] + [("rare", 2), ("rare", 4)]


@pytest.mark.parametrize("threads", [2, 8])
def test_a_task_that_is_left_out_still_stands_between_others(threads: int) -> None:
    """``late`` waits for ``slow`` by way of ``rare`` alone, which rewrites the blob."""

    def slow(x: int) -> int:
        time.sleep(0.01)
        return x

    job = Job("j")
    with job.init:
        Task(lambda: 0, out="x", name="begin")
    with job.epoch:
        Task(slow, "x", out="seen", name="slow")
        Task(lambda epoch: -epoch, "epoch", out="x", name="rare", every=2)
        Task(lambda epoch: epoch * 10, "epoch", out="x", name="late")
        Task(lambda seen, x: (seen, x), ["seen", "x"], out="pair", name="look")
    with job.exit:
        Task(lambda pair: None, "pair")
    driver = Driver(job, threads).start()
    pairs = [driver.epochs(1).blob("pair") for _ in range(4)]
    assert pairs == [(0, 10), (10, 20), (20, 30), (30, 40)]


def test_a_reader_does_not_run_before_the_writer_in_front_of_a_rare_one() -> None:
    def make(epoch: int) -> int:
        time.sleep(0.01)
        return epoch

    job = Job("j")
    with job.epoch:
        Task(make, "epoch", out="x")
        Task(lambda x: -x, "x", out="x", name="flip", every=2)
        Task(lambda x: x, "x", out="y", name="read")
    with job.exit:
        Task(lambda y: None, "y")
    driver = Driver(job, 4).start()
    assert [driver.epochs(1).blob("y") for _ in range(4)] == [1, -2, 3, -4]


def test_tasks_that_are_left_out_count_as_finished() -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: None, name="rare", every=3)
        Task(lambda: None, name="always")
    driver = Driver(job).start()
    assert driver.run("epoch").tasks == ("rare", "always")


# Copies over nodes.


def total(ws: list[float]) -> float:
    return sum(ws)


def replicated(function: Callable[..., Any], every: Any = None) -> Job:
    job = Job("j", nodes={f"n{i}": {"k": i, "rare": 1 + i % 2} for i in range(4)})
    with job.init, Node("*"):
        Task(lambda k: float(k), "k", out="w", name="begin")
    with job.epoch, Node("*"):
        Task(function, {"ws": "*:w"}, out="w", name="mean", every=every)
    return job


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_cut_never_leaves_some_copies_behind(threads: int) -> None:
    """They would read what the others have written meanwhile."""
    ran = threading.Event()

    def say(ws: list[float]) -> float:
        ran.set()
        return sum(ws)

    driver = Driver(replicated(say), threads).start()
    reached = driver.run("epoch", Control(cut=ran.is_set))
    assert len(reached.tasks) == 4
    assert [driver.blob(f"n{i}:w") for i in range(4)] == [6.0] * 4


@pytest.mark.parametrize("threads", [1, 8])
@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(0, 12), max_size=4))
def test_cuts_between_replicated_tasks_change_nothing(threads: int, cuts: list[int]) -> None:
    job = replicated(total)
    with job.epoch, Node("*"):
        Task(lambda ws: max(ws) - min(ws) + 1, {"ws": "*:w"}, out="w", name="range", after="mean")
        Task(lambda w, k: w * 2 + k, ["w", "k"], out="w", name="double")
    whole = Driver(job, threads).start().epochs(2)
    parts = Driver(job, threads).start()
    left = list(cuts)
    for _ in range(2):
        while not parts.epoch(cut_after(left.pop()) if left else lambda: False):
            pass
        parts.session.end_epoch()
    names = [f"n{i}:w" for i in range(4)]
    assert [parts.blob(n) for n in names] == [whole.blob(n) for n in names]


def test_copies_that_are_left_out_gather_nothing() -> None:
    """``every`` may be a var of each node."""
    driver = Driver(replicated(total, every="rare")).start()
    assert driver.epoch()
    assert [driver.blob(f"n{i}:w") for i in range(4)] == [6.0, 1.0, 6.0, 3.0]
    assert driver.epoch()
    assert [driver.blob(f"n{i}:w") for i in range(4)] == [16.0] * 4


def test_a_finished_replicated_task_is_not_gathered_again() -> None:
    """Its inputs may be gone."""
    job = Job("j", nodes=["a", "b"])
    with job.epoch, Node("*"):
        Task(lambda: 1, out="w", name="make")
        Task(sum, ["*:w"], out="w", name="total")
    driver = Driver(job).start()
    done = tuple(u.key for u in driver.plans["epoch"].units if not u.gathers)
    driver.position = Position(0, done)
    assert driver.run("epoch").tasks == done


# Opaque values.


@pytest.mark.parametrize("threads", [1, 8])
def test_users_of_an_opaque_blob_of_setup_take_turns_in_the_order_of_the_spec(threads: int) -> None:
    job, names = Job("j"), [f"u{i}" for i in range(6)]
    with job.setup:
        Task(Handle, out="handle")
    with job.epoch:
        for name in names:
            Task(user(name), "handle", name=name)
    driver = Driver(job, threads).start().epochs(3)
    assert driver.blob("handle").users == names * 3


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("inside", [False, True])
def test_users_of_an_opaque_blob_made_in_the_epoch_take_turns(threads: int, inside: bool) -> None:
    job, names = Job("j"), [f"u{i}" for i in range(6)]
    made: list[Handle] = []

    def make() -> Any:
        made.append(Handle())
        return {"handle": made[-1], "n": 1} if inside else made[-1]

    with job.epoch:
        Task(make, out="tree" if inside else "handle", name="make")
        for name in names:
            Task(user(name), "tree" if inside else "handle", name=name)
    Driver(job, threads).start().epochs(3)
    assert [h.users for h in made] == [names] * 3


def test_an_update_of_an_opaque_blob_takes_its_turn() -> None:
    job = Job("j")
    with job.epoch:
        Task(Handle, out="handle")
        Task(user("a"), "handle", name="a")
        Task(user("b"), update="handle", name="b")
        Task(user("c"), "handle", name="c")
        Task(lambda handle: list(handle.users), "handle", out="users", name="list")
    with job.exit:
        Task(lambda users: None, "users")
    assert Driver(job, 8).start().epochs(2).blob("users") == ["a", "b", "c"]


def test_users_take_turns_where_after_turns_the_order_of_the_spec_around() -> None:
    job = Job("j")
    made: list[Handle] = []

    def make() -> Handle:
        made.append(Handle())
        return made[-1]

    with job.epoch:
        Task(make, out="handle", name="make")
        Task(user("a"), "handle", name="a", after="b")
        Task(user("b"), "handle", name="b")
        Task(user("c"), "handle", name="c")
    Driver(job, 8).start().epochs(3)
    assert [h.users for h in made] == [["b", "a", "c"]] * 3


@pytest.mark.parametrize("threads", [1, 4])
def test_a_user_that_is_left_out_holds_nobody_up(threads: int) -> None:
    made: list[Handle] = []

    def make() -> Handle:
        made.append(Handle())
        return made[-1]

    job = Job("j")
    with job.epoch:
        Task(make, out="handle", name="make")
        Task(user("a"), "handle", name="a")
        Task(user("rare"), "handle", name="rare", every=2)
        Task(user("b"), "handle", name="b")
    Driver(job, threads).start().epochs(2)
    assert [h.users for h in made] == [["a", "b"], ["a", "rare", "b"]]


def test_a_blob_may_be_opaque_in_some_epochs_only() -> None:
    made: list[Handle] = []

    def make(epoch: int) -> Any:
        made.append(Handle())
        return {"handle": made[-1]} if epoch % 2 else {"handle": None}

    def look(tree: dict[str, Any], name: str) -> None:
        if tree["handle"] is not None:
            tree["handle"].use(name)

    job = Job("j")
    with job.epoch:
        Task(make, "epoch", out="x", name="first")
        for name in ("a", "b"):
            Task(lambda x, n=name: look(x, n), "x", name=name)
        Task(lambda epoch: make(epoch + 1), "epoch", out="x", name="second")
        for name in ("c", "d"):
            Task(lambda x, n=name: look(x, n), "x", name=name)
    Driver(job, 8).start().epochs(4)
    used = [h.users for h in made if h.users]
    assert used == [["a", "b"], ["c", "d"]] * 2


# What cannot be saved.


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (lambda: object(), "object"),
        (lambda: np.array([{}], object), "Python objects"),
        (lambda: {"deep": [np.zeros(1, np.longdouble)]}, "dtype"),
    ],
)
@pytest.mark.parametrize("group", ["init", "epoch"])
def test_what_persists_must_be_storable(group: str, value: Callable[[], Any], what: str) -> None:
    where = Where("job.yaml", 5, 3)
    job = Job("j")
    with job.groups[group]:
        Task(value, out="w", name="make", marks={"out:w": where})
    with job.exit:
        Task(lambda w: None, "w")
    driver = Driver(job)
    driver.run("setup")
    with pytest.raises(ValueRefusedError, match="persists, but cannot be saved") as caught:
        driver.run(group)
    assert f"task 'make' of group '{group}'" in caught.value.message
    assert what in caught.value.message
    assert caught.value.where == where


def test_scratch_may_be_anything() -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: np.array([{}, None], object), out="x", name="make")
        Task(lambda x: len(x), "x", out="n")
    driver = Driver(job).start()
    driver.epoch()
    assert driver.blob("n") == 2


# What is said.


def test_a_group_is_said_when_it_starts_and_ends_with_its_slowest_tasks() -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: time.sleep(0.02), name="slow")
        Task(lambda: None, name="quick")
    driver = Driver(job).start().epochs(1)
    said = [e for e in driver.events if getattr(e, "group", "") == "epoch"]
    assert said[0] == GroupStarted("epoch", 1, 2)
    assert isinstance(said[-1], GroupFinished)
    assert (said[-1].epoch, said[-1].tasks) == (1, 2)
    assert [name for name, _ in said[-1].slowest] == ["slow", "quick"]


def test_a_task_that_does_not_run_in_an_epoch_is_not_among_its_slowest() -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: None, name="each")
        Task(lambda: None, name="rare", every=2)
    driver = Driver(job).start().epochs(2)
    ended = [e for e in driver.events if isinstance(e, GroupFinished) and e.group == "epoch"]
    assert [{name for name, _ in e.slowest} for e in ended] == [{"each"}, {"each", "rare"}]


def test_tasks_are_said_if_they_are_slow_or_if_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("j")
    with job.epoch:
        Task(lambda: None, name="t")
    driver = Driver(job).start().epochs(1)
    assert not any(isinstance(e, TaskFinished) for e in driver.events)
    driver.run("epoch", Control(report=driver.events.append, every_task=True))
    (said,) = (e for e in driver.events if isinstance(e, TaskFinished))
    assert (said.group, said.epoch, said.task, said.node) == ("epoch", 2, "t", "main")
    monkeypatch.setattr("jobrun.session.task_group._SLOW_SECONDS", -1.0)
    driver.epochs(1)
    assert sum(isinstance(e, TaskFinished) for e in driver.events) == 2


@pytest.mark.parametrize(
    ("group", "epochs", "told"),
    [("setup", 0, 0), ("init", 0, 0), ("epoch", 0, 1), ("epoch", 4, 5), ("exit", 4, 4)],
)
def test_the_epoch_that_tasks_are_told(group: str, epochs: int, told: int) -> None:
    seen: list[int] = []
    job = Job("j")
    with job.groups[group]:
        Task(lambda epoch: seen.append(epoch), "epoch")
    driver = Driver(job)
    driver.position = Position(epochs)
    driver.run(group)
    assert seen == [told]


def test_readers_of_other_groups_are_left_alone() -> None:
    job = Job("j")
    with job.exit:
        Task(lambda: None)
    driver = Driver(job)
    driver.position = Position(3, readers={"p": ReaderState(2, 1)})
    assert driver.run("exit").readers == driver.position.readers


def test_a_failing_task_is_named_with_its_node() -> None:
    def fail(k: int) -> None:
        if k == 2:
            raise ValueError("bad")

    job = Job("j", nodes={f"n{i}": {"k": i} for i in range(3)})
    with job.epoch, Node("*"):
        Task(fail, "k", name="t")
    with pytest.raises(TaskError, match="task 't' of group 'epoch' on node 'n2' failed"):
        Driver(job).start().epoch()


def test_of_two_tasks_that_fail_the_first_of_the_spec_is_the_error_and_both_are_said() -> None:
    """Not the faster one: with one thread only the first would have run."""

    def failed() -> list[str]:
        return [event.task for event in driver.events if isinstance(event, TaskFailed)]

    def slow() -> None:
        end = time.monotonic() + 120
        while not failed() and time.monotonic() < end:
            time.sleep(0.001)
        raise ValueError("slow")

    def fast() -> None:
        raise ValueError("fast")

    job = Job("j")
    with job.epoch:
        Task(slow)
        Task(fast)
    driver = Driver(job, threads=2).start()
    with pytest.raises(TaskError, match="task 'slow' of group 'epoch' failed: ValueError: slow"):
        driver.epoch()
    assert failed() == ["fast", "slow"]


def test_the_cost_of_a_blob_does_not_grow_with_their_number() -> None:
    """Eight times as many blobs that persist: 64 times the calls, if each looked at all."""

    def calls(count: int) -> int:
        with Job("many") as job, job.init:
            for i in range(count):
                Task(float, out=f"b{i}", name=f"t{i}")
        driver = Driver(job, threads=1)
        counted = itertools.count()

        def note(frame: object, event: str, argument: object) -> None:
            next(counted)

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            driver.start()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return next(counted)

    few = calls(250)
    assert few > 250
    assert calls(2000) < 16 * few
