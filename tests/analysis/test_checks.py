"""What can be wrong with a job as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import check, warnings
from jobrun.analysis.metrics import best_metric, metric_names
from jobrun.errors import Problem, Where
from jobrun.model.job import Job, Node, Pipe, Task, data
from jobrun.model.policy import Best, CheckpointPolicy, Compress, Keep


def fn(*args: Any, **kwargs: Any) -> None:
    """What tasks of these tests call."""


def draw(rng: Any) -> None:
    """A task that draws random numbers."""


def texts(job: Job) -> list[str]:
    return [f"{p.message}; {p.hint}" for p in check(job)]


def with_init(*names: str, **kwargs: Any) -> Job:
    job = Job("j", **kwargs)
    with job.init:
        for name in names:
            Task(fn, out=name)
    return job


def test_a_sound_job_has_no_problems() -> None:
    job = Job("j", vars={"lr": 0.1}, metrics={"loss": "min"})
    with job.setup:
        Task(fn, out="data")
    with job.init:
        Task(draw, "rng", out="m")
    with job.epoch:
        Pipe({"x": "data"}, batch="lr", do=[Task(fn, ["x", "lr"], update="m", out="loss")])
        Task(fn, ["m/w", "data", "epoch"], out="accuracy")
    with job.exit:
        Task(fn, ["best:m", "accuracy"])
    assert texts(job) == []


def _misspelt_epoch() -> Job:
    job = with_init("weights")
    with job.epoch:
        Task(fn, "epochh", name="t")
    return job


def _blob_nobody_writes() -> Job:
    job = with_init("weights")
    with job.epoch:
        Task(fn, "wieghts", name="t")
    return job


def _update_of_nothing() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, update="w", name="t")
    return job


def _read_before_written() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, "x", name="t")
        Task(fn, out="x")
    return job


def _read_before_written_in_init() -> Job:
    job = Job("j")
    with job.init:
        Task(fn, "x", name="t")
        Task(fn, out="x")
    return job


def _written_in_a_later_group() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, "x", name="t")
    with job.exit:
        Task(fn, out="x")
    return job


def _setup_blob_written() -> Job:
    job = Job("j")
    with job.setup:
        Task(fn, out="data")
    with job.epoch:
        Task(fn, out="data/x", name="t")
    return job


def _setup_blob_updated() -> Job:
    job = Job("j")
    with job.setup:
        Task(fn, out="data")
    with job.init:
        Task(fn, update="data", name="t")
    return job


def _may_write_read_always() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, out="x", every=2)
        Task(fn, "x", name="t")
    return job


def _value_as_a_blob() -> Job:
    job = Job("j", vars={"lr": 1})
    with job.init:
        Task(fn, {"path": "data.csv"}, name="t")
    return job


def _written_twice() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, out=["x", "x/y"], name="t")
    return job


def _updated_and_returned() -> Job:
    job = with_init("w")
    with job.epoch:
        Task(fn, update="w", out=["w", "x"], name="t")
    return job


def _blob_and_var() -> Job:
    job = Job("j", vars={"lr": 1})
    with job.epoch:
        Task(fn, out="lr")
    return job


def _column_and_blob() -> Job:
    job = with_init("data", "x")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(fn, "x")], name="p")
    return job


def _map_column_and_blob() -> Job:
    job = with_init("data", "y")
    with job.epoch:
        Pipe(["data"], map=[Task(fn, "data", out="y")], do=[Task(fn, "y")], name="p")
    return job


def _part_of_a_map_column_and_blob() -> Job:
    job = with_init("data", "y/low")
    with job.epoch:
        Pipe(["data"], map=[Task(fn, "data", out="y")], do=[Task(fn, "y")], name="p")
    return job


def _case() -> Job:
    return with_init("w", "W")


def _case_of_a_tree() -> Job:
    return with_init("M/w", "m/v")


def _case_of_nodes() -> Job:
    return Job("j", nodes=["A", "b", "a"])


def _best_in_epoch() -> Job:
    job = with_init("m", metrics={"loss": "min"})
    with job.epoch:
        Task(fn, "best:m", out="loss")
    return job


def _best_without_checkpoints() -> Job:
    job = with_init("m", checkpoint=None)
    with job.exit:
        Task(fn, "best:m")
    return job


def _best_by_what() -> Job:
    job = with_init("m", "a", "b", metrics={"a": "min", "b": "max"})
    with job.exit:
        Task(fn, "best:m")
    return job


def test_the_best_of_an_object_that_tasks_are_only_given() -> None:
    """Under ``in`` it may be changed too, and every checkpoint holds it."""
    job = with_init("a", metrics={"a": "min"}, state={"net": None})
    with job.setup:
        Task(fn, out="net")
    with job.epoch:
        Task(fn, "net", out="a")
    with job.exit:
        Task(fn, "best:net")
    assert texts(job) == []


def _best_of_nothing() -> Job:
    job = with_init("model", "a", metrics={"a": "min"})
    with job.exit:
        Task(fn, "best:modle")
    return job


def _unknown_metric() -> Job:
    return with_init("loss", metrics={"losss": "min"})


def _best_metric_without_direction() -> Job:
    policy = CheckpointPolicy(keep=Keep(best=Best("loss")))
    return with_init("loss", metrics={"loss": None}, checkpoint=policy)


def _cycle() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, name="a", after="b")
        Task(fn, name="b", after="a")
    return job


def _bad_name() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, out="a b")
    return job


def _reserved_var() -> Job:
    return Job("j", vars={"epoch": 1})


def _same_name() -> Job:
    job = Job("j")
    with job.epoch:
        Task(fn, name="t")
        Task(fn, name="t")
    return job


def _same_name_in_pipe() -> Job:
    job = with_init("x")
    with job.epoch:
        Pipe(["x"], do=[Task(fn, "x", name="t"), Task(fn, "x", name="t")], name="p")
    return job


def _same_default_name_with_rng() -> Job:
    job = Job("j")
    with job.epoch:
        Task(draw, "rng")
        Task(draw, "rng")
    return job


def _pipe_writes_its_source() -> Job:
    job = with_init("data")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(fn, {"x": "x"}, update={"d": "data"})], name="p")
    return job


def _pipe_writes_its_batch_size() -> Job:
    job = with_init("data", "n")
    with job.epoch:
        Pipe({"x": "data"}, batch="n", do=[Task(fn, "x", out="n")], name="p")
    return job


def _node_named_best() -> Job:
    return Job("j", nodes=["best"])


def _node_with_colon() -> Job:
    return Job("j", nodes=["a:b"])


def _no_node() -> Job:
    job = Job("j", nodes=["a"])
    with job.epoch:
        Task(fn, name="t")
    return job


def _unknown_node() -> Job:
    job = Job("j", nodes=["trainer_0"])
    with job.epoch, Node("trainer_9"):
        Task(fn)
    return job


def _copies_write_one_blob() -> Job:
    job = Job("j", nodes=["a", "b"])
    with job.epoch, Node("*"):
        Task(fn, out="a:x", name="t")
    return job


def _pipe_reads_across() -> Job:
    job = Job("j", nodes=["a", "b"])
    with job.init, Node("*"):
        Task(fn, out="w")
        Task(fn, out="data")
    with job.epoch, Node("*"):
        Pipe({"x": "data"}, do=[Task(fn, {"w": "*:w"}, out="w")], name="p")
    return job


def _a_text_file_shuffled_as_a_whole() -> Job:
    job = Job("j")
    with job.epoch:
        sources = [data(["x"], file="x.npy"), data(["y"], file="y-*.CSV")]
        Pipe(zip=sources, shuffle=True, do=[Task(fn, ["x", "y"])], name="p")
    return job


def _pinned_source(key: str, value: int) -> Job:
    job = Job("j")
    with job.setup:
        Task("m:connect", out="db", thread="same")
    step = Task("m:f", "x", out="loss")
    mapped = [Task("m:g", "x", out="x")] if key == "processes" else []
    with job.epoch:
        Pipe(["x"], call="m:rows", in_="db", map=mapped, do=[step], name="p", **{key: value})  # type: ignore[arg-type]
    return job


@pytest.mark.parametrize("key", ["threads", "ahead", "processes"])
def test_a_source_that_is_bound_to_a_thread_is_not_read_on_others(key: str) -> None:
    (found,) = check(_pinned_source(key, 2))
    assert found.message == (
        "pipe 'p' reads from 'db', which 'thread: same' keeps on one thread, but "
        f"{key!r} would read it on another"
    )
    assert found.hint == f"leave {key!r} out"
    assert check(_pinned_source("threads", 1)) == []


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            _a_text_file_shuffled_as_a_whole,
            "pipe 'p': y-*.CSV is read from front to back, so a pass over it cannot be shuffled "
            "as a whole; 'shuffle: {buffer: 10000}' shuffles",
        ),
        (_blob_nobody_writes, "task 't' reads 'wieghts', which no task writes; did you mean 'wei"),
        (_misspelt_epoch, "task 't' reads 'epochh', which no task writes; did you mean 'epoch'?"),
        (
            _update_of_nothing,
            "task 't' updates 'w' before it is written; write its first value in 'init'",
        ),
        (_read_before_written, "reads 'x' before it is written; write its first value in 'init'"),
        (_read_before_written_in_init, "reads 'x' before it is written; move the task down"),
        (_written_in_a_later_group, "task 't' of 'epoch' reads 'x', which only 'exit' writes"),
        (_setup_blob_written, "task 't' writes 'data/x', which belongs to 'setup'"),
        (
            _setup_blob_updated,
            "task 't' updates 'data', which belongs to 'setup': the change would be lost on a "
            "resume; 'setup' creates it again at every start; name it under 'state' if its content",
        ),
        (_may_write_read_always, "'x' is written every 2 epochs only, but task 't' reads it"),
        (
            _value_as_a_blob,
            "task 't' reads 'data.csv', which no task writes; if 'data.csv' is a value, not a "
            "blob, give it under 'with'",
        ),
        (_written_twice, "task 't' writes 'x/y' twice"),
        (
            _updated_and_returned,
            "task 't' writes 'w' twice; under 'update' 'w' is changed in place: remove it from "
            "'out', and from what the function returns",
        ),
        (_blob_and_var, "'lr' is both a blob and a var"),
        (_column_and_blob, "'x' is a column of pipe 'p' and also a blob"),
        (_map_column_and_blob, "'y' is a column of pipe 'p' and also a blob"),
        (
            _part_of_a_map_column_and_blob,
            "'y/low' is a part of column 'y' of pipe 'p' and also a blob",
        ),
        (_case, "blobs 'w' and 'W' differ in case only"),
        (_case_of_a_tree, "blobs 'M' and 'm' differ in case only"),
        (_case_of_nodes, "nodes 'A' and 'a' differ in case only"),
        (_best_in_epoch, "'best:m' can be read in 'download' and 'exit' only"),
        (_best_without_checkpoints, "'best:m' needs checkpoints"),
        (_best_by_what, "'best:m': it is not known by which metric"),
        (_best_of_nothing, "no checkpoint holds a blob 'modle'; did you mean 'model'?"),
        (_unknown_metric, "metric 'losss' is not a blob of this job; did you mean 'loss'?"),
        (_best_metric_without_direction, "'loss' is not a metric with a direction"),
        (_cycle, "these tasks wait for each other: a -> b -> a"),
        (_bad_name, "'a b' cannot name a blob"),
        (_reserved_var, "'epoch' is reserved and cannot name a var"),
        (_same_name, "group 'epoch' has two tasks named 't'"),
        (_same_name_in_pipe, "pipe 'p' has two tasks named 't'"),
        (_same_default_name_with_rng, "two tasks draw random numbers under the same name, 'draw'"),
        (_pipe_writes_its_source, "pipe 'p' writes 'data', which it reads from"),
        (_pipe_writes_its_batch_size, "pipe 'p' writes 'n', which it reads from"),
        (_node_named_best, "'best' cannot name a node"),
        (_node_with_colon, "'a:b' cannot name a node"),
        (_no_node, "task 't' names no node; add 'node:'"),
        (_unknown_node, "no node 'trainer_9'; did you mean 'trainer_0'?"),
        (_copies_write_one_blob, "the copies of task 't' all write 'a:x'"),
        (_pipe_reads_across, "the copies of pipe 'p' read what other copies of it write"),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_every_problem_says_what_to_do(make: Callable[[], Job], expected: str) -> None:
    found = texts(make())
    assert any(expected in text for text in found), found
    assert len(set(found)) == len(found), "each problem is said once"


def test_all_problems_are_given_at_once_with_their_places() -> None:
    job = with_init("w", metrics={"nothing": "min"})
    place = Where("job.yaml", 7, 3, "in: x")
    with job.epoch:
        Task(fn, "x", marks={"in:x": place})
        Task(fn, "y", where=Where("job.yaml", 9, 1))
    found = check(job)
    assert len(found) == 3
    assert [p.where.line for p in found if p.where] == [7, 9]


def test_a_may_write_is_fine_where_it_is_read_as_rarely_or_has_a_first_value() -> None:
    job = with_init("y")
    with job.epoch:
        Task(fn, out=["x", "y"], every=2)
        Task(fn, "x", every=2)
        Task(fn, "y")
        Task(fn, out="x")
        Task(fn, "x")
    assert texts(job) == []


def test_a_tree_that_is_written_always_has_all_its_leaves() -> None:
    job = Job("j")
    with job.epoch:
        Task(fn, out="t/x", every=2)
        Task(fn, out="t/y", every=3)
        Task(fn, out="t")
        Task(fn, ["t", "t/x", "t/y"])
    assert texts(job) == []


def test_each_node_is_checked() -> None:
    job = Job("j", nodes=["a", "b"])
    with job.init, Node("a"):
        Task(fn, out="w")
    with job.epoch, Node("*"):
        Task(fn, "w", name="t")
    assert ["'b:w'" in t for t in texts(job)] == [True]


def test_metrics_have_a_column_per_node_that_writes_them() -> None:
    job = Job("j", nodes=["a", "b", "c"], metrics={"loss": "min", "c:acc": "max", "none": None})
    with job.epoch:
        Task(fn, out="loss", node="[ab]")
        Task(fn, out="acc", node="c")
    assert metric_names(JobAnalysis(job)) == {"a:loss": "min", "b:loss": "min", "c:acc": "max"}


@pytest.mark.parametrize(
    ("metrics", "keep", "expected"),
    [
        ({"loss": "min"}, Keep(), ("loss", "min")),
        ({"loss": "min", "acc": None}, Keep(), ("loss", "min")),
        ({"loss": "min", "acc": "max"}, Keep(), None),
        ({"loss": "min", "acc": "max"}, Keep(best=Best("acc")), ("acc", "max")),
        ({"loss": None}, Keep(), None),
        ({"loss": None}, Keep(best=Best("loss")), None),
    ],
)
def test_the_metric_to_be_best_by(metrics: dict[str, Any], keep: Keep, expected: Any) -> None:
    assert (
        best_metric(JobAnalysis(Job("j", metrics=metrics, checkpoint=CheckpointPolicy(keep=keep))))
        == expected
    )


def test_problems_are_plain_values() -> None:
    assert all(isinstance(p, Problem) for p in check(_cycle()))


@pytest.mark.parametrize(
    ("pattern", "include", "compress"),
    [
        ("aux", "", ""),
        ("au?", "", ""),
        ("aux/y", "", ""),
        ("aux/*", "", ""),
        ("whole/part", "", ""),
        ("aux/zz", "matches no blob", "matches no blob"),  # the tree is there, that leaf is not
        ("*part", "matches no blob", ""),  # it may be a leaf of what is written whole
        ("m*", "matches no blob", "matches no blob"),  # of node main
        ("data", "is never saved", "is never saved"),
        ("last", "is never saved", "is never saved"),
    ],
)
def test_patterns_that_mean_nothing_are_warned_of(
    pattern: str, include: str, compress: str
) -> None:
    for policy, said in (
        (CheckpointPolicy(include=(pattern,)), include),
        (CheckpointPolicy(compress=(Compress("zstd", blobs=pattern),)), compress),
    ):
        job = Job("j", checkpoint=policy)
        with job.setup:
            Task(fn, out="data")
        with job.epoch:
            Task(fn, out=["aux/x", "aux/y", "whole"])
        with job.exit:
            Task(fn, out="last")
        problems = list(warnings(JobAnalysis(job)))
        assert len(problems) == bool(said)
        assert all(said in p.message for p in problems)
