"""Whatever a task does to what it was given either raises, or is in the checkpoint: never neither.

Random trees (arrays, some of them tied, numbers, nested dicts and lists) are changed by random
steps, as an input, as an input that is returned, as a part, or as an update.  What Python itself
makes of the same steps is what the checkpoint has to hold, in one run and in one that is resumed.
"""

from __future__ import annotations

import copy
import ctypes
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import same
from hypothesis import event, given, settings
from hypothesis import strategies as st

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Pipe, Task
from jobrun.checkpoint.reading import read_part
from jobrun.errors import TaskError
from jobrun.values.views import view

HAS_TORCH = importlib.util.find_spec("torch") is not None


# Steps: each changes one array or container, and runs without an error on a tree of Python's own.


def fill(x: Any) -> None:
    x[...] = 7


def increase(x: Any) -> None:
    x += 1


def into(x: Any) -> None:
    np.multiply(x, 3, out=x)


def by_view(x: Any) -> None:
    x.reshape(-1)[1:].T[...] = 5


def by_flag(x: Any) -> None:
    x.setflags(write=True)
    x += 1


def by_base(x: Any) -> None:
    if not x.flags.writeable:
        x = x.base
        x.setflags(write=True)
    x += 1


def sort(x: Any) -> None:
    x.reshape(-1)[::-1].sort()


def by_buffer(x: Any) -> None:
    memoryview(x).cast("B")[0] = 1


def by_pointer(x: Any) -> None:
    ctypes.memset(x.__array_interface__["data"][0], 1, 3)


def by_interface(x: Any) -> None:
    pointer = x.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    np.ctypeslib.as_array(pointer, x.shape)[-1] += 1


def from_dlpack(x: Any) -> None:
    importlib.import_module("torch").from_dlpack(x).add_(1)


def from_numpy(x: Any) -> None:
    importlib.import_module("torch").from_numpy(x).add_(1)


def from_buffer(x: Any) -> None:
    torch = importlib.import_module("torch")
    torch.frombuffer(x, dtype=torch.float64).add_(1)


GUARDED = [fill, increase, into, by_view, by_flag, by_base, sort, by_buffer]
NATIVE = [by_pointer, by_interface]
if HAS_TORCH:
    GUARDED += [from_numpy, from_buffer]
    NATIVE += [from_dlpack]


def put_number(c: Any) -> None:
    if isinstance(c, list):
        c.append(len(c))
    else:
        c[f"k{len(c)}"] = 1.5


def put_array(c: Any) -> None:
    _replace(c, np.arange(3.0))


def double(c: Any) -> None:
    """Replace the first item by twice its value, or a number."""
    key = _first(c)
    if key is not None:
        c[key] = c[key] * 2 if isinstance(c[key], np.ndarray) else 3


def drop(c: Any) -> None:
    key = _first(c)
    if key is not None:
        del c[key]


def clear(c: Any) -> None:
    c.clear()


def turn(c: Any) -> None:
    """The first comes last."""
    key = _first(c)
    if key is not None:
        item = c.pop(key)
        c.append(item) if isinstance(c, list) else c.update({key: item})


def tie(c: Any) -> None:
    """An array of the container at another place of it."""
    found = [item for item in _items(c) if isinstance(item, np.ndarray)]
    if found:
        _replace(c, found[0])


def overlap(c: Any) -> None:
    """A view of an array beside it."""
    found = [item for item in _items(c) if isinstance(item, np.ndarray)]
    if found:
        _replace(c, found[0].reshape(-1)[1:])


CONTAINER = [put_number, put_array, double, drop, clear, turn, tie]


def _items(c: Any) -> list[Any]:
    return list(c.values()) if isinstance(c, dict) else list(c)


def _first(c: Any) -> Any:
    keys = list(c) if isinstance(c, dict) else list(range(len(c)))
    return keys[0] if keys else None


def _replace(c: Any, item: Any) -> None:
    if isinstance(c, list):
        c.append(item)
    else:
        c["new"] = item


# Trees.


@st.composite
def trees(draw: st.DrawFn) -> Callable[[], dict[str, Any]]:
    """What makes a tree, the same each time, with the dict ``part`` in it."""
    sizes = st.sampled_from([(2,), (3,), (2, 2), (64, 200)])
    shapes = draw(st.lists(sizes, min_size=1, max_size=3))

    def item(depth: int) -> Any:
        kind = draw(st.integers(0, 5 if depth else 2))
        if kind <= 1:
            return ("array", draw(st.integers(0, len(shapes) - 1)))
        if kind == 2:
            return draw(st.sampled_from([1, 0.5, "x", None, True]))
        inner = [item(depth - 1) for _ in range(draw(st.integers(0, 3)))]
        return inner if kind == 3 else {f"i{n}": x for n, x in enumerate(inner)}

    plan = {"part": {"x": item(1), "y": item(2)}, "a": ("array", 0), "b": item(2), "c": item(1)}

    def build() -> dict[str, Any]:
        arrays = [np.arange(float(np.prod(shape))).reshape(shape) for shape in shapes]

        def made(part: Any) -> Any:
            if isinstance(part, tuple):
                return arrays[part[1]]
            if isinstance(part, dict):
                return {key: made(inner) for key, inner in part.items()}
            return [made(inner) for inner in part] if isinstance(part, list) else part

        found: dict[str, Any] = made(plan)
        return found

    return build


def reached(root: Any) -> Iterator[Any]:
    """The containers and arrays of a tree."""
    if isinstance(root, np.ndarray | dict | list):
        yield root
    for item in _items(root) if isinstance(root, dict | list) else ():
        yield from reached(item)


Steps = list[tuple[Any, int]]


def change(root: Any, steps: Steps) -> None:
    """Apply each step to one of the objects that it is for."""
    for step, pick in steps:
        wanted: Any = np.ndarray if step in GUARDED + NATIVE else dict | list
        objs = [obj for obj in reached(root) if isinstance(obj, wanted)]
        if objs:
            step(objs[pick % len(objs)])


# Jobs.


def job(how: str, build: Callable[[], Any], steps: Steps, epochs: int, pipe: bool) -> Job:
    """A job whose task changes its tree in each epoch, given in some way."""

    def silent(s: Any) -> None:
        change(s, steps)

    def returning(s: Any) -> Any:
        change(s, steps)
        return s

    task = {
        "read": lambda: Task(silent, "s"),
        "return": lambda: Task(returning, "s", out="s"),
        "part": lambda: Task(returning, "s/part", out="s/part"),
        "other": lambda: Task(returning, "s", out="other"),
        "update": lambda: Task(silent, update="s"),
    }[how]
    with Job("job") as made:
        with made.setup:
            Task(lambda: np.arange(1), out="data", name="data")
        with made.init:
            Task(build, out="s", name="build")
            Task(lambda: 0, out="other", name="other")
        if pipe:
            Pipe({"x": "data"}, do=[task()], name="pipe")
        else:
            task()
        with made.exit:
            Task(lambda s, other: None, ["s", "other"], name="see")
        made.stop(epochs=epochs)
    return made


def expected(how: str, build: Callable[[], Any], steps: Steps, epochs: int) -> Any:
    """What Python makes of it."""
    tree = build()
    for _ in range(epochs):
        change(tree["part"] if how == "part" else tree, steps)
    return tree


def train(made: Job, folder: Path, check: bool) -> Any:
    """Run a job to its end; the tree of its last checkpoint."""
    manager = CheckpointManager(folder)
    runner = JobRunner(made, manager, check_inputs=check)
    runner.train(LocalSession(threads=1))
    latest = manager.latest()
    assert latest is not None
    return view(read_part(manager.catalog.path(latest.id), "main", ["s"])["s"])


picks = st.integers(0, 30)


@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.parametrize("check", [False, True])
@settings(deadline=None, max_examples=12)
@given(
    how=st.sampled_from(["read", "return", "part", "other", "update"]),
    build=trees(),
    data=st.data(),
)
def test_a_change_raises_or_is_in_the_checkpoint(
    tmp_path_factory: pytest.TempPathFactory,
    pipe: bool,
    check: bool,
    how: str,
    build: Callable[[], Any],
    data: st.DataObject,
) -> None:
    usable = [*GUARDED, *CONTAINER, overlap, *(NATIVE if check or how == "update" else ())]
    steps = data.draw(st.lists(st.tuples(st.sampled_from(usable), picks), min_size=1, max_size=3))
    folder = tmp_path_factory.mktemp("runs")
    try:
        found = train(job(how, build, steps, 2, pipe), folder / "whole", check)
    except TaskError as error:
        refused = error.message
    else:
        refused = ""
    if refused:
        event(f"{how}: raised")
        # An update is there to change things; only what would come apart is refused.
        assert how != "update" or "overlap in memory" in refused
        return
    event(f"{how}: went on")
    assert same(found, expected(how, build, steps, 2))
    train(job(how, build, steps, 1, pipe), folder / "cut", check)
    assert same(train(job(how, build, steps, 2, pipe), folder / "cut", check), found)


@pytest.mark.parametrize("step", [*GUARDED, *NATIVE, *CONTAINER], ids=lambda step: step.__name__)
@pytest.mark.parametrize("how", ["read", "other"])
def test_each_step_alone_raises_where_it_would_be_lost(tmp_path: Path, how: str, step: Any) -> None:
    def build() -> dict[str, Any]:
        return {"a": np.array([2.0, 1.0, 3.0]), "part": {"x": [1, np.ones(2)]}}

    changed = build()
    change(changed, [(step, 0)])
    assert not same(changed, copy.deepcopy(build()))
    lost = r"changed (an input|one of its inputs .*) in place|read-only|readonly|not writ|WRITEABLE"
    with pytest.raises(TaskError, match=lost):
        train(job(how, build, [(step, 0)], 1, False), tmp_path / "run", step in NATIVE)
