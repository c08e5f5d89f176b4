"""Jobs as plain values: the builder, and what cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from jobrun.core.template import template
from jobrun.errors import SpecError, UsageError, Where
from jobrun.model.job import GROUPS, Argument, FileSource, Job, Node, Pipe, Task
from jobrun.model.options import Load
from jobrun.model.policy import Upload
from jobrun.model.shell import Shell


def add_one(total: Any) -> None:
    total += 1


class Model:
    def __call__(self, x: Any) -> Any:
        return x


def test_tasks_join_the_group_that_is_open() -> None:
    with Job("sum", seed=7) as job:
        with job.init:
            Task("m:make", out="total")
        Task(add_one, update="total")
        with job.epoch:
            Task("m:more", "total")
        with job.exit:
            Task("m:report", "total")
    assert [len(job.groups[g]) for g in GROUPS] == [0, 1, 2, 0, 1]
    assert [t.name for t in job.epoch] == ["add_one", "more"]
    assert Task("m:alone").node is None
    assert [len(job.groups[g]) for g in GROUPS] == [0, 1, 2, 0, 1]


def test_jobs_may_be_built_within_each_other() -> None:
    with Job("outer") as outer:
        with Job("inner") as inner:
            assert Job.current() is inner
            Task("m:f")
        assert Job.current() is outer
        Task("m:g")
    assert [t.name for t in inner.epoch] == ["f"]
    assert [t.name for t in outer.epoch] == ["g"]
    with pytest.raises(LookupError):
        Job.current()


def test_a_group_that_fails_to_be_built_is_closed() -> None:
    job = Job("sum")
    with pytest.raises(SpecError), job, job.init:
        Task("m:f", in_="x", update={"y": "y"})
    assert Task("m:g") not in job.init.tasks
    assert len(job.init) == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ()),
        ("x", (Argument(None, "x"),)),
        (["x", "y"], (Argument(None, "x"), Argument(None, "y"))),
        ({"x": None, "p": "y"}, (Argument("x", "x"), Argument("p", "y"))),
    ],
)
def test_forms_of_in_and_update(given: Any, expected: tuple[Argument, ...]) -> None:
    assert Task("m:f", given).inputs == expected
    assert Task("m:f", update=given).updates == expected


@pytest.mark.parametrize(
    ("given", "form", "names", "keys"),
    [
        (None, "none", (), ()),
        ("x", "one", ("x",), ()),
        (["x", "y"], "many", ("x", "y"), ()),
        ({"a": "x", "y": None}, "keys", ("x", "y"), ("a", "y")),
    ],
)
def test_forms_of_out(given: Any, form: str, names: Any, keys: Any) -> None:
    outputs = Task("m:f", out=given).outputs
    assert (outputs.form, outputs.names, outputs.keys) == (form, names, keys)


def test_positional_and_keyword_arguments_do_not_mix() -> None:
    where = Where("s.yaml", 3, 4)
    with pytest.raises(SpecError) as caught:
        Task("m:f", ["x"], update={"y": "y"}, marks={"update": where})
    assert "both positional or both by keyword" in str(caught.value)
    assert caught.value.problems[0].where == where
    with pytest.raises(SpecError, match="parameter 'x' is given twice"):
        Task("m:f", {"x": "a"}, update={"x": "b"})
    with pytest.raises(SpecError, match="parameter 'x' is given twice"):
        Task("m:f", {"x": "a"}, with_={"x": 1})
    assert Task("m:f", ["x", "x"]).inputs[1].name == "x"


@pytest.mark.parametrize(
    ("fn", "name", "function"),
    [
        ("m.sub:step", "step", "m.sub:step"),
        ("m:Class.make", "make", "m:Class.make"),
        (add_one, "add_one", f"{__name__}:add_one"),
        (Model(), "Model", f"{__name__}:Model"),
        (Model, "Model", f"{__name__}:Model"),
    ],
)
def test_names_of_functions(fn: Any, name: str, function: str) -> None:
    task = Task(fn)
    assert (task.name, task.function_name) == (name, function)
    assert Task(fn, name="other").name == "other"


def test_every_task_of_a_group_gets_a_name_of_its_own() -> None:
    with Job("sum") as job:
        Task("m:step")
        Task("m:step", name="step_2")
        Task("m:step")
        Task("m:step")
        Task("m:other")
    job.epoch.named()
    names = ["step", "step_2", "step_3", "step_4", "other"]
    assert [t.name for t in job.epoch] == names
    job.epoch.named()
    assert [t.name for t in job.epoch] == names


def test_a_pipe_takes_its_steps_out_of_the_group() -> None:
    with Job("sum") as job:
        pipe = Pipe(
            {"x": "rows", "y": None},
            3,
            map=[Task("m:scale", "x", out="x")],
            do=[Task("m:step", "x", out="loss")],
            reduce={"loss": "last"},
        )
    assert job.epoch.tasks == [pipe]
    assert pipe.name == "pipe"
    assert dict(pipe.reader.data.blobs) == {"x": "rows", "y": "y"}
    assert list(job.pipes()) == [(job.epoch, pipe)]


def test_columns_of_a_file() -> None:
    do = [Task("m:f")]
    assert Pipe(file="a.npz", do=do).reader.data.file == FileSource("a.npz", {})
    pipe = Pipe({"x": "images"}, file="a.npz", do=do)
    assert pipe.reader.data.file == FileSource("a.npz", {"x": "images"})
    assert pipe.reader.data.blobs == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "reads 'from' blobs, a 'file', a 'call'"),
        ({"from_": ["x"], "do": []}, "without 'do' steps does nothing"),
        ({"from_": ["x"], "reduce": {"los": "sum"}}, "no 'do' step returns; did you mean 'loss'"),
        ({"from_": ["x"], "reduce": {"loss": "avg"}}, "cannot be reduced by 'avg'"),
    ],
)
def test_pipes_that_cannot_be(options: dict[str, Any], message: str) -> None:
    options = {"do": [Task("m:f", out="loss")], **options}
    with pytest.raises(SpecError) as caught:
        Pipe(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task("m:f", thread="other"), "'thread' is 'other', which can only be 'same'"),
        (lambda: Task(Shell("true"), thread="same"), "for functions, not for a program"),
        (
            lambda: Task(Load("run"), out={"w": None}, thread="same"),
            "for functions, not for a load",
        ),
        (
            lambda: Pipe(["x"], do=[Task("m:f", thread="same")]),
            "'thread' of step 'f' belongs to the pipe",
        ),
    ],
)
def test_threads_that_cannot_be(make: Callable[[], Task], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert message in str(caught.value)
    assert Task("m:f", thread="same").thread == Pipe(["x"], do=[Task("m:f")], thread="same").thread


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retries": {"times": 3}}, "'retries' is {'times': 3}, not a number"),
        ({"retries": "3"}, "'retries' is '3', not a number"),
        ({"retries": 0}, "'retries': 'times' is 0, not a whole number from 1"),
        ({"timeout": "1m"}, "'timeout' is '1m', not a number of seconds"),
        ({"timeout": -1.0}, "'timeout' is -1.0, not a number of seconds"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Task(len, "x", **options)


def test_nodes() -> None:
    with Job("many", nodes=["a_0", "a_1", "b"]) as job:
        with Node("a_*"):
            every = Task("m:f")
            with Node("b"):
                one = Task("m:g")
        none = Task("m:h")
        named = Task("m:h", node="a_1")
        wrong = Task("m:h", node="a_2")
    assert job.nodes_of(every) == ("a_0", "a_1")
    assert job.nodes_of(one) == ("b",)
    assert job.nodes_of(named) == ("a_1",)
    with pytest.raises(SpecError, match="names no node"):
        job.nodes_of(none)
    with pytest.raises(SpecError, match="no node 'a_2'; did you mean"):
        job.nodes_of(wrong)
    assert Job("one").nodes_of(none) == ("main",)


def test_vars_of_nodes() -> None:
    nodes = {"a": {"lr": 0.1, "k": 1}, "b": {"lr": 0.2, "k": 1}}
    job = Job("many", vars={"lr": 1.0, "n": 3}, nodes=nodes)
    assert job.node_vars("b") == {"lr": 0.2, "n": 3, "k": 1}
    assert job.shared_vars() == {"n": 3, "k": 1}
    odd = Job("many", nodes={"a": {"k": 1}, "b": {"k": 1.0}})
    assert odd.shared_vars() == {}
    assert Job("one", vars={"n": 3}).shared_vars() == {"n": 3}


def test_conditions_are_kept_as_written() -> None:
    job = Job("sum")
    job.stop(epochs=3, when="loss < 1")
    job.stop(when="loss < 2")
    job.fail(not_finite="loss")
    assert [(c.section, c.kind, c.value) for c in job.conditions] == [
        ("stop", "epochs", 3),
        ("stop", "when", "loss < 1"),
        ("stop", "when", "loss < 2"),
        ("fail", "not_finite", "loss"),
    ]
    assert not job.never_stops
    job.stop(never=True)
    assert job.never_stops


def test_places() -> None:
    here, there = Where("s.yaml", 1, 2), Where("s.yaml", 3, 4)
    task = Task("m:f", where=here, marks={"out": there})
    assert task.mark("out:x", "out") == there
    assert task.mark("in:x") == here
    assert Task("m:f").mark("in:x") is None


def test_strings_with_places_are_templates_as_in_a_spec() -> None:
    task = Task("m:write", with_={"out": "${run.dir}/x", "n": [1, "${node}"]})
    assert task.literals == {"out": template("${run.dir}/x"), "n": [1, template("${node}")]}
    load = Task(Load(file="${spec.dir}/w.npz"), out={"w": "w"}).fn
    assert isinstance(load, Load)
    assert load.file == template("${spec.dir}/w.npz")
    pipe = Pipe(["x"], file="${spec.dir}/x.npz", do=[Task("m:use", "x")])
    assert pipe.reader.data.file is not None
    assert pipe.reader.data.file.path == template("${spec.dir}/x.npz")
    upload = Upload("${env.HOME}/there")
    assert upload.to == template("${env.HOME}/there")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Task("m:write", with_={"out": "${rundir}"}),
        lambda: Task(Load(run="${rundir}"), out={"w": "w"}),
        lambda: Pipe(["x"], file="${rundir}", do=[Task("m:use", "x")]),
        lambda: Upload("${rundir}"),
    ],
)
def test_a_place_that_there_is_not_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises((SpecError, UsageError), match=r"'\$\{rundir\}' is unknown"):
        make()
