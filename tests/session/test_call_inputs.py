"""Dicts and lists that a call was given to read: a change in place is an error, or is written."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobrun.errors import TaskError, Where
from jobrun.model.job import Job, Task
from jobrun.model.options import Retries
from jobrun.session.call import Call
from jobrun.session.stores import CallContext, Stores
from jobrun.values.adoption import adopt
from jobrun.values.views import view
from jobrun.values.workspace import Workspace


def tree() -> dict[str, Any]:
    """A blob of every shape: numbers, an array, a nested dict, a nested list."""
    return {"n": 1, "x": np.zeros(2), "deep": {"k": 2.0, "l": [1, {"m": 3}]}, "l": [4, 5]}


def stores(job: Job, **blobs: Any) -> Stores:
    """The blobs on every node of a job."""
    made = Stores({node: Workspace() for node in job.nodes})
    for workspace in made.nodes.values():
        for name, obj in blobs.items():
            workspace.put(name, adopt([copy.deepcopy(obj)]))
    return made


def run(
    task: Task, job: Job | None = None, moment: CallContext | None = None, **kwargs: Any
) -> Any:
    """Call a task once on blobs ``s`` and ``w``; return what it wrote, by name."""
    job = job or Job("j", vars={"sizes": [1, {"a": 2}], "pair": ([1], np.zeros(2))})
    assert callable(task.fn)
    blobs = stores(job, s=tree(), w=[1, 2])
    call = Call(job, "epoch", task, next(iter(job.nodes)), task.fn, blobs, **kwargs)
    return {path: view(value) for (_, path), value in call.run(moment or CallContext(1))}


def fails(task: Task, **kwargs: Any) -> TaskError:
    """The error of a call."""
    with pytest.raises(TaskError) as caught:
        run(task, **kwargs)
    return caught.value


CHANGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: s.__setitem__("n", 2), "in the dict 's', the value of key 'n' was replaced"),
    (lambda s: s.__setitem__("n", 1.0), "in the dict 's', the value of key 'n' was replaced"),
    (lambda s: s.__setitem__("x", s["x"] + 1), "the value of key 'x' was replaced"),
    (lambda s: s.__setitem__("new", 2), "in the dict 's', key 'new' was added"),
    (lambda s: s.pop("x"), "in the dict 's', key 'x' was removed"),
    (lambda s: s.clear(), "in the dict 's', key 'n' was removed"),
    (lambda s: s.__setitem__("n", s.pop("n")), "in the dict 's', its keys are in another order"),
    (lambda s: s["deep"].__setitem__("k", 3.0), "in the dict 's/deep', the value of key 'k'"),
    (lambda s: s["deep"]["l"].append(2), "in the list 's/deep/l', it has 3 items, and had 2"),
    (lambda s: s["deep"]["l"][1].update(m=0), "in the dict 's/deep/l/1', the value of key 'm'"),
    (lambda s: s["l"].reverse(), "in the list 's/l', item 0 was replaced"),
    (lambda s: s["l"].clear(), "in the list 's/l', it has 0 items, and had 2"),
    (lambda s: s.__setitem__("deep", dict(s["deep"])), "the value of key 'deep' was replaced"),
]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_a_change_in_place_is_an_error_that_names_update(
    change: Callable[[Any], Any], text: str, check: bool
) -> None:
    def task(s: Any) -> int:
        change(s)
        return 0

    where = Where("job.yaml", 7, 9)
    step = Task(task, {"s": "s"}, out="r", name="culprit", where=where)
    error = fails(step, check=check)
    assert error.message.startswith("task 'culprit' of group 'epoch' failed: it changed an input")
    assert text in error.message
    assert "under 'update'" in error.hint
    assert error.where == where


def test_the_place_is_that_of_the_input() -> None:
    task = Task(lambda w, s: s.clear(), ["w", "s"])
    task.marks["in:s"] = Where("job.yaml", 3, 12)
    assert fails(task).where == Where("job.yaml", 3, 12)


def test_a_task_without_outputs_is_looked_at_too() -> None:
    assert "in the list 'w'" in fails(Task(lambda w: w.append(3), "w")).message


def test_a_part_of_a_tree_is_named_by_its_path() -> None:
    assert "in the list 's/deep/l'" in fails(Task(lambda part: part.pop(), "s/deep/l")).message


def append(w: list[int]) -> list[int]:
    """A list changed in place, and returned."""
    w.append(3)
    return w


def deep(s: Any) -> Any:
    """A tree changed deep inside, and returned."""
    s["deep"]["l"][1]["m"] = 9
    return s


@pytest.mark.parametrize(
    ("function", "in_", "out", "name", "expected"),
    [
        (append, "w", "w", "w", [1, 2, 3]),
        (lambda w: (append(w), 0), "w", ["w", "n"], "w", [1, 2, 3]),
        (lambda w: {"r": append(w)}, "w", {"r": "w"}, "w", [1, 2, 3]),
        (lambda w: tuple(append(w)), "w", "w", "w", (1, 2, 3)),
        (lambda s: (s["l"].pop(), s["l"])[1], "s", "s/l", "s/l", [4]),
        (lambda part: deep({"deep": part})["deep"], "s/deep", "s/deep", "s/deep/l/1", {"m": 9}),
        (lambda part: {**tree(), "l": append(part)}, "s/l", "s", "s/l", [4, 5, 3]),
    ],
)
def test_what_is_returned_for_its_own_blob_is_no_lost_change(
    function: Any, in_: Any, out: Any, name: str, expected: Any
) -> None:
    written = run(Task(function, in_, out=out))
    head = next(path for path in written if name == path or name.startswith(path + "/"))
    found = written[head]
    for part in name[len(head) + 1 :].split("/") if name != head else ():
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert found == expected


def test_a_tree_changed_deep_inside_and_returned_is_written() -> None:
    assert run(Task(deep, "s", out="s"))["s"]["deep"]["l"] == [1, {"m": 9}]


def test_a_copy_that_holds_the_change_is_as_good_as_the_container() -> None:
    def task(s: Any) -> Any:
        s["n"] = 7
        return {**s}

    assert run(Task(task, "s", out="s"))["s"]["n"] == 7


@pytest.mark.parametrize(
    ("function", "in_", "out"),
    [
        (append, "w", "other"),
        (lambda w: (0, append(w)), "w", ["w", "n"]),
        (lambda a, b: (append(a), b)[1], {"a": "w", "b": "w"}, "w"),
        (lambda s: (s["l"].pop(), s["l"])[1], "s", "s/deep"),
        (lambda s: (s["l"].pop(), [4, 5])[1], "s", "s/l"),
    ],
)
def test_what_is_returned_for_another_blob_does_not_save_the_change(
    function: Any, in_: Any, out: Any
) -> None:
    assert "in place" in fails(Task(function, in_, out=out)).message


def test_the_container_is_a_plain_one_and_new_for_each_call() -> None:
    seen: list[Any] = []

    def keep(s: Any) -> None:
        seen.append(s)

    job = Job("j")
    blobs = stores(job, s=tree())
    call = Call(job, "epoch", Task(keep, "s"), "main", keep, blobs)
    call.run(CallContext(1))
    seen[0]["n"] = seen[0]["deep"]["k"] = 100
    call.run(CallContext(2))
    assert type(seen[1]) is type(seen[1]["deep"]) is dict
    assert (seen[1]["n"], seen[1]["deep"]["k"]) == (1, 2.0)


def test_the_list_of_a_pattern_and_what_it_holds() -> None:
    job = Job("j", nodes=["t_0", "t_1"])
    error = fails(Task(lambda ws: ws.append(1), "t_*:w"), job=job)
    assert "in the list 't_*:w', it has 3 items, and had 2" in error.message
    error = fails(Task(lambda ws: ws[1].append(1), "t_*:w"), job=job)
    assert "in the list 't_*:w/1', it has 3 items, and had 2" in error.message


def test_a_pattern_changed_in_place_and_returned_is_written() -> None:
    job = Job("j", nodes=["t_0", "t_1"])

    def task(ws: Any) -> Any:
        ws[0].append(9)
        ws[1] = [5]
        return ws

    blobs = stores(job, w=[1])
    writes = Call(job, "epoch", Task(task, "t_*:w", out="t_*:w"), "t_0", task, blobs).run(
        CallContext(1)
    )
    assert {node: view(value) for (node, _), value in writes} == {"t_0": [1, 9], "t_1": [5]}


def test_a_column_that_is_a_tree() -> None:
    moment = CallContext(1, 0, {"c": adopt([{"a": [1]}])})
    kwargs: dict[str, Any] = {"moment": moment, "columns": ["c"], "puts_columns": True}
    error = fails(Task(lambda c: append(c["a"]), "c", out="d"), **kwargs)
    assert "in the list 'c/a'" in error.message
    assert "under 'out'" in error.hint
    assert "update" not in error.hint
    assert run(Task(lambda c: {"a": append(c["a"])}, "c", out="c"), **kwargs)["c"] == {"a": [1, 3]}


def test_a_var_keeps_its_value() -> None:
    error = fails(Task(lambda sizes: sizes[1].update(a=3), "sizes"))
    assert "in the dict 'sizes/1', the value of key 'a' was replaced" in error.message
    assert "'init'" in error.hint
    assert "read-only" in fails(Task(lambda pair: pair[1].fill(1), "pair")).message


def test_the_best_checkpoint_has_no_update() -> None:
    job = Job("j")
    blobs = stores(job)
    blobs.best["main", "s"] = adopt([tree()])
    task = Task(deep, "best:s", out="s")
    with pytest.raises(TaskError) as caught:
        Call(job, "exit", task, "main", deep, blobs).run(CallContext(1))
    assert caught.value.hint == "work on a copy (copy.deepcopy)"


def test_an_opaque_object_is_the_users_own() -> None:
    job = Job("j")
    blobs = stores(job, table={"a"}, s={"t": {b"2": [3]}})

    def task(table: Any, s: Any) -> None:
        table.add("b")
        s["t"][b"2"].append(4)

    Call(job, "epoch", Task(task, ["table", "s"]), "main", task, blobs).run(CallContext(1))
    assert view(blobs.get(("main", "table"))) == {"a", "b"}
    assert view(blobs.get(("main", "s/t"))) == {b"2": [3, 4]}


@dataclasses.dataclass
class Point:
    place: list[int]
    step: int = 0


def _step(point: Point) -> None:
    point.step += 1


def _deep(point: Point) -> None:
    point.place.append(2)


def _key(table: dict[Any, Any]) -> None:
    table[1, "a"] = 3


def _draw(rng: np.random.Generator) -> None:
    rng.random()


def _inner(pair: tuple[Any, ...]) -> None:
    pair[1]["x"] = 3


@pytest.mark.parametrize(
    ("function", "value", "what"),
    [
        (_step, Point([1]), "in the Point 'x', its content was changed"),
        (_deep, Point([1]), "in the Point 'x', its content was changed"),
        (_key, {(1, "a"): 2}, "in the dict 'x', the value of key (1, 'a') was replaced"),
        (_draw, np.random.default_rng(1), "in the Generator 'x', its content was changed"),
        (_inner, (1, {"x": 2}), "in the dict 'x/1', the value of key 'x' was replaced"),
    ],
)
def test_a_change_of_an_object_under_in_is_an_error(function: Any, value: Any, what: str) -> None:
    job = Job("j")
    blobs = stores(job, x=value)
    with pytest.raises(TaskError) as caught:
        Call(job, "epoch", Task(function, "x"), "main", function, blobs).run(CallContext(1))
    assert what in caught.value.message
    assert "update" in caught.value.hint


def test_an_object_that_is_updated_or_only_read() -> None:
    job = Job("j")
    blobs = stores(job, x=Point([1]))
    Call(job, "epoch", Task(len, "x/place"), "main", len, blobs)
    writes = Call(job, "epoch", Task(_step, update="x"), "main", _step, blobs).run(CallContext(1))
    assert [view(value) for _, value in writes] == [Point([1], 1)]
    read = Call(job, "epoch", Task(repr, "x", out="y"), "main", repr, blobs).run(CallContext(1))
    assert "Point" in view(read[0][1])


def test_a_call_that_is_made_again_gets_containers_as_they_were() -> None:
    tries: list[Any] = []

    def flaky(w: Any) -> Any:
        tries.append(list(w))
        w.append(0)
        if len(tries) < 3:
            raise OSError("not yet")
        return w

    job = Job("j")
    blobs = stores(job, w=[1])
    call = Call(job, "epoch", Task(flaky, "w", out="w", retries=Retries(3)), "main", flaky, blobs)
    ((_, value),) = call.run(CallContext(1), call.gather(CallContext(1)))
    assert tries == [[1], [1], [1]]
    assert view(value) == [1, 0]


def test_what_a_source_of_rows_is_given_is_looked_at() -> None:
    def rows(w: Any) -> Any:
        w.append(1)
        return iter(w)

    job = Job("j")
    call = Call(job, "epoch", Task(rows, "w"), "main", rows, stores(job, w=[1]))
    with pytest.raises(TaskError, match="in the list 'w'"):
        call.value(CallContext())
