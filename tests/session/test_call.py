"""One call of a function: arguments, results, updates, errors, and the check of inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobrun.core.template import template
from jobrun.errors import TaskError, ValueRefusedError, Where
from jobrun.model.job import Job, Task
from jobrun.session.call import Call
from jobrun.session.stores import CallContext, Stores
from jobrun.values.adoption import adopt
from jobrun.values.views import view
from jobrun.values.workspace import Workspace


class Bench:
    """Stores with blobs, and calls on them."""

    def __init__(self, job: Job | None = None, **blobs: Any) -> None:
        self.job = job or Job("j", vars={"lr": 0.5, "sizes": [1, 2]})
        self.stores = Stores({n: Workspace() for n in self.job.nodes})
        for name, obj in blobs.items():
            self.put(name, obj)

    def put(self, name: str, obj: Any, node: str = "main") -> None:
        self.stores.nodes[node].put(name, adopt([obj]))

    def call(self, task: Task, node: str = "main", **kwargs: Any) -> Call:
        assert callable(task.fn)
        return Call(self.job, "epoch", task, node, task.fn, self.stores, **kwargs)

    def run(
        self, task: Task, moment: CallContext | None = None, node: str = "main", **kwargs: Any
    ) -> dict[str, Any]:
        """What a call writes; the values are stored too."""
        writes = self.call(task, node, **kwargs).run(moment or CallContext(1))
        for (where, path), value in writes:
            if where:
                self.stores.nodes[where].put(path, value)
        return {path: view(value) for (_, path), value in writes}

    def fails(self, task: Task, **kwargs: Any) -> TaskError:
        with pytest.raises(TaskError) as caught:
            self.run(task, **kwargs)
        return caught.value


def seen(*args: Any, **kwargs: Any) -> Any:
    """Gives its arguments as they are."""
    return {"args": list(args), "kwargs": kwargs}


# Arguments.


def test_positional_arguments_are_in_order_first_in_then_update() -> None:
    bench = Bench(a=1, b=2, w=np.zeros(2))
    got: list[Any] = []
    bench.run(Task(lambda *args: got.extend(args), ["b", "a"], update=["w"]))
    assert got[:2] == [2, 1]
    assert got[2].flags.writeable


def test_keyword_arguments_vars_literals_and_what_is_reserved() -> None:
    bench = Bench(a=1)
    task = Task(
        seen,
        {"x": "a", "rate": "lr", "sizes": "sizes", "epoch": "epoch", "node": "node"},
        with_={"mode": "fast", "list": [1]},
        out="r",
    )
    assert bench.run(task, CallContext(7))["r"]["kwargs"] == {
        "x": 1,
        "rate": 0.5,
        "sizes": [1, 2],
        "epoch": 7,
        "node": "main",
        "mode": "fast",
        "list": [1],
    }


def test_literals_cannot_be_changed_for_the_next_call() -> None:
    bench = Bench()

    def spoil(names: Any, deep: Any, array: Any, pair: Any, some: Any) -> int:
        for held in (names, deep["a"], pair[0]):
            held.append(1)
        array += 1
        some.add(3)
        return sum(map(len, (names, deep["a"], pair[0], some))) + int(array[0])

    literals = {
        "names": ["a"],
        "deep": {"a": []},
        "array": np.zeros(1),
        "pair": ([], 1),
        "some": {1},
    }
    call = bench.call(Task(spoil, with_=literals, out="n"))
    numbers = [view(call.run(CallContext(e))[0][1]) for e in (1, 2, 3)]
    assert numbers == [7, 7, 7]


def test_texts_are_rendered() -> None:
    task = Task(
        seen, with_={"path": template("${run.dir}/x"), "all": [template("${node}")]}, out="r"
    )
    got = Bench().run(task, texts={"run.dir": "/runs/r", "node": "main"})["r"]["kwargs"]
    assert got == {"path": "/runs/r/x", "all": ["main"]}


def test_random_numbers_depend_on_the_place_of_the_call() -> None:
    task = Task(lambda rng: rng.random(), "rng", out="r", name="draw")
    draws = {
        key: Bench().run(task, moment, **kwargs)["r"]
        for key, moment, kwargs in [
            ("epoch 1", CallContext(1), {}),
            ("epoch 2", CallContext(2), {}),
            ("batch 0", CallContext(1, 0), {}),
            ("batch 1", CallContext(1, 1), {}),
            ("name", CallContext(1), {"name": "other"}),
        ]
    }
    assert len(set(draws.values())) == 5
    assert Bench(more=1).run(task, CallContext(2))["r"] == draws["epoch 2"]


def test_columns_come_before_blobs_and_are_named_if_missing() -> None:
    bench = Bench(x=1)
    moment = CallContext(1, 0, {"col": adopt([np.arange(3)])})
    task = Task(seen, ["col", "x"], out="r")
    args = bench.run(task, moment, columns=["col"])["r"]["args"]
    assert args[0].tolist() == [0, 1, 2]
    assert args[1] == 1
    error = bench.fails(Task(seen, "colm", out="r"), moment=moment, columns=["colm"])
    assert "there is no column 'colm'" in error.message
    assert "'col'" in error.hint


def test_blobs_of_other_nodes() -> None:
    bench = Bench(Job("j", nodes={"t_0": {"lr": 1}, "t_1": {"lr": 2}}))
    bench.put("w", 10, "t_0")
    bench.put("w", 20, "t_1")
    task = Task(seen, ["t_*:w", "t_1:w", "w", "lr"], out="r")
    assert bench.run(task, node="t_0")["r"]["args"] == [[10, 20], 20, 10, 1]


def test_the_best_checkpoint() -> None:
    bench = Bench()
    task = Task(seen, "best:m", out="r")
    assert "no best checkpoint" in bench.fails(task).message
    bench.stores.best["main", "m"] = adopt([3])
    assert bench.run(task)["r"]["args"] == [3]


def test_a_blob_without_a_value_is_named_with_the_nearest() -> None:
    error = Bench(weights=1).fails(Task(seen, "weigths", out="r"))
    assert "'weigths' has no value" in error.message
    assert "'weights'" in error.hint


# Results.


def test_one_name_takes_the_value_as_it_is() -> None:
    bench = Bench()
    assert bench.run(Task(lambda: (1, 2), out="pair")) == {"pair": (1, 2)}
    assert bench.run(Task(lambda: None, out="nothing")) == {"nothing": None}
    assert bench.run(Task(lambda: {"a": 1}, out="tree")) == {"tree": {"a": 1}}


@pytest.mark.parametrize("result", [(1, 2), [1, 2]])
def test_a_list_of_names_takes_the_elements(result: Any) -> None:
    assert Bench().run(Task(lambda: result, out=["a", "b"])) == {"a": 1, "b": 2}


def test_a_list_of_one_name_takes_a_tuple_of_one() -> None:
    assert Bench().run(Task(lambda: (5,), out=["a"])) == {"a": 5}


def test_a_mapping_takes_parts_of_a_dict() -> None:
    task = Task(lambda: {"x": 1, "y": 2, "z": 3}, out={"z": "a", "x": None})
    assert Bench().run(task) == {"a": 3, "x": 1}


def test_a_glob_takes_one_value_for_each_node() -> None:
    bench = Bench(Job("j", nodes=["t_0", "t_1", "e"]))
    bench.run(Task(lambda: [1, 2], out="t_*:w"), node="e")
    assert view(bench.stores.get(("t_0", "w"))) == 1
    assert view(bench.stores.get(("t_1", "w"))) == 2


@pytest.mark.parametrize(
    ("result", "out", "message"),
    [
        (3, None, "it returned an int, but the task has no 'out'"),
        (3, ["a", "b"], "'out' names 2 blobs, but it returned an int"),
        ((1, 2, 3), ["a", "b"], "'out' names 2 blobs, but it returned a tuple of 3"),
        (np.zeros(2), ["a", "b"], "returned a ndarray"),
        (3, ["a"], "'out' is a list of one name, but it returned an int"),
        (3, {"x": "a"}, "'out' expects a dict, but it returned an int"),
        ({"xx": 1}, {"x": "a"}, "the returned dict has no key 'x'"),
        ({}, {"x": "a"}, "has no key 'x'"),
    ],
)
def test_results_that_do_not_fit(result: Any, out: Any, message: str) -> None:
    error = Bench().fails(Task(lambda: result, out=out, name="t"))
    assert message in error.message
    assert error.message.startswith("task 't' of group 'epoch' failed: ")


def test_a_list_of_one_name_takes_a_tuple_and_a_name_the_value() -> None:
    error = Bench().fails(Task(lambda: 3.0, out=["loss"], name="t"))
    assert error.hint == "return a tuple of 1, or write 'out: loss' for the value itself"


def test_after_a_failure_the_order_of_the_arguments_is_a_hint() -> None:
    def scale(x: Any, y: Any) -> Any:
        return x.shape, y

    with Job("j", vars={"x": 1, "y": 2}) as job:
        task = Task(scale, in_=["y", "x"], out=["a", "b"], name="t")
    error = Bench(job).fails(task)
    assert error.hint.endswith(" gets 'y' as its 'x'; by keyword: in: {y, x}")


@pytest.mark.parametrize(
    ("result", "out", "hint"),
    [
        ({"a": 1, "b": 2}, ["a", "b"], "write 'out: {a, b}' to take its keys"),
        ({"a": 1}, ["a", "b"], "return a tuple of 2"),
        ((1, 2), {"x": "a", "y": "b"}, "write 'out: [a, b]' for a tuple"),
        ((1, 2, 3), {"x": "a", "y": "b"}, ""),
    ],
)
def test_a_dict_for_a_tuple_and_the_other_way_round(result: Any, out: Any, hint: str) -> None:
    assert Bench().fails(Task(lambda: result, out=out, name="t")).hint == hint


@pytest.mark.parametrize("result", [[1], [1, 2, 3], 5, np.zeros(2), {"a": 1, "b": 2}])
def test_a_glob_needs_a_list_of_as_many_values(result: Any) -> None:
    bench = Bench(Job("j", nodes=["t_0", "t_1", "e"]))
    with pytest.raises(TaskError, match=r"on node 'e' failed.*return a list of 2 values"):
        bench.run(Task(lambda: result, out="t_*:w"), node="e")


def test_a_value_that_cannot_be_is_an_error_of_the_task() -> None:
    where = Where("job.yaml", 3, 5, "  - call: m:f")
    task = Task(lambda: 1 << (1 << 21), out="n", name="big", where=where)
    error = Bench().fails(task)
    assert isinstance(error, ValueRefusedError)
    assert "task 'big'" in error.message
    assert error.where == where
    assert error.hint


# Updates.


def test_an_update_changes_a_blob_in_place() -> None:
    bench = Bench()
    bench.stores.nodes["main"].put("w", adopt([np.zeros(1000)]))
    place = view(bench.stores.get(("main", "w"))).ctypes.data

    def add(w: Any) -> None:
        w += 1

    for _ in range(3):
        bench.run(Task(add, update="w"))
    read = view(bench.stores.get(("main", "w")))
    assert read[0] == 3
    assert read.ctypes.data == place


def test_what_a_task_kept_of_an_update_cannot_change_the_blob() -> None:
    kept: list[Any] = []

    def keep(w: Any) -> None:
        kept.append(w)

    bench = Bench(w=np.zeros(3))
    bench.run(Task(keep, update="w"))
    kept[0][:] = 7
    assert not view(bench.stores.get(("main", "w"))).any()


def test_a_blob_may_be_read_and_updated_by_one_task() -> None:
    def shift(old: Any, new: Any) -> float:
        new += 1
        return float(old.sum())

    bench = Bench(w=np.zeros(3))
    got = bench.run(Task(shift, {"old": "w"}, update={"new": "w"}, out="before"))
    assert got["before"] == 0.0
    assert got["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(("reads", "updates"), [("m/a", "m"), ("m", "m/a")])
def test_a_leaf_may_be_read_beside_an_update_of_its_tree(reads: str, updates: str) -> None:
    def change(old: Any, new: Any) -> Any:
        (new["a"] if updates == "m" else new)[...] = 5
        return (old["a"] if reads == "m" else old).copy()

    bench = Bench(m={"a": np.zeros(3)})
    got = bench.run(Task(change, {"old": reads}, update={"new": updates}, out="before"))
    assert not got["before"].any()
    assert view(bench.stores.get(("main", "m/a"))).tolist() == [5, 5, 5]


def test_an_updated_tree_is_what_the_dict_is_after_the_call() -> None:
    def change(m: dict[str, Any]) -> None:
        m["w"] = m["w"] * 2
        m["fresh"] = 1
        del m["gone"]

    bench = Bench(m={"w": np.ones(2), "gone": 0})
    assert list(bench.run(Task(change, update="m"))["m"]) == ["w", "fresh"]


def test_one_array_in_two_results_does_not_tie_them() -> None:
    def both(w: Any) -> Any:
        w += 1
        return w, w

    bench = Bench(w=np.zeros(3))
    bench.run(Task(both, update="w", out=["a", "b"]))

    def add(x: Any) -> None:
        x += 1

    bench.run(Task(add, update="a"))
    values = [view(bench.stores.get(("main", n)))[0] for n in "abw"]
    assert values == [2, 1, 1]


@pytest.mark.parametrize("scalar", [1, 0.5, True, "x", None, np.float32(1)])
def test_an_update_of_a_scalar_is_an_error_with_the_remedy(scalar: Any) -> None:
    error = Bench(n=scalar).fails(Task(lambda n: None, update="n"))
    assert "'n' is a single" in error.message
    assert "under both 'in' and 'out'" in error.hint


def test_an_update_of_what_has_no_value() -> None:
    assert "has no value" in Bench().fails(Task(lambda n: None, update="n")).message


# Errors.


def test_a_failing_function_is_shown_by_the_users_own_lines() -> None:
    def inner() -> None:
        raise ValueError("too bad")

    def outer() -> None:
        inner()  # marked

    where = Where("job.yaml", 9, 5)
    error = Bench().fails(Task(outer, name="t", where=where))
    assert error.message == "task 't' of group 'epoch' failed: ValueError: too bad"
    assert error.where == where
    assert "inner()  # marked" in error.trace
    assert "session/call.py" not in error.trace
    assert isinstance(error.__cause__, ValueError)


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_whatever_is_raised_is_an_error_of_the_task(raised: BaseException) -> None:
    def fail() -> None:
        raise raised

    error = Bench().fails(Task(fail))
    assert type(raised).__name__ in error.message
    if isinstance(raised, SystemExit):
        assert "ends by returning" in error.hint


def test_an_error_that_cannot_say_what_it_is() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise MuteError

    assert Bench().fails(Task(fail, name="t")).message.endswith("failed: MuteError")


@pytest.mark.parametrize(
    "write",
    [
        lambda a: a.__setitem__(0, 1),
        lambda a: a.__iadd__(1),
        lambda a: a.sort(),
        lambda a: np.add(a, 1, out=a),
        lambda a: a.setflags(write=True),
        lambda a: memoryview(a).cast("B").__setitem__(0, 1),
        lambda a: ctypes.c_char.from_buffer(a),
    ],
)
def test_writing_into_an_input_is_an_error_with_the_remedy(write: Callable[[Any], Any]) -> None:
    error = Bench(a=np.arange(3.0)).fails(Task(write, "a", out="r"))
    assert "'update' instead of 'in' and 'out'" in error.hint or "WRITEABLE" in error.message


# The check of inputs.


def by_pointer(a: Any) -> None:
    """Writes into an array whatever its flags say."""
    ctypes.memset(a.__array_interface__["data"][0], 1, 1)


def by_ctypes(a: Any) -> None:
    """Writes by way of ``.ctypes``."""
    a.ctypes.data_as(ctypes.POINTER(ctypes.c_ubyte))[0] = 1


def by_interface(a: Any) -> None:
    """Writes through an array made from the interface of another."""

    class Holder:
        def __init__(self) -> None:
            self.__array_interface__ = {**a.__array_interface__, "data": (a.ctypes.data, False)}

    np.asarray(Holder())[0] = 1


@pytest.mark.parametrize("write", [by_pointer, by_ctypes, by_interface])
def test_a_task_that_writes_behind_the_flags_is_found(write: Callable[[Any], None]) -> None:
    error = Bench(a=np.zeros(3), b=np.zeros(3)).fails(
        Task(lambda b, a: write(a), ["b", "a"], name="culprit"), check=True
    )
    assert "task 'culprit'" in error.message
    assert "changed one of its inputs ('a')" in error.message
    assert "'update'" in error.hint


def test_the_check_names_leaves() -> None:
    bench = Bench(m={"w": np.zeros(3), "b": np.zeros(3)})
    error = bench.fails(Task(lambda m: by_pointer(m["b"]), "m"), check=True)
    assert "('m/b')" in error.message


def test_the_check_is_content_with_what_is_allowed() -> None:
    def fine(a: Any, m: Any, w: Any) -> Any:
        w += a
        dict(m)["fresh"] = 1
        return a * 2

    bench = Bench(a=np.ones(3), m={"x": np.zeros(2)}, w=np.zeros(3))
    task = Task(fine, {"a": "a", "m": "m"}, update={"w": "w"}, out="r")
    assert bench.run(task, check=True)["r"].tolist() == [2, 2, 2]


def test_without_the_check_nobody_looks() -> None:
    assert Bench(a=np.zeros(3)).run(Task(by_pointer, "a")) == {}
