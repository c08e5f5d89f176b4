"""Pipes: the worked numbers, reductions, cuts between batches, and what is refused."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import Driver, cut_after, same
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.events import BatchesDone
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.errors import DataError, TaskError, Where
from jobrun.model.job import Data, Job, Pipe, Task
from jobrun.session.base import Control


def add(total: Any, x: Any) -> Any:
    """The sum so far; exact, since the data are whole numbers."""
    return total + int(x.sum())


def summing(rows: int, vars: dict[str, Any] | None = None, **pipe: Any) -> Job:
    """Sums 0, 1, 2, … into ``total``, which starts as 100."""
    job = Job("j", seed=3, vars=vars or {})
    with job.setup:
        Task(lambda: np.arange(rows), out="data", name="load")
    with job.init:
        Task(lambda: 100, out="total", name="begin")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(add, ["total", "x"], out="total")], **pipe)
    return job


def totals(job: Job, epochs: int, threads: int = 2) -> list[int]:
    driver = Driver(job, threads).start()
    found = [driver.blob("total")]
    for _ in range(epochs):
        driver.epochs(1)
        found.append(driver.blob("total"))
    return found


def observed(job_pipe: Callable[..., Pipe], epochs: int = 1, **kwargs: Any) -> list[Any]:
    """What a ``do`` step saw, batch after batch."""
    seen: list[Any] = []
    job = Job("j", seed=1, vars=kwargs.pop("vars", {}))
    with job.setup:
        Task(lambda: np.arange(kwargs.pop("rows", 10)), out="data", name="load")
    with job.epoch:
        job_pipe(seen)
    Driver(job, 1).start().epochs(epochs)
    return seen


# The worked numbers.


@pytest.mark.parametrize("threads", [1, 8])
def test_the_reference_job(threads: int) -> None:
    job = summing(10, batch=1, batches_per_epoch=3, passes=1)
    assert totals(job, 4, threads) == [100, 103, 115, 136, 145]


@pytest.mark.parametrize(
    ("rows", "pipe", "expected"),
    [
        (9, {"batches_per_epoch": 3, "passes": 1}, [100, 103, 115, 136]),
        (10, {"batches_per_epoch": 5, "passes": 1}, [100, 110, 145]),
        (10, {"passes": 1}, [100, 145]),
        (10, {"batches_per_epoch": 1, "passes": 1}, [100, *np.cumsum(range(10)) + 100]),
        (10, {}, [100, 145, 190]),
        (10, {"batch": 3, "batches_per_epoch": 2}, [100, 115, 145, 160]),
        (10, {"batch": 3, "drop_last": True}, [100, 136, 172]),
    ],
)
def test_epochs_of_the_reference_job(rows: int, pipe: Any, expected: list[int]) -> None:
    assert totals(summing(rows, **pipe), len(expected) - 1) == expected


def test_a_finished_reader_gives_empty_epochs() -> None:
    assert totals(summing(3, passes=1), 3) == [100, 103, 103, 103]


def test_numbers_may_be_vars_or_blobs() -> None:
    job = summing(10, {"n": 5}, batch="n", batches_per_epoch="one")
    with job.init:
        Task(lambda: np.int64(1), out="one", name="one")
    assert totals(job, 2) == [100, 110, 145]


@pytest.mark.parametrize("value", [0.5, math.nan, math.inf, True, "text", [1], None])
@pytest.mark.parametrize("field", ["batch", "batches_per_epoch", "passes"])
def test_a_number_must_be_whole(field: str, value: Any) -> None:
    job = summing(5, {"n": value}, **{field: "n"})
    with pytest.raises(DataError, match=f"pipe 'pipe': {field} is .*, but must be a whole number"):
        Driver(job).start().epoch()


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        ({"batch": 0}, "batch is 0, but must be 1 or more"),
        ({"batches_per_epoch": -1}, "batches_per_epoch is -1"),
        ({"passes": 0}, "passes is 0"),
        ({"batch": 8, "drop_last": True}, "leaves nothing of 5 rows"),
    ],
)
def test_limits_that_cannot_be_are_errors_with_the_place(pipe: Any, message: str) -> None:
    where = Where("job.yaml", 4, 5)
    with pytest.raises(DataError, match=message) as caught:
        Driver(summing(5, where=where, **pipe)).start().epoch()
    assert caught.value.where == where


def test_an_empty_source_is_an_error() -> None:
    with pytest.raises(DataError, match="no rows"):
        Driver(summing(0)).start().epoch()


# Steps.


def test_map_steps_see_columns_and_do_steps_see_their_results() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        return Pipe(
            {"x": "data"},
            batch=4,
            map=[
                Task(lambda x: x * 2, "x", out="y"),
                Task(lambda y: (y + 1, len(y)), "y", out=["x", "n"]),
            ],
            do=[Task(lambda x, y, n: seen.append((x.tolist(), y.tolist(), n)), ["x", "y", "n"])],
        )

    found = observed(pipe, rows=5)
    assert found == [([1, 3, 5, 7], [0, 2, 4, 6], 4), ([9], [8], 1)]


def test_leaves_of_a_tree_are_columns() -> None:
    seen: list[Any] = []
    job = Job("j")
    with job.setup:
        tree = {"x": np.arange(3), "deep": {"y": np.arange(3) * 2.0}}
        Task(lambda: tree, out="data", name="load")
    with job.epoch:
        do = Task(lambda x, y: seen.append((x.tolist(), y.tolist())), ["x", "data/deep/y"])
        Pipe({"x": "data/x", "data/deep/y": "data/deep/y"}, 2, do=[do])
    Driver(job).start().epochs(1)
    assert seen == [([0, 1], [0.0, 2.0]), ([2], [4.0])]


def test_steps_run_in_order_on_each_batch() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        return Pipe(
            {"x": "data"},
            do=[Task(lambda x: int(x[0]), "x", out="a"), Task(lambda a: seen.append(a), "a")],
        )

    assert observed(pipe, rows=3) == [0, 1, 2]


def test_a_step_may_run_on_some_batches_or_in_some_epochs() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        return Pipe(
            {"x": "data"},
            do=[
                Task(lambda x: seen.append(("b", x[0])), "x", every={"batches": 2}),
                Task(lambda x: seen.append(("e", x[0])), "x", every={"epochs": 2}),
                Task(lambda x: seen.append(("v", x[0])), "x", every="two"),
            ],
        )

    found = observed(pipe, 2, rows=3, vars={"two": 2})
    assert [v for k, v in found if k == "b"] == [1, 1]
    assert [v for k, v in found if k == "e"] == [0, 1, 2]
    assert [v for k, v in found if k == "v"] == [0, 1, 2]


def test_random_numbers_differ_by_batch_and_epoch() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        return Pipe(
            {"x": "data"},
            map=[Task(lambda rng: rng.random(), "rng", out="m", name="first")],
            do=[Task(lambda m, rng: seen.extend([m, rng.random()]), ["m", "rng"], name="second")],
        )

    found = observed(pipe, 2, rows=3)
    assert len(set(found)) == 12


def test_each_pass_is_shuffled_anew_and_the_same_in_every_run() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        do = [Task(lambda x: seen.extend(x.tolist()), "x")]
        return Pipe({"x": "data"}, batch=7, shuffle=True, do=do)

    first, second = observed(pipe, 3, rows=30), observed(pipe, 3, rows=30)
    assert first == second
    passes = [tuple(first[i : i + 30]) for i in (0, 30, 60)]
    assert len(set(passes)) == 3
    assert all(sorted(p) == list(range(30)) for p in passes)


def test_a_failing_step_names_the_pipe_and_the_step() -> None:
    def fail(x: Any) -> None:
        raise ValueError("no")

    def pipe(seen: list[Any]) -> Pipe:
        return Pipe({"x": "data"}, do=[Task(fail, "x")], name="train")

    with pytest.raises(
        TaskError, match="task 'train/fail' of group 'epoch' in batch 1 failed: Value"
    ):
        observed(pipe)


def test_a_failing_step_ends_a_pipe_beside_it_at_its_next_batch() -> None:
    """Not at the end of its epoch, which may be hours away."""
    counts = {"long": 0}
    started = threading.Event()

    def count(x: Any) -> None:
        counts["long"] += 1
        started.set()

    def fail(x: Any) -> None:
        assert started.wait(20)
        raise ValueError("no")

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(10), out="data", name="load")
    with job.epoch:
        Pipe({"x": "data"}, batches_per_epoch=10_000_000, do=[Task(count, "x")], name="long")
        Pipe({"x": "data"}, do=[Task(fail, "x")], name="short")
    with pytest.raises(TaskError, match="short/fail"):
        Driver(job, 2).start().epoch()
    assert counts["long"] < 10_000_000


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_columns_belong_to_their_batch(shuffle: bool, threads: int) -> None:
    """What a step writes is seen by the later steps of the batch, and nowhere else."""

    def write(x: Any) -> Any:
        x += 100
        return x

    seen: list[Any] = []
    job = Job("j", seed=1)
    with job.setup:
        Task(lambda: np.arange(6), out="data", name="load")
    with job.epoch:
        steps = [
            Task(lambda x, y: np.add(x, y, out=x) is None, ["x", "y"], out="w", name="add"),
            Task(lambda x, y: seen.extend([*x, *y]), ["x", "y"], name="look"),
        ]
        maps = [Task(write, "x", out="y")]
        Pipe({"x": "data"}, batch=2, shuffle=shuffle, threads=threads, map=maps, do=steps)
    driver = Driver(job).start().epochs(2)
    assert sorted(seen) == sorted(2 * [*range(200, 212, 2), *range(100, 106)])
    assert driver.blob("data").tolist() == [*range(6)]


def test_rows_that_were_gathered_are_not_copied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(array: Any) -> Any:
        raise AssertionError("copied")

    monkeypatch.setattr("jobrun.session.batch_columns.copy_array", refuse)
    Driver(summing(10, batch=4, shuffle=True)).start().epochs(1)
    with pytest.raises(AssertionError, match="copied"):
        Driver(summing(10, batch=4)).start().epochs(1)


def test_a_step_that_is_repeated_gets_its_columns_as_they_were() -> None:
    tries: list[float] = []

    def flaky(x: Any) -> None:
        tries.append(float(x[0]))
        x += 1
        if len(tries) < 3:
            raise ValueError("again")

    def pipe(seen: list[Any]) -> Pipe:
        return Pipe({"x": "data"}, batch=10, do=[Task(flaky, "x", retries=2)])

    observed(pipe)
    assert tries == [0, 0, 0]


@pytest.mark.parametrize("failures", [0, 1, 2])
@pytest.mark.parametrize("group", ["map", "do"])
def test_what_a_repeated_step_changes_in_its_columns_is_seen_by_later_steps(
    group: str, failures: int
) -> None:
    """As without 'retries', which then changed the results of a job in which nothing failed."""
    seen: list[Any] = []
    tries: list[int] = []

    def change(x: Any, low: Any) -> int:
        x += 1
        low *= 3
        tries.append(len(tries))
        if len(tries) <= failures:
            raise ValueError("again")
        return 0

    def split(x: Any) -> Any:
        return {"low": x + 10, "high": x}

    def look(x: Any, parts: Any) -> None:
        seen.append((x.tolist(), parts["low"].tolist(), parts["high"].tolist()))

    flaky = Task(change, ["x", "parts/low"], out="done", retries=2)
    steps = [Task(split, "x", out="parts"), *([flaky] if group == "map" else [])]
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(2.0), out="data", name="load")
    with job.epoch:
        do = [*([flaky] if group == "do" else []), Task(look, ["x", "parts"])]
        Pipe({"x": "data"}, batch=2, map=steps, do=do)
    assert Driver(job).start().epoch()
    assert seen == [([1, 2], [30, 33], [0, 1])]


def test_a_column_is_no_blob_once_it_is_written_under_a_name() -> None:
    def keep(x: Any) -> Any:
        return x

    def write(x: Any) -> None:
        x += 1

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4.0), out="data", name="load")
    with job.epoch:
        steps = [Task(keep, "x", out="kept"), Task(write, "x")]
        Pipe({"x": "data"}, batch=4, do=steps)
    with job.exit:
        Task(lambda kept: None, "kept", name="look")
    assert Driver(job).start().epochs(1).blob("kept").tolist() == [0, 1, 2, 3]


# Reductions.


def reduced(values: list[Any], batch: int = 1, **kwargs: Any) -> Any:
    """What is left of ``out`` after an epoch in which batch ``i`` puts out ``values[i]``."""
    job = Job("j")
    rows = (len(values) - 1) * batch + 1
    with job.setup:
        Task(lambda: np.arange(rows), out="data", name="load")
    with job.epoch:
        step = Task(lambda x: values[int(x[0]) // batch], "x", out="out", name="put")
        Pipe({"x": "data"}, batch=batch, do=[step], **kwargs)
    driver = Driver(job, 1).start()
    assert driver.epoch()
    return driver.blob("out")


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.array, int])
def test_a_number_that_is_only_put_out_is_its_mean_over_the_epochs_rows(kind: Any) -> None:
    found = reduced([kind(1), kind(2), kind(6)], batch=2)
    assert type(found) is float
    assert found == (1 * 2 + 2 * 2 + 6 * 1) / 5


@pytest.mark.parametrize(
    ("how", "values", "expected"),
    [
        ("mean", [1.0, 2.0, 6.0], 3.0),
        ("last", [1.0, 2.0, 6.0], 6.0),
        ("last", [1, np.float32(2)], np.float32(2)),
        ("sum", [1, 2, 6], 9),
        ("sum", [1, 2.5], 3.5),
        ("sum", [True], 1),
        ("min", [2.0, 1.0, 6.0], 1.0),
        ("max", [2, 7, 6], 7),
        ("mean", [True, False, True, True], 0.75),
        ("mean", [math.inf, 1.0], math.inf),
        ("mean", [1.0, math.nan, 1.0], math.nan),
        ("min", [1.0, math.nan, 0.5], math.nan),
        ("max", [math.nan, 1.0], math.nan),
        ("max", [1.0, math.nan], math.nan),
        ("sum", [math.inf, -math.inf], math.nan),
    ],
)
def test_ways_to_reduce(how: str, values: list[Any], expected: Any) -> None:
    found = reduced(values, reduce={"out": how})
    assert same(found, expected) or (math.isnan(found) and math.isnan(expected))


def test_what_is_no_number_keeps_its_last_value() -> None:
    assert reduced(["a", "b"]) == "b"
    assert reduced([np.zeros(2), np.ones(2)]).tolist() == [1, 1]
    assert reduced([{"a": 1}, {"a": 2}]) == {"a": 2}
    assert reduced([None, None]) is None
    assert reduced(["a", None]) is None
    assert reduced([None, None], reduce={"out": "sum"}) is None
    assert reduced([1.0, None], reduce={"out": "last"}) is None


@pytest.mark.parametrize("how", ["mean", "sum", "min", "max"])
@pytest.mark.parametrize(
    ("values", "batch", "message"),
    [
        ([0.0, None, 8.0], 2, "'out' is None in this batch, but was a number in the batches"),
        ([None, 8.0], 2, "'out' is a number in this batch, but was not a number in the batches"),
        ([1.0, 2.0, "a"], 3, "'out' is a str in this batch, but was a number"),
        ([1, np.zeros(3)], 2, r"'out' is an array of shape \(3,\) in this batch, but was"),
        ([1, {"a": 1}], 2, "'out' is a dict in this batch, but was a number"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_number_in_some_batches_only_is_an_error(
    how: str, values: list[Any], batch: int, message: str, asked: bool
) -> None:
    """Whichever comes first: nothing of an epoch is left out of its reduction without a word."""
    if how != "mean" and not asked:
        return
    task = f"task 'pipe/put' of group 'epoch' in batch {batch} failed: "
    with pytest.raises(TaskError, match=task + message) as caught:
        reduced(values, reduce={"out": how} if asked else None)
    assert "'every: {batches: n}'" in caught.value.hint


@pytest.mark.parametrize("value", ["a", np.zeros(2), np.zeros(1), {"a": 1.0}, [1.0]])
def test_what_reduce_names_must_be_a_number(value: Any) -> None:
    with pytest.raises(TaskError, match=r"batch 1 failed: 'out' is an? .* 'reduce: \{out: sum\}'"):
        reduced([value, value], reduce={"out": "sum"})


@pytest.mark.parametrize("values", [[None, None, 1.0], [1.0, 2.0, None]])
@pytest.mark.parametrize("cut", [1, 2])
def test_a_cut_forgets_nothing_of_what_was_no_number(values: list[Any], cut: int) -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(3), out="data", name="load")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(lambda x: values[int(x[0])], "x", out="out", name="put")])
    driver = Driver(job, 1).start()
    assert not driver.epoch(cut_after(cut))
    driver.position = type(driver.position).from_json(driver.position.to_json())
    with pytest.raises(TaskError, match="in batch 3 failed: 'out' is"):
        driver.epoch()


def test_a_sum_beyond_64_bits_names_its_task_blob_and_line() -> None:
    where, line = Where("job.yaml", 4, 5), Where("job.yaml", 9, 14)
    assert reduced([2**62, 2**62], reduce={"out": "sum"}) == 2**63
    message = "task 'pipe/put' of group 'epoch' failed: the sum of 'out' over the epoch is too"
    with pytest.raises(TaskError, match=f"{message} large: an integer of 65 bits") as caught:
        reduced([2**63, 2**63], reduce={"out": "sum"}, where=where, marks={"reduce:out": line})
    assert caught.value.where == line


def test_a_mean_is_of_the_batches_on_which_the_step_ran() -> None:
    def pipe(seen: list[Any]) -> Pipe:
        put = Task(lambda x: float(x[0]), "x", out="loss", every={"batches": 3})
        return Pipe({"x": "data"}, do=[put])

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(10), out="data", name="load")
    with job.epoch:
        pipe([])
        Task(lambda loss: loss, "loss", out="seen")
    driver = Driver(job).start()
    driver.epoch()
    assert driver.blob("seen") == (2 + 5 + 8) / 3


def test_what_a_step_reads_keeps_its_last_value() -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4), out="data", name="load")
    with job.init:
        Task(lambda: 0.0, out="m", name="begin")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(lambda m, x: float(x[0]), ["m", "x"], out="m")])
    assert Driver(job).start().epochs(1).blob("m") == 3.0


@pytest.mark.parametrize("read", ["loss", "stats"])
def test_reduce_holds_for_what_a_step_reads_too(read: str) -> None:
    """The step sees the value of the batch; what is left is the reduction."""
    seen: list[float] = []

    def look(value: Any) -> None:
        seen.append(value["loss"] if isinstance(value, dict) else value)

    job = Job("j")
    name = "loss" if read == "loss" else "stats/loss"
    with job.setup:
        Task(lambda: np.arange(4), out="data", name="load")
    with job.epoch:
        put = Task(lambda x: float(x[0]), "x", out=name, name="put")
        Pipe({"x": "data"}, do=[put, Task(look, read)], reduce={name: "mean"})
    driver = Driver(job).start()
    driver.epoch()
    assert seen == [0, 1, 2, 3]
    assert driver.blob(name) == 1.5


def test_a_leaf_that_is_read_by_way_of_its_tree_is_there() -> None:
    seen: list[float] = []
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(3), out="data", name="load")
    with job.epoch:
        put = Task(lambda x: float(x[0]), "x", out="stats/loss", name="put")
        Pipe({"x": "data"}, do=[put, Task(lambda s: seen.append(s["loss"]), "stats")])
    Driver(job).start().epoch()
    assert seen == [0, 1, 2]


def test_a_pipe_without_a_batch_leaves_its_outputs_without_a_value() -> None:
    job = summing(2, passes=1)
    job.epoch.tasks[0].do += (Task(lambda x: 1.0, "x", out="loss"),)  # type: ignore[attr-defined]
    with job.epoch:
        Task(lambda loss: loss, "loss", out="seen")
    driver = Driver(job).start().epochs(1)
    with pytest.raises(TaskError, match="'loss' has no value"):
        driver.epoch()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6), st.integers(1, 4))
def test_a_mean_is_the_float64_sum_in_batch_order(values: list[float], batch: int) -> None:
    rows = [batch] * (len(values) - 1) + [1]
    total = values[0] * rows[0]
    for value, weight in zip(values[1:], rows[1:], strict=True):
        total += value * weight
    assert reduced(values, batch) == total / sum(rows)


# Cuts.


def trained(seed: int, batches: int | None, shuffle: bool) -> Job:
    """A job whose state depends on every batch, its order, its number and its random numbers."""
    job = Job("j", seed=seed)

    def step(w: Any, x: Any, rng: Any, epoch: int) -> float:
        w *= 0.9
        w += x.sum() + rng.random() * epoch
        return float(w[0])

    with job.setup:
        Task(lambda: np.random.default_rng(5).random(11), out="data", name="load")
    with job.init:
        Task(lambda: np.zeros(3), out="w", name="begin")
    with job.epoch:
        Task(lambda epoch: epoch * 10, "epoch", out="before", name="before")
        do = [
            Task(step, {"x": "x", "rng": "rng", "epoch": "epoch"}, update={"w": "w"}, out="loss"),
            Task(lambda x: int(x.size), "x", out="most", name="size"),
            Task(lambda x, b: x[:1] * b, ["x", "before"], out="last", name="last"),
        ]
        Pipe(
            {"x": "data"},
            batch=3,
            batches_per_epoch=batches,
            shuffle=shuffle,
            do=do,
            reduce={"most": "max"},
        )
        Task(lambda a, b, c: a + b + c.sum(), ["loss", "most", "last"], out="after", name="after")
    with job.exit:
        Task(lambda *args: None, ["loss", "after", "last"], name="keep")
    return job


def state(driver: Driver) -> dict[str, Any]:
    return {n: driver.blob(n) for n in ("w", "loss", "after", "last", "most")}


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 3),
    st.none() | st.integers(1, 6),
    st.booleans(),
    st.lists(st.integers(0, 4), max_size=6),
    st.sampled_from([1, 4]),
)
def test_a_pipe_that_is_cut_gives_the_bits_of_one_that_is_not(
    seed: int, batches: int | None, shuffle: bool, cuts: list[int], threads: int
) -> None:
    whole = Driver(trained(seed, batches, shuffle), 1).start()
    parts = Driver(trained(seed, batches, shuffle), threads).start()
    left = list(cuts)
    for _ in range(3):
        assert whole.epoch()
        while not parts.epoch(cut_after(left.pop()) if left else lambda: False):
            json = parts.position.to_json()
            parts.position = type(parts.position).from_json(json)
        assert parts.position == whole.position
        assert same(state(parts), state(whole))
        whole.session.end_epoch()
        parts.session.end_epoch()


def test_the_position_of_a_cut_says_what_is_done() -> None:
    driver = Driver(trained(0, None, False), 1).start()
    reached = iter(range(100))
    assert not driver.epoch(lambda: next(reached) >= 4)
    position = driver.position
    assert position.tasks == ("before",)
    assert not position.at_boundary
    done = position.pipes["pipe"].batches
    assert 0 < done < 4
    assert position.readers["pipe"] == ReaderState(0, 3 * done, 11, {"x": "<f8"})
    again = driver.run("epoch", Control(cut=lambda: True))
    assert again == position, "a cut that comes at once changes nothing"


def test_a_pipe_that_is_cut_before_its_first_batch_has_not_begun() -> None:
    driver = Driver(summing(5), 1).start()
    assert not driver.epoch(cut_after(1))
    assert driver.position.pipes == {} or driver.position.pipes["pipe"] == PipeState(0)
    assert driver.epoch()
    assert driver.blob("total") == 110


def test_a_cut_is_for_all_pipes_though_it_was_said_once() -> None:
    """Two pipes, and a ``cut`` that is true a single time."""
    job = summing(50)
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(lambda x: None, "x")], name="other", after="pipe")
    driver = Driver(job, 1).start()
    calls = iter(range(1000))
    assert not driver.epoch(lambda: next(calls) == 10)
    assert "other" not in driver.position.tasks
    assert "pipe" in driver.position.pipes
    assert driver.epoch()
    assert driver.blob("total") == 100 + sum(range(50))


# Sources.


def test_a_pipe_reads_a_file_beside_the_spec(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(4), y=np.arange(4) * 10)
    seen: list[Any] = []
    job = Job("j")
    with job.epoch:
        step = Task(lambda a, y: seen.append((a.tolist(), y.tolist())), ["a", "y"])
        Pipe({"a": "x", "y": None}, file="d.npz", batch=3, do=[step])
    Driver(job, spec_dir=tmp_path).start().epochs(1)
    assert seen == [([0, 1, 2], [0, 10, 20]), ([3], [30])]


def test_all_columns_of_a_file_need_not_be_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.arange(4), y=np.arange(4) * 10)
    seen: list[Any] = []
    job = Job("j")
    with job.epoch:
        Pipe(file="d.npz", batch=4, do=[Task(lambda y: seen.append(y.tolist()), "y")])
    Driver(job, spec_dir=tmp_path).start().epochs(1)
    assert seen == [[0, 10, 20, 30]]


@pytest.mark.parametrize("columns", [None, ["x"]])
def test_a_missing_file_is_an_error_with_the_place_of_the_pipe(
    tmp_path: Path, columns: list[str] | None
) -> None:
    where = Where("job.yaml", 4, 5)
    job = Job("j")
    with job.epoch:
        Pipe(columns, file="d.npz", do=[Task(lambda x: None, "x")], where=where)
    with pytest.raises(DataError, match="there is no file") as caught:
        Driver(job, spec_dir=tmp_path).start().epoch()
    assert caught.value.where == where


@pytest.mark.parametrize("value", [3.0, [1, 2], np.array(2.0)])
def test_a_source_must_be_an_array_of_rows(value: Any) -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: value, out="data", name="load")
    with job.epoch:
        Pipe({"x": "data"}, do=[Task(lambda x: None, "x")])
    with pytest.raises(DataError, match="not an array of rows"):
        Driver(job).start().epoch()


def rewriting(
    make: Callable[[int], Any], seen: list[Any], by: str = "epoch", **options: Any
) -> Job:
    """A job whose pipe reads a blob that a task makes: in each epoch, or once."""
    job = Job("j")
    with job.groups[by]:
        Task(make, "epoch", out="data", name="make")
    with job.epoch:
        step = Task(lambda x: seen.append((x.dtype.str, x.tolist())), "x", name="note")
        Pipe({"x": "data"}, batch=2, do=[step], **options)
    return job


SHUFFLES = [False, True, {"buffer": 3}]
"""By rows, in a permutation, and as a stream."""


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("lengths", [(3, 5, 1), (5, 2, 4)])
def test_a_blob_of_another_length_is_read_from_the_next_pass_on(
    shuffle: Any, lengths: tuple[int, ...]
) -> None:
    seen: list[Any] = []
    make = lambda epoch: np.arange(lengths[epoch - 1])  # noqa: E731
    driver = Driver(rewriting(make, seen, shuffle=shuffle)).start()
    for length in lengths:
        seen.clear()
        driver.epochs(1)
        assert sorted(x for _, batch in seen for x in batch) == list(range(length))


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_a_blob_of_another_dtype_is_read_from_the_next_pass_on(shuffle: Any) -> None:
    seen: list[Any] = []
    make = lambda epoch: np.zeros(2, "<i8" if epoch == 1 else "<f4")  # noqa: E731
    Driver(rewriting(make, seen, shuffle=shuffle)).start().epochs(2)
    assert seen == [("<i8", [0, 0]), ("<f4", [0.0, 0.0])]


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda epoch: np.arange(4 + epoch), "has 6 rows, but had 5 when this pass began"),
        (lambda epoch: np.arange(6 - epoch), "has 4 rows, but had 5 when this pass began"),
        (
            lambda epoch: np.zeros(5, "<i8" if epoch == 1 else "<f4"),
            "'x' is of dtype <f4, but was <i8 when this pass began",
        ),
    ],
)
def test_a_blob_that_changes_within_a_pass_is_an_error(
    shuffle: Any, make: Callable[[int], Any], message: str
) -> None:
    driver = Driver(rewriting(make, [], shuffle=shuffle, batches_per_epoch=2)).start().epochs(1)
    with pytest.raises(DataError, match=message) as caught:
        driver.epoch()
    assert "where a pass ends" in caught.value.hint
    assert "--fresh" not in caught.value.hint


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("row", [0, 2])
def test_a_blob_of_setup_that_changed_since_a_save_is_an_error(shuffle: Any, row: int) -> None:
    driver = Driver(rewriting(lambda epoch: np.arange(5), [], "setup", shuffle=shuffle)).start()
    state = ReaderState(int(not row), row, 6, {"x": "<i8"})
    driver.position = Position(1, readers={"pipe": state})
    with pytest.raises(DataError, match="has 5 rows, but had 6 when this run was saved") as caught:
        driver.epoch()
    assert "--fresh" in caught.value.hint


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("stop", range(1, 8))
def test_a_cut_in_a_pass_over_a_rewritten_blob_changes_nothing(shuffle: Any, stop: int) -> None:
    def run(*stops: int) -> list[Any]:
        seen: list[Any] = []
        left = list(stops)
        job = rewriting(lambda epoch: np.arange(3 * epoch), seen, shuffle=shuffle)
        driver = Driver(job, threads=1).start()
        while driver.position.epochs < 3:
            if driver.epoch(lambda: len(seen) in left):
                driver.session.end_epoch()
            else:
                left.clear()
        return seen

    assert run(stop) == run()


def test_a_zip_of_a_rewritten_blob_and_a_fixed_one_may_change_its_length() -> None:
    seen: list[Any] = []
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4), out="fixed", name="load")
    with job.epoch:
        Task(lambda epoch: np.arange(1 + epoch), "epoch", out="data", name="make")
        step = Task(lambda x, y: seen.append((x.tolist(), y.tolist())), ["x", "y"])
        Pipe(zip=[Data({"x": "data"}), Data({"y": "fixed"})], batch=9, do=[step])
    Driver(job).start().epochs(2)
    assert seen == [([0, 1], [0, 1]), ([0, 1, 2], [0, 1, 2])]


def test_a_column_that_is_kept_as_a_blob_does_not_change_with_its_source() -> None:
    def double(data: Any) -> None:
        data *= 2

    job = Job("j")
    with job.init:
        Task(lambda: np.arange(6.0).reshape(3, 2), out="data", name="load")
        Task(lambda: None, out="first", name="none")
    with job.epoch:
        keep = Task(lambda f, x: x if f is None else f, ["first", "x"], out="first", name="keep")
        Pipe({"x": "data"}, do=[keep])
        Task(double, update="data")
    driver = Driver(job).start().epochs(2)
    assert driver.blob("first").tolist() == [[0, 1]]
    assert driver.blob("data")[0].tolist() == [0, 4]


# Progress.


def test_progress_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobrun.session.pipe.run._PROGRESS_SECONDS", 0.0)
    driver = Driver(summing(6, batch=2)).start().epochs(1)
    said = [e for e in driver.events if isinstance(e, BatchesDone)]
    assert said == [BatchesDone("pipe", "main", 1, n, 3, 2 * n) for n in (1, 2, 3)]


def test_each_batch_is_said_to_the_caller() -> None:
    applied: list[int] = []
    driver = Driver(summing(6, batch=2)).start()
    driver.run("epoch", Control(applied=lambda count: applied.append(count)))
    assert applied == [1, 2, 3, 3]  # and once at the end


@pytest.mark.parametrize("step", [float, bool, lambda x: x.split()])
def test_a_step_that_takes_a_column_for_a_row_is_told_so(step: Callable[[Any], Any]) -> None:
    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(4), out="data", name="load")
    with job.epoch:
        Pipe({"x": "data"}, batch=2, do=[Task(lambda x: step(x), "x", out="y", name="put")])
    with pytest.raises(TaskError, match="in batch 1 failed") as caught:
        Driver(job, 1).start().epoch()
    assert caught.value.hint.startswith("a step of a pipe gets whole columns")
