"""Opaque objects: their users take turns by object, under all names, and whatever is cut."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine import Driver, cut_after, same
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from random_nodes import LATE_ALIAS, WAITING_COPY, build, descriptions, names

from jobrun.core.position import Position
from jobrun.errors import TaskError, Where
from jobrun.model.job import Job, Node, Task

LONG = bool(os.environ.get("JOBRUN_LONG"))


class Tool:
    """An opaque value that tells in which order it was used, and notices two users at once."""

    def __init__(self) -> None:
        self.used = ""
        self._busy = threading.Lock()

    def use(self, name: str, seconds: float = 0.0) -> None:
        assert self._busy.acquire(blocking=False), f"{name} came while another was there"
        time.sleep(seconds)
        self.used += name
        self._busy.release()


def user(name: str, seconds: float = 0.0) -> Callable[[Any], None]:
    return lambda tool: tool.use(name, seconds)


def meeting(both: threading.Barrier) -> Callable[..., None]:
    def meet(*given: Any) -> None:
        both.wait(5)

    return meet


# Two names of one object.


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_users_of_one_object_under_two_names_of_setup_take_turns(threads: int) -> None:
    def make() -> tuple[Tool, Tool]:
        tool = Tool()
        return tool, tool

    job = Job("j")
    with job.setup:
        Task(make, out=["p", "q"])
    with job.epoch:
        Task(user("A", 0.02), "p", name="A")
        Task(user("B"), "q", name="B")
        Task(user("C"), "p", name="C")
    driver = Driver(job, threads).start().epochs(2)
    assert driver.blob("p").used == driver.blob("q").used == "ABCABC"


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("inside", [False, True])
def test_an_alias_that_a_task_makes_of_its_input_is_the_same_object(
    threads: int, inside: bool
) -> None:
    """Users of ``tool`` that come after the alias in the spec wait for those of the alias."""
    job = Job("j")
    with job.setup:
        Task(Tool, out="tool")
    with job.epoch:
        Task(user("A", 0.01), "tool", name="A")
        Task(lambda tool: {"t": tool} if inside else tool, "tool", out="alias", name="same")
        Task(user("B", 0.02), "alias/t" if inside else "alias", name="B")
        Task(user("C"), "tool", name="C")
        Task(user("D"), "alias/t" if inside else "alias", name="D")
    driver = Driver(job, threads).start().epochs(3)
    assert driver.blob("tool").used == "ABCD" * 3


@pytest.mark.parametrize("threads", [1, 8])
def test_an_alias_of_an_alias_made_in_the_epoch(threads: int) -> None:
    made: list[Tool] = []

    def make() -> Tool:
        made.append(Tool())
        return made[-1]

    job = Job("j")
    with job.epoch:
        Task(make, out="p", name="make")
        Task(lambda p: p, "p", out="q", name="first")
        Task(user("A", 0.02), "p", name="A")
        Task(lambda q: q, "q", out="r", name="second")
        Task(user("B"), "r", name="B")
        Task(user("C"), "p", name="C")
        Task(user("D"), "q", name="D")
    Driver(job, threads).start().epochs(2)
    assert [tool.used for tool in made] == ["ABCD"] * 2


@pytest.mark.parametrize("threads", [1, 8])
def test_one_object_on_several_nodes(threads: int) -> None:
    shared = Tool()
    job = Job("j", nodes=["a", "b"])
    with job.setup, Node("*"):
        Task(lambda: shared, out="tool", name="make")
    with job.epoch:
        Task(user("A", 0.02), "tool", name="A", node="a")
        Task(user("B"), "tool", name="B", node="b")
        Task(user("C"), "tool", name="C", node="a")
    Driver(job, threads).start().epochs(2)
    assert shared.used == "ABCABC"


@pytest.mark.parametrize("threads", [1, 8])
def test_a_bound_method_is_a_name_of_its_object(threads: int) -> None:
    def make() -> tuple[Tool, Any]:
        tool = Tool()
        return tool, tool.use

    job = Job("j")
    with job.setup:
        Task(make, out=["tool", "use"])
    with job.epoch:
        Task(user("A", 0.02), "tool", name="A")
        Task(lambda use: use("B"), "use", name="B")
        Task(user("C"), "tool", name="C")
    assert Driver(job, threads).start().epochs(2).blob("tool").used == "ABCABC"


def test_other_objects_are_not_held_up() -> None:
    """Two tools of one type: their users meet, which they can only at the same time."""
    both = threading.Barrier(2)
    job = Job("j")
    with job.setup:
        Task(lambda: (Tool(), Tool()), out=["p", "q"], name="make")
    with job.epoch:
        Task(meeting(both), "p", name="A")
        Task(meeting(both), "q", name="B")
    Driver(job, 2).start().epochs(2)


def test_readers_of_what_cannot_change_are_not_held_up() -> None:
    both = threading.Barrier(2)
    job = Job("j")
    with job.setup:
        Task(lambda: (b"x", len), out=["data", "function"], name="make")
    with job.epoch:
        for name in ("A", "B"):
            Task(meeting(both), ["data", "function"], name=name)
    Driver(job, 2).start().epochs(2)


@pytest.mark.parametrize("threads", [1, 8])
def test_an_object_that_two_tasks_know_without_being_given_it_is_refused(threads: int) -> None:
    """Nobody can say in which order their users were to come: they may have run already."""
    shared, where = Tool(), Where("job.yaml", 5, 3)
    job = Job("j")
    with job.epoch:
        Task(lambda: shared, out="p", name="one", marks={"out:p": where})
        Task(user("A"), "p", name="A")
        Task(lambda: shared, out="q", name="two", marks={"out:q": where})
        Task(user("B"), "q", name="B")
    driver = Driver(job, threads).start()
    with pytest.raises(
        TaskError, match=r"stored under '[pq]' an object that is '[pq]' too"
    ) as caught:
        driver.epoch()
    assert "tasks 'A' and 'B', which use it, have no order" in caught.value.message
    assert caught.value.where == where
    assert "under 'in'" in caught.value.hint


@pytest.mark.parametrize("threads", [1, 8])
def test_an_object_that_two_tasks_know_is_right_where_its_users_are_ordered(threads: int) -> None:
    shared = Tool()
    job = Job("j")
    with job.epoch:
        Task(lambda: shared, out="p", name="one")
        Task(user("A"), "p", name="A")
        Task(lambda: shared, out="q", name="two")
        Task(user("B"), "q", name="B", after="A")
    Driver(job, threads).start().epochs(2)
    assert shared.used == "ABAB"


# Gatherings.


def gathering(tool_of: str = "tool") -> Job:
    """``avg`` gathers ``w`` of both nodes; on ``n_1`` a task with an opaque value comes first."""
    job = Job("j", nodes={"n_0": {"k": 2.0}, "n_1": {"k": 8.0}})
    with job.setup, Node("*"):
        Task(Tool, out="tool")
    with job.init, Node("*"):
        Task(lambda k: k, "k", out="w", name="begin")
    with job.epoch:
        Task(user("A"), "tool", name="first", node="n_1")
        Task(user("B"), "tool", name="second", node="n_1")
        Task(
            lambda ws, tool: sum(ws) / 2,
            {"ws": "n_*:w", "tool": tool_of},
            out="w",
            name="avg",
            node="n_*",
        )
        Task(user("C"), "tool", name="last", node="n_1")
    return job


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("tool_of", ["tool", "n_1:tool"])
@pytest.mark.parametrize("cut", range(12))
def test_all_copies_read_before_any_writes_wherever_a_cut_is(
    threads: int, tool_of: str, cut: int
) -> None:
    driver = Driver(gathering(tool_of), threads).start()
    calls = iter(range(1 << 30))
    while not driver.epoch(lambda: next(calls) == cut):
        done = {key for key in driver.position.tasks if key.endswith(":avg")}
        assert len(done) in (0, 2)
    assert [driver.blob(f"n_{i}:w") for i in range(2)] == [5.0, 5.0]
    assert driver.blob("n_1:tool").used == "ABC"


# Any job, cut anywhere.


def blobs_after(
    description: dict[str, Any], threads: int, cuts: Iterator[int]
) -> tuple[dict[str, Any], int]:
    """The blobs after two epochs, cut at the next of ``cuts`` looks again and again; and how often.

    The position goes the way that it goes through a checkpoint.
    """
    driver, count = Driver(build(description), threads).start(), 0
    for _ in range(2):
        while not driver.epoch(cut_after(next(cuts, 1 << 30))):
            driver.position = Position.from_json(driver.position.to_json())
            count += 1
        driver.session.end_epoch()
    return {name: driver.blob(name) for name in names(description)}, count


_cuts = settings(
    deadline=None, max_examples=150 if LONG else 12, suppress_health_check=[HealthCheck.too_slow]
)


@_cuts
@given(descriptions, st.sampled_from([1, 2, 8]))
@example(WAITING_COPY, 2)
@example(LATE_ALIAS, 2)
def test_a_cut_at_any_place_changes_no_bit(description: dict[str, Any], threads: int) -> None:
    """One cut: at each look of the first epoch, which come after each task and batch."""
    alone, _ = blobs_after(description, 1, iter(()))
    for place in range(1 << 30):
        found, count = blobs_after(description, threads, iter([place]))
        assert same(found, alone), place
        if not count:
            break


@_cuts
@given(descriptions, st.sampled_from([1, 2, 8]), st.lists(st.integers(1, 6), min_size=1))
@example(WAITING_COPY, 2, [2])
@example(LATE_ALIAS, 2, [2])
def test_cuts_at_many_places_change_no_bit(
    description: dict[str, Any], threads: int, places: list[int]
) -> None:
    """A cut after each task and batch, and wherever else."""
    alone, _ = blobs_after(description, 1, iter(()))
    for cuts in ([2] * 200, places):
        found, _ = blobs_after(description, threads, iter(cuts))
        assert same(found, alone), cuts
