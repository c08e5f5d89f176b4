"""Which units belong to a cut, by the plan and by what the nodes tell beside it."""

from __future__ import annotations

import pytest

from jobrun.analysis.graph import make_plan
from jobrun.model.job import Job, Node, Pipe, Task

pytest.importorskip("distributed")

from jobrun.session.dask.closure import closure


def nothing(*given: object) -> None:
    """Needs its inputs."""


def job() -> Job:
    """``avg`` gathers ``w``; ``first`` and ``second`` only read what it does not write."""
    made = Job("j", nodes=["a", "b"])
    with made.init, Node("*"):
        Task(float, out="w", name="w")
        Task(float, out="x", name="x")
    with made.epoch:
        Task(nothing, "x", name="first", node="b")
        Task(nothing, "x", name="second", node="b")
        Task(sum, "*:w", out="w", name="avg", node="*")
        Task(nothing, "w", name="last", node="*")
    return made


def closed(done: set[str], *edges: tuple[str, str]) -> set[str]:
    made = job()
    return set(closure(make_plan(made, made.groups["epoch"]), done, (), edges))


def test_a_copy_brings_all_copies_and_what_comes_before_them() -> None:
    assert closed({"b:first"}) == {"b:first"}
    assert closed({"a:avg"}) == {"a:avg", "b:avg"}
    assert closed({"b:last"}) == {"a:avg", "b:avg", "b:last"}


def test_an_edge_that_the_plan_does_not_know_brings_what_it_begins_at() -> None:
    edges = [("b:first", "b:second"), ("b:second", "b:avg"), ("a:avg", "a:last")]
    assert closed({"a:avg"}, *edges) == {"a:avg", "b:avg", "b:second", "b:first"}
    assert closed({"b:first"}, *edges) == {"b:first"}


def in_lock_step() -> Job:
    """A pipe whose copies reduce in each batch, after ``rows`` and before ``last``."""
    made = Job("j", nodes=["a", "b"])
    with made.init, Node("*"):
        Task(float, out="w", name="w")
    with made.epoch, Node("*"):
        Task(list, out="rows", name="rows")
        Task(nothing, name="other")
        mean = Task(nothing, [{"reduce": "mean", "of": "*:w"}], name="mean")
        Pipe(from_={"x": "rows"}, batch=1, do=[mean], name="train")
        Task(nothing, "w", name="last")
    return made


def test_begun_pipes_in_lock_step_stay_where_they_are() -> None:
    """What comes before them belongs to the cut, and they only with something after them."""
    made = in_lock_step()
    plan = make_plan(made, made.groups["epoch"])
    begun = {"a:train", "b:train"}
    assert closure(plan, {"a:other"}, begun) == {"a:other", "a:rows", "b:rows"}
    assert closure(plan, (), begun) == {"a:rows", "b:rows"}
    whole = {"a:rows", "b:rows", "a:train", "b:train"}
    assert closure(plan, {"b:train"}, {"a:train"}) == whole
