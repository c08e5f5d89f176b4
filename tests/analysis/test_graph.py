"""From accesses to plans, against a brute-force oracle; and what persists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.analysis.accesses import access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.cycles import shortest_cycle
from jobrun.analysis.graph import Plan, make_plan, unit_key
from jobrun.analysis.persistence import live_scratch, persistent, ranks, setup_blobs
from jobrun.core.blob_paths import Key, covers, overlaps
from jobrun.core.position import PipeState, Position
from jobrun.errors import SpecError
from jobrun.model.job import Job, Node, Pipe, Task
from jobrun.model.policy import CheckpointPolicy

Spec = tuple[list[str], list[str], list[str], list[int]]
"""``in``, ``update`` and ``out`` of a task, and the numbers of the tasks it comes after."""


def fn(*args: Any, **kwargs: Any) -> None:
    """What tasks of these tests call."""


def plan_of(job: Job, group: str = "epoch") -> Plan:
    job.groups[group].named()
    return make_plan(job, job.groups[group])


def edges(plan: Plan) -> set[tuple[str, str]]:
    return {
        (plan.units[a].key, plan.units[b].key)
        for a, after in enumerate(plan.successors)
        for b in after
    }


def closure(count: int, direct: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """All pairs that are ordered, by way of others too."""
    reach = {(a, b) for a, b in direct}
    for middle in range(count):
        into = [a for a in range(count) if (a, middle) in reach]
        out = [b for b in range(count) if (middle, b) in reach]
        reach |= {(a, b) for a in into for b in out}
    return reach


def ordered(plan: Plan) -> set[tuple[int, int]]:
    direct = {(a, b) for a, after in enumerate(plan.successors) for b in after}
    return closure(len(plan.units), direct)


_names = st.sampled_from(["a", "a/x", "a/y", "a/x/p", "b", "b/x", "c"])
_lists = st.lists(_names, max_size=2, unique=True)
_specs = st.lists(
    st.tuples(_lists, _lists, _lists, st.lists(st.integers(0, 9), max_size=1)),
    min_size=1,
    max_size=10,
)


def _conflict(one: Spec, other: Spec) -> bool:
    """Whether two tasks touch one blob and at least one of them writes it."""
    reads, writes = (one[0] + one[1], one[1] + one[2])
    other_reads, other_writes = (other[0] + other[1], other[1] + other[2])
    pairs = [(r, w) for r in reads for w in other_writes]
    pairs += [(w, x) for w in writes for x in other_reads + other_writes]
    return any(overlaps(a, b) for a, b in pairs)


@settings(deadline=None, max_examples=150)
@given(_specs)
def test_tasks_are_ordered_where_they_touch_one_blob_and_nowhere_else(specs: list[Spec]) -> None:
    with Job("j") as job:
        for i, (reads, updates, outs, after) in enumerate(specs):
            names = [f"t{k % len(specs)}" for k in after]
            Task(fn, reads, update=updates, out=outs, name=f"t{i}", after=names)
    direct = {
        (i, j) for j in range(len(specs)) for i in range(j) if _conflict(specs[i], specs[j])
    } | {(k % len(specs), i) for i, spec in enumerate(specs) for k in spec[3]}
    wanted = closure(len(specs), direct)
    if any((i, i) in wanted for i in range(len(specs))):
        with pytest.raises(SpecError, match="wait for each other"):
            plan_of(job)
        return
    plan = plan_of(job)
    assert ordered(plan) == wanted
    assert list(plan.waits) == [
        sum(i in after for after in plan.successors) for i in range(len(specs))
    ]


@settings(deadline=None, max_examples=60)
@given(_specs, st.lists(st.sampled_from(["n0", "n1", "n*", "n[01]"]), min_size=10, max_size=10))
def test_copies_over_nodes_keep_the_order_of_the_spec(specs: list[Spec], where: list[str]) -> None:
    """A copy behind a gathering reads there; and no copy is ordered with one of its own task."""
    job = Job("j", nodes=["n0", "n1"])
    with job:
        for i, (reads, updates, outs, _) in enumerate(specs):
            across = [f"n*:{r}" for r in reads]
            Task(fn, across, update=updates, out=outs, name=f"t{i}", node=where[i])
    plan = plan_of(job)
    order = ordered(plan)
    copies = [(i, u) for i, u in enumerate(plan.units) if not u.gathers]
    for a, one in copies:
        for b, other in copies:
            if one.task is other.task:
                assert (a, b) not in order
            elif a < b:
                read_at, other_read_at = plan.gathered_by.get(a, a), plan.gathered_by.get(b, b)
                first, second = access(job, one.task, one.node), access(job, other.task, other.node)
                if _touch(first.reads, second.writes):
                    assert (read_at, b) in order
                if _touch(first.writes, second.reads):
                    assert (a, other_read_at) in order
                if _touch(first.writes, second.writes):
                    assert (a, b) in order


def _touch(some: list[Key], others: list[Key]) -> bool:
    return any(a[0] == b[0] and overlaps(a[1], b[1]) for a in some for b in others)


@settings(deadline=None, max_examples=60)
@given(_specs)
def test_a_copy_that_reads_what_another_writes_waits_for_a_gathering_of_all(
    specs: list[Spec],
) -> None:
    job = Job("j", nodes=["n0", "n1"])
    with job:
        for i, (reads, updates, outs, _) in enumerate(specs):
            Task(fn, [f"n*:{r}" for r in reads], update=updates, out=outs, name=f"t{i}", node="n*")
    plan = plan_of(job)
    for i, spec in enumerate(specs):
        crosses = any(overlaps(r, w) for r in spec[0] for w in spec[1] + spec[2])
        copies = [n for n, u in enumerate(plan.units) if u.task.name == f"t{i}" and not u.gathers]
        gathering = {plan.gathered_by.get(n) for n in copies}
        if not crosses:
            assert gathering == {None}
            continue
        (front,) = gathering
        assert front is not None
        assert plan.units[front].gathers == tuple(copies)
        waited = {a for a, b in ordered(plan) if b in copies and a not in copies}
        assert waited - {front} == {a for a, b in ordered(plan) if b == front}


def test_after_holds_for_the_gathering_too() -> None:
    """Once it has run, its copies can: a cut never finds some done and some waiting."""
    job = Job("j", nodes=["a", "b"])
    with job:
        Task(fn, ["*:w"], out="w", name="mean", node="*", after="later")
        Task(fn, name="later", node="a")
    found = edges(plan_of(job))
    assert ("a:later", "gather:mean") in found
    assert ("a:later", "b:mean") in found


def test_keys_of_units() -> None:
    job = Job("j", nodes=["a", "b"])
    with job, Node("b"):
        task = Task(fn, name="t")
    assert unit_key(job, task, "b") == "b:t"
    assert unit_key(Job("j"), task, "main") == "t"
    plan = plan_of(job)
    assert plan.finished(["b:t"])
    assert not plan.finished([])


def test_after_must_name_a_task() -> None:
    with Job("j") as job:
        Task(fn, name="train")
        Task(fn, name="test", after="trian")
    with pytest.raises(SpecError, match=r"no task 'trian'.*did you mean 'train'"):
        plan_of(job)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ({0: [0]}, "t0 -> t0"),
        ({0: [1], 1: [0, 1]}, "t1 -> t1"),
        ({0: [1], 1: [0]}, "t0 -> t1 -> t0"),
        ({0: [3], 1: [0], 2: [1], 3: [2]}, "t0 -> t1 -> t2 -> t3 -> t0"),
        ({0: [3], 1: [0], 2: [1], 3: [2, 1]}, "t0 -> t1 -> t3 -> t0"),
    ],
)
def test_a_cycle_is_shown_as_its_shortest_path(after: dict[int, list[int]], text: str) -> None:
    with Job("j") as job:
        for i in range(5):
            Task(fn, name=f"t{i}", after=[f"t{k}" for k in after.get(i, [])])
    with pytest.raises(SpecError) as caught:
        plan_of(job)
    assert caught.value.problems[0].message == f"these tasks wait for each other: {text}"


def test_a_cycle_may_lead_through_blobs() -> None:
    with Job("j") as job:
        Task(fn, out="x", name="write", after="read")
        Task(fn, "x", name="read")
    with pytest.raises(SpecError, match="write -> read -> write"):
        plan_of(job)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 8), st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16))
def test_the_shortest_cycle(count: int, pairs: set[tuple[int, int]]) -> None:
    direct = {(a % count, b % count) for a, b in pairs}
    successors = [sorted(b for a, b in direct if a == i) for i in range(count)]
    found = shortest_cycle(successors)
    lengths = [n for n in range(1, count + 1) if _closed_path(count, direct, n)]
    if not lengths:
        assert found == []
        return
    assert len(found) == lengths[0]
    assert all((a, b) in direct for a, b in zip(found, [*found[1:], found[0]], strict=True))


def _closed_path(count: int, direct: set[tuple[int, int]], length: int) -> bool:
    at = {(i, i) for i in range(count)}
    for _ in range(length):
        at = {(start, b) for start, a in at for x, b in direct if x == a}
    return any(start == end for start, end in at)


def test_long_chains_are_planned_without_recursion() -> None:
    with Job("j") as job:
        for i in range(3000):
            Task(fn, f"b{i}", out=f"b{i + 1}", name=f"t{i}")
    plan = plan_of(job)
    assert plan.waits == (0, *[1] * 2999)


# What persists.

_paths = st.lists(st.sampled_from(["a", "b", "r"]), min_size=1, max_size=3).map("/".join)


def persists(job: Job) -> dict[str, tuple[str, ...]]:
    for group in job.groups.values():
        group.named()
    return persistent(JobAnalysis(job))


def test_what_init_writes_and_what_is_read_later_persists() -> None:
    job = Job("j")
    with job.setup:
        Task(fn, out="data")
    with job.init:
        Task(fn, out=["w", "m"])
    with job.epoch:
        Task(fn, update=["w"], out=["loss", "scratch", "m/leaf", "t/a", "t/b"])
    with job.download:
        Task(fn, "loss", out="result")
    with job.exit:
        Task(fn, ["result", "t/b", "data"])
    assert persists(job) == {"main": ("w", "m", "loss", "t/b")}
    assert setup_blobs(JobAnalysis(job)) == {"main": ("data",)}


@pytest.mark.parametrize(
    ("init", "epoch", "kept"),
    [
        (["a/b"], ["a"], ("a",)),  # written whole, it replaces the tree
        (["a/b", "w"], ["a"], ("w", "a")),
        (["a/b/c"], ["a/b", "a/d"], ("a/b",)),
        (["a/b/c"], ["a/x", "a"], ("a",)),
        (["a/b"], ["a/c", "ab", "b"], ("a/b",)),
        (["a"], ["a/b"], ("a",)),
        ([], ["r/x", "r", "s"], ("r",)),  # 'exit' reads r/x
    ],
)
def test_what_an_epoch_writes_over_what_persists_persists(
    init: list[str], epoch: list[str], kept: tuple[str, ...]
) -> None:
    assert persists(_flow(init, [[name] for name in epoch])) == {"main": kept}


def _flow(init: list[str], epoch: list[list[str]]) -> Job:
    job = Job("j")
    with job.init:
        for name in init:
            Task(fn, out=name)
    with job.epoch:
        for names in epoch:
            Task(fn, out=names)
    with job.exit:
        Task(fn, "r/x")
    return job


@settings(deadline=None, max_examples=100)
@given(st.lists(_paths, max_size=3), st.lists(_paths, max_size=4))
def test_a_blob_persists_whole_or_not_at_all(init: list[str], epoch: list[str]) -> None:
    """No write leaves a part of it in the checkpoint and a part of it out."""
    found = persists(_flow(init, [[name] for name in epoch]))["main"]
    for path in init:
        assert any(covers(p, path) for p in found)
    for path in epoch:
        assert any(covers(p, path) for p in found) == any(overlaps(p, path) for p in found)
    assert not any(overlaps(p, q) for p in found for q in found if p != q)
    assert {*found} <= {*init, *epoch}


def test_the_best_of_a_blob_persists_and_so_does_what_is_included() -> None:
    job = Job("j", checkpoint=CheckpointPolicy(include=("h*", "main:q")))
    with job.epoch:
        Task(fn, out=["m", "h1", "h2", "p", "q"])
    with job.exit:
        Task(fn, {"m": "best:m"})
    assert persists(job) == {"main": ("m", "h1", "h2", "q")}


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("aux", ("aux/x", "aux/y")),
        ("au?", ("aux/x", "aux/y")),
        ("*:aux", ("aux/x", "aux/y")),
        ("aux/y", ("aux/y",)),
        ("whole/part", ("whole",)),  # whose leaves nobody knows yet
        ("m*", ()),  # the node is called main
    ],
)
def test_what_is_included_by_the_name_of_a_tree_or_of_a_part(
    pattern: str, kept: tuple[str, ...]
) -> None:
    job = Job("j", checkpoint=CheckpointPolicy(include=(pattern,)))
    with job.epoch:
        Task(fn, out=["aux/x", "aux/y", "whole", "loss"])
    assert persists(job) == {"main": kept}


def test_a_leaf_under_a_blob_that_persists_is_not_listed_twice() -> None:
    job = Job("j")
    with job.init:
        Task(fn, out=["m/a", "m", "m/b/c", "n/a"])
    assert persists(job) == {"main": ("m", "n/a")}


def test_what_persists_is_known_per_node() -> None:
    job = Job("j", nodes=["a", "b"])
    with job.init:
        Task(fn, out="w", node="a")
    with job.epoch:
        Task(fn, out="loss", node="*")
    with job.exit:
        Task(fn, "b:loss", node="a")
    assert persists(job) == {"a": ("w",), "b": ("loss",)}


def test_ranks_are_the_order_of_first_writing() -> None:
    job = Job("j")
    with job.init:
        Task(fn, out=["m/b", "m/a"])
    with job.epoch:
        Task(fn, out=["m/c/x", "m/a"])
    found = ranks(JobAnalysis(job))["main"]
    assert sorted(found, key=found.__getitem__) == ["m", "m/b", "m/a", "m/c", "m/c/x"]


# Cuts.


def _cut(job: Job, done: Sequence[str], pipes: Sequence[str] = ()) -> dict[str, list[str]]:
    position = Position(0, tuple(done), {p: PipeState(1) for p in pipes})
    return live_scratch(plan_of(job), position, {"main": ["watched"]})


def test_the_scratch_that_is_still_to_be_read_at_a_cut() -> None:
    with Job("j") as job:
        Task(fn, out=["a", "b", "watched"], name="make")
        Pipe({"x": "a"}, do=[Task(fn, "x", out="loss")], name="pipe")
        Task(fn, ["b", "loss"], name="use")
    assert _cut(job, []) == {}
    assert _cut(job, ["make"]) == {"main": ["a", "b", "watched"]}
    assert _cut(job, ["make"], ["pipe"]) == {"main": ["a", "b", "watched", "loss"]}
    assert _cut(job, ["make", "pipe"]) == {"main": ["b", "watched", "loss"]}
    assert _cut(job, ["make", "pipe", "use"]) == {"main": ["watched"]}


def test_what_is_finished_is_not_searched_for_unit_by_unit() -> None:
    class Finished(tuple[str, ...]):
        def __contains__(self, key: object) -> bool:
            raise AssertionError("a search of all of them, for each of them")

    with Job("j") as job, job.epoch:
        for n in range(3):
            Task(fn, name=f"t{n}", out=f"b{n}")
    plan = plan_of(job)
    assert plan.finished(Finished(("t0", "t1", "t2")))
    assert not plan.finished(Finished(("t0", "t2")))
