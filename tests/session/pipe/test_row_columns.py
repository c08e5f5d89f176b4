"""How many rows a batch has: only columns that the reader gave, or that ``rows`` names, say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine import Driver
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.errors import DataError, SpecError, TaskError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.pipe.row_columns import RowColumns, row_columns
from jobrun.values.adoption import adopt
from jobrun.values.boxes import Value


def nothing(*args: Any) -> None:
    """A step that is never called."""


def pipe(steps: list[tuple[Any, Any]], do: Any, **kwargs: Any) -> Pipe:
    """A pipe over x, y and z, whose ``map`` steps read and put out what is given of each."""
    map_ = [Task(nothing, reads, out=puts, name=f"m{n}") for n, (reads, puts) in enumerate(steps)]
    return Pipe(["x", "y", "z"], map=map_, do=[Task(nothing, do)], **kwargs)


@pytest.mark.parametrize(
    ("steps", "do", "expected"),
    [
        ([], ["x"], ()),
        ([("x", "hits")], ["hits"], ()),
        ([("x", "hits")], ["x", "hits"], ()),
        ([(["x", "y"], ["x", "y"])], ["x", "y"], ("x", "y")),
        ([(["x", "y"], ["x", "y"])], ["x"], ("x", "y")),
        ([(["x", "z"], "x")], ["x"], ("x",)),
        ([("x", "x")], ["x", "y"], ("x", "y")),
        ([("x", "x")], ["x/part"], ("x",)),
        # What is made of the rows that are left does not hide them.
        ([(["x", "y"], ["x", "y"]), ("x", "new")], ["new"], ("x", "y")),
        # A column that was put out anew before the last such step, and is used no more, is old.
        ([("y", "y"), (["x", "y"], "x")], ["x"], ("x",)),
        ([("y", "y"), (["x", "y"], "x"), ("y", "new")], ["x"], ("x", "y")),
    ],
)
def test_which_columns_say_how_many_rows_are_left(
    steps: list[Any], do: Any, expected: tuple[str, ...]
) -> None:
    assert row_columns(pipe(steps, do), ["x", "y", "z"]) == RowColumns(expected)


def test_rows_says_it() -> None:
    found = row_columns(pipe([("x", "new")], ["new"], rows="new"), ["x", "y", "z"])
    assert found == RowColumns(("new",), named=True)


def columns(**values: Any) -> dict[str, Value]:
    return {name: adopt([value]) for name, value in values.items()}


def test_rows_are_the_length_that_the_columns_have_in_common() -> None:
    assert RowColumns(()).left(columns(x=np.zeros(3)), 8) == 8
    assert RowColumns(("x", "y")).left(columns(x=np.zeros(3), y=np.zeros((3, 2))), 8) == 3
    assert RowColumns(("x",)).left(columns(x={"a": np.zeros(3), "b": [np.zeros(3)]}), 8) == 3
    assert RowColumns(("x",)).left(columns(x=2.5), 8) == 8
    assert RowColumns(("x/a",), True).left(columns(x={"a": np.zeros(3), "b": np.zeros(4)}), 8) == 3
    with pytest.raises(DataError, match=r"differ in rows: 'x' has 3, 'y/b' has 4") as caught:
        RowColumns(("x", "y")).left(columns(x=np.zeros(3), y={"b": np.zeros(4)}), 8)
    assert "'rows: x'" in caught.value.hint


@pytest.mark.parametrize("value", [2.5, np.float64(2), {"a": np.zeros(3)}, None])
def test_rows_must_name_an_array(value: Any) -> None:
    with pytest.raises(DataError, match="'rows' names 'x', which is not an array of rows"):
        RowColumns(("x",), named=True).left(columns(x=value), 8)


def test_rows_must_name_a_column() -> None:
    with pytest.raises(SpecError, match=r"'rows' names 'nwe', which is not a column.*'new'"):
        pipe([("x", "new")], ["new"], rows="nwe")
    with pytest.raises(SpecError, match="there are none"):
        pipe([], ["x"], rows="x")
    assert pipe([("x", "new")], ["new/part"], rows="new/part").reader.rows == "new/part"


# In a run.


def loss_of(steps: list[Task], do: Task, **kwargs: Any) -> Any:
    """The loss after an epoch over 0 .. 9 in batches of 8 and 2."""
    job = Job("j", seed=1)
    with job.setup:
        Task(lambda: (np.arange(10.0), np.arange(10.0)), out=["a", "b"], name="load")
    with job.epoch:
        Pipe({"x": "a", "y": "b"}, batch=8, map=steps, do=[do], **kwargs)
    driver = Driver(job, 1).start()
    assert driver.epoch()
    return driver.blob("loss")


def histogram(x: Any) -> Any:
    return np.histogram(x, bins=4)[0]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_histogram_does_not_change_what_a_batch_weighs(threads: int) -> None:
    put = Task(lambda bins: 6.0 + 4.0 * (bins.sum() == 2), "bins", out="loss", name="put")
    found = loss_of([Task(histogram, "x", out="bins")], put, threads=threads)
    assert found == (6.0 * 8 + 10.0 * 2) / 10  # 6.8; by the four bins of each it would be 8


def test_a_batch_without_hits_is_applied() -> None:
    put = Task(lambda hits: float(len(hits)), "hits", out="loss", name="put")
    steps = [Task(lambda x: np.flatnonzero(x > 8), "x", out="hits", name="find")]
    assert loss_of(steps, put) == (0 * 8 + 1 * 2) / 10


def test_columns_that_a_filter_forgot_are_an_error_with_batch_and_place() -> None:
    where = Where("job.yaml", 7, 5)
    put = Task(lambda x, y: 1.0, ["x", "y"], out="loss", name="put")
    steps = [Task(lambda x: x[x < 5], "x", out="x", name="small")]
    with pytest.raises(DataError, match=r"pipe 'p' of group 'epoch' in batch 1: .*x.* 5.*y.* 8"):
        loss_of(steps, put, name="p")
    with pytest.raises(DataError, match="differ") as caught:
        loss_of(steps, put, where=where)
    assert caught.value.where == where
    assert loss_of(steps, put, rows="y") == 1.0


def test_rows_may_stand_in_a_column_of_another_name() -> None:
    steps = [Task(lambda x: x[x > 5], "x", out="big", name="big")]
    put = Task(lambda big: float(big.mean()), "big", out="loss", name="put")
    assert loss_of(steps, put, rows="big") == (6.5 * 2 + 8.5 * 2) / 4
    assert loss_of(steps, put) == (6.5 * 8 + 8.5 * 2) / 10


def test_a_column_of_rows_that_is_not_there_is_an_error_of_the_pipe() -> None:
    steps = [Task(lambda x: {"a": x}, "x", out="t", name="tree")]
    put = Task(lambda x: 1.0, "x", out="loss", name="put")
    with pytest.raises(TaskError, match=r"in batch 1: column 't' has no part 'b'"):
        loss_of(steps, put, rows="t/b")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 10), st.sampled_from([1, 3]))
def test_a_mean_is_over_the_rows_that_a_filter_leaves(
    dropped: list[int], batch: int, threads: int
) -> None:
    """Of batches of any size; a column under another name, of any length, changes nothing."""
    job = Job("j", seed=1)

    def keep(x: Any) -> Any:
        kept = x[~np.isin(x, dropped)]
        return kept, np.zeros(3 * len(x) + 1)

    with job.setup:
        Task(lambda: np.arange(10), out="a", name="load")
    with job.init:
        Task(lambda: -1.0, out="loss", name="begin")
    with job.epoch:
        put = Task(lambda x, other: float(x.mean()), ["x", "other"], out="loss", name="put")
        steps = [Task(keep, "x", out=["x", "other"])]
        Pipe({"x": "a"}, batch=batch, threads=threads, map=steps, do=[put])
    driver = Driver(job, 1).start().epochs(1)
    left = [n for n in range(10) if n not in dropped]
    expected = sum(left) / len(left) if left else -1.0
    assert abs(driver.blob("loss") - expected) < 1e-12
