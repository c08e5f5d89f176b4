"""What a task reads and writes."""

from __future__ import annotations

from typing import Any

import pytest

from jobrun.analysis.accesses import access
from jobrun.analysis.names import StepColumns, resolve, step_names
from jobrun.model.job import Job, Node, Pipe, Task

MAIN = "main"


def fn(*args: Any, **kwargs: Any) -> None:
    """What tasks of these tests call."""


def job(**kwargs: Any) -> Job:
    return Job("j", vars={"lr": 0.1, "sizes": [1, 2]}, **kwargs)


def nodes() -> Job:
    return Job("j", vars={"lr": 0.1}, nodes={"t_0": {"lr": 0.5}, "t_1": None, "eval": None})


def messages(job: Job, task: Task, node: str = MAIN) -> str:
    return "; ".join(f"{p.message}; {p.hint}" for p in access(job, task, node).problems)


def test_what_names_mean() -> None:
    assert resolve(job(), MAIN, "w").keys == ((MAIN, "w"),)
    assert resolve(job(), MAIN, "m/w").form == "blob"
    assert resolve(job(), MAIN, "lr").value == 0.1
    assert resolve(job(), MAIN, "epoch").form == "epoch"
    assert resolve(job(), MAIN, "rng").form == "rng"
    assert resolve(job(), MAIN, "node").value == MAIN
    assert resolve(job(), MAIN, "best:m/w").keys == (("", "m/w"),)
    assert resolve(job(), MAIN, "x", {"x"}).form == "column"
    with pytest.raises(LookupError, match="needs a blob"):
        resolve(job(), MAIN, "best")


def test_parts_of_columns_that_map_steps_put_out() -> None:
    columns = StepColumns(["x", "a/b"])
    columns.add(["tree"])
    before = columns.copy()
    columns.add(["x"])  # a step has made a tree of it
    for name, own in (
        ("x", "column"),
        ("tree/low", "column"),
        ("a/b", "column"),
        ("tre/e", "blob"),
    ):
        assert resolve(job(), MAIN, name, columns).form == own
    assert resolve(job(), MAIN, "x/w", columns).form == "column"
    assert resolve(job(), MAIN, "x/w", before).form == "blob"
    assert list(columns) == ["x", "a/b", "tree"]
    assert len(columns) == 3


def test_what_names_mean_with_nodes() -> None:
    assert resolve(nodes(), "t_0", "lr").value == 0.5
    assert resolve(nodes(), "eval", "lr").value == 0.1
    assert resolve(nodes(), "eval", "t_1:w").keys == (("t_1", "w"),)
    found = resolve(nodes(), "eval", "t_*:w")
    assert (found.form, found.keys) == ("blobs", (("t_0", "w"), ("t_1", "w")))
    assert resolve(nodes(), "eval", "[et]*l:w").form == "blobs", "also a glob that matches one node"
    with pytest.raises(LookupError, match="did you mean 't_1'"):
        resolve(nodes(), "eval", "t1:w")


def test_reads_and_writes_are_in_the_order_of_the_spec() -> None:
    task = Task(fn, ["b", "a", "lr", "epoch"], update=["m"], out=["y", "x"])
    found = access(job(), task, MAIN)
    assert found.reads == [(MAIN, "b"), (MAIN, "a"), (MAIN, "m")]
    assert found.writes == [(MAIN, "m"), (MAIN, "y"), (MAIN, "x")]
    assert not found.problems


def test_a_glob_reads_one_of_each_and_writes_one_to_each() -> None:
    task = Task(fn, ["t_*:w"], out="t_*:w", node="eval")
    found = access(nodes(), task, "eval")
    assert found.reads == found.writes == [("t_0", "w"), ("t_1", "w")]


def test_the_best_checkpoint_is_read_on_the_own_node() -> None:
    found = access(nodes(), Task(fn, {"m": "best:m"}), "t_1")
    assert found.best == [("t_1", "m")]
    assert not found.reads


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"out": "lr"}, "'lr' is a var and cannot be written"),
        ({"out": "epoch"}, "'epoch' is reserved"),
        ({"out": "best:m"}, "blob of the best checkpoint"),
        ({"update": "t_*:w"}, "list of blobs"),
        ({"in_": "t_9:w"}, "no node 't_9'"),
        ({"out": "t_9:w"}, "no node 't_9'"),
        ({"in_": "best"}, "needs a blob"),
    ],
)
def test_names_that_cannot_be(kwargs: dict[str, Any], message: str) -> None:
    assert message in messages(nodes(), Task(fn, **kwargs), "t_0")


def _pipe(**kwargs: Any) -> Pipe:
    return Pipe(**{"from_": {"x": "data"}, "do": [Task(fn, "x")], **kwargs})


def test_a_pipe_reads_its_source_its_numbers_and_what_its_steps_read() -> None:
    pipe = _pipe(
        batch="n",
        passes="lr",
        map=[Task(fn, "x", out="y")],
        do=[Task(fn, ["x", "y", "m"], update=["w"], out="loss")],
    )
    found = access(job(), pipe, MAIN)
    assert not found.problems
    assert found.reads == [(MAIN, "data"), (MAIN, "n"), (MAIN, "m"), (MAIN, "w")]
    assert found.writes == [(MAIN, "w"), (MAIN, "loss")]


def test_what_an_earlier_step_of_the_batch_puts_out_is_not_read_from_before() -> None:
    steps = [Task(fn, "x", out="g"), Task(fn, ["g", "g/part", "h"]), Task(fn, "x", out="h")]
    found = access(job(), _pipe(do=steps), MAIN)
    assert found.reads == [(MAIN, "data"), (MAIN, "h")]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"map": [Task(fn, "w", out="x")]}, "'w' is not a column"),
        ({"map": [Task(fn, "xx", out="y")]}, "did you mean 'x'"),
        ({"map": [Task(fn, update="x")]}, "cannot update"),
        ({"do": [Task(fn, "x", out="x")]}, "'x' is a column of the pipe and cannot be written"),
        (
            {"map": [Task(fn, "x", out="t")], "do": [Task(fn, "x", out="t/x")]},
            "'t/x' is a column of the pipe and cannot be written",
        ),
        ({"from_": {"lr": "data"}}, "'lr' is a column of the pipe and a var at once"),
        ({"from_": {"epoch": "data"}}, "'epoch' is a column of the pipe and reserved at once"),
        ({"from_": {"x": "lr"}}, "'lr' cannot be the blob of a column"),
        ({"from_": {"x": "epoch"}}, "'epoch' cannot be the blob of a column"),
        ({"from_": {"x": "best:w"}}, "'best:w' cannot be the blob of a column"),
        ({"batch": "epoch"}, "'epoch' cannot be a number"),
        ({"batches_per_epoch": "best:n"}, "'best:n' cannot be a number"),
    ],
)
def test_names_that_cannot_be_in_a_pipe(kwargs: dict[str, Any], message: str) -> None:
    assert message in messages(job(), _pipe(**kwargs))


def test_a_number_is_not_a_list_of_numbers() -> None:
    pipe = Pipe(["x"], batch="t_*:n", do=[Task(fn, "x")])
    assert "'t_*:n' cannot be a number" in messages(nodes(), pipe, "t_0")


def test_the_columns_of_a_file_need_not_be_listed() -> None:
    owner = job()
    with owner.init:
        Task(fn, out="w")
    pipe = Pipe(file="x.npz", map=[Task(fn, "any", out="y")], do=[Task(fn, ["any", "y", "w"])])
    found = access(owner, pipe, MAIN)
    assert not found.problems
    assert found.reads == [(MAIN, "w")], "a name that a task writes is a blob"


def test_steps_have_names_of_their_own() -> None:
    def other() -> None: ...

    pipe = _pipe(
        map=[Task(fn, "x", out="a")], do=[Task(fn, "x"), Task(other), Task(fn, "x", name="fn_2")]
    )
    names = step_names(pipe)
    assert [names[id(s)] for s in (*pipe.map, *pipe.do)] == ["fn", "fn_2", "other", "fn_2_2"]


def test_a_task_in_a_node_context_runs_there() -> None:
    owner = nodes()
    with owner, Node("t_*"):
        task = Task(fn, out="w")
    assert owner.nodes_of(task) == ("t_0", "t_1")
    assert access(owner, task, "t_1").writes == [("t_1", "w")]
