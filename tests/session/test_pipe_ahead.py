"""Pipes that read ahead: the bits of one thread, rows dropped, cuts, and faults in every place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from engine import Driver, same
from hypothesis import given, settings
from hypothesis import strategies as st

import jobrun.session.pipe.run as pipe_module
from jobrun.errors import DataError, TaskError, Where
from jobrun.model.job import Job, Pipe, Task

THREADS = range(1, 9)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-ahead")]


def noisy(x: Any, rng: Any, epoch: int) -> Any:
    """A ``map`` step whose bits depend on the batch, the epoch and random numbers."""
    return np.sin(x) * rng.random(len(x)) + epoch


def step(w: Any, y: Any) -> float:
    """A ``do`` step whose result depends on the order of the batches."""
    w *= 0.9
    w += y.sum()
    return float(y.mean())


def training(**pipe: Any) -> Job:
    job = Job("j", seed=4)
    with job.setup:
        Task(lambda: np.random.default_rng(1).random(23), out="data", name="load")
    with job.init:
        Task(lambda: np.zeros(3), out="w", name="begin")
        Task(lambda: 0.0, out="seen", name="none")
    with job.epoch:
        Pipe(
            {"x": "data"},
            map=[
                Task(noisy, {"x": "x", "rng": "rng", "epoch": "epoch"}, out="y", name="noisy"),
                Task(lambda y: y * 2, "y", out="y", name="twice"),
            ],
            do=[Task(step, {"y": "y"}, update={"w": "w"}, out="loss")],
            **{"batch": 3, "batches_per_epoch": 5, "shuffle": True, **pipe},
        )
        Task(lambda loss: loss, "loss", out="seen", name="keep")
    return job


def blobs(driver: Driver) -> tuple[Any, Any]:
    return driver.blob("w").copy(), driver.blob("seen")


EXPECTED = blobs(Driver(training(), 1).start().epochs(3))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("ahead", [None, 1, 3, 100])
def test_any_number_of_threads_gives_the_bits_of_one(threads: int, ahead: int | None) -> None:
    driver = Driver(training(threads=threads, ahead=ahead)).start().epochs(3)
    assert all(map(same, blobs(driver), EXPECTED))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 8), st.none() | st.integers(1, 9), st.lists(st.integers(0, 6), max_size=9))
def test_cut_anywhere_it_goes_on_with_the_very_next_batch(
    threads: int, ahead: int | None, cuts: list[int]
) -> None:
    """Also what was read ahead and not used is read again: it does not count as read."""
    driver = Driver(training(threads=threads, ahead=ahead)).start()
    for _ in range(3):
        done = False
        while not done:
            asked = iter([False] * cuts.pop() if cuts else [])
            endless = not cuts
            done = driver.epoch(lambda asked=asked, on=endless: not next(asked, on))
            reader = driver.position.readers.get("pipe")
            if not done and reader is not None and "pipe" in driver.position.pipes:
                rows = reader.passes * 23 + reader.row
                applied = driver.position.epochs * 5 + driver.position.pipes["pipe"].batches
                assert rows == sum(min(3, 23 - i % 8 * 3) for i in range(applied))
        driver.session.end_epoch()
    assert all(map(same, blobs(driver), EXPECTED))


def test_threads_and_ahead_may_be_vars_or_blobs() -> None:
    job = training(threads="n", ahead="m")
    job.vars["n"] = 2
    with job.init:
        Task(lambda: 3, out="m", name="window")
    assert all(map(same, blobs(Driver(job).start().epochs(3)), EXPECTED))


@pytest.mark.parametrize("field", ["threads", "ahead"])
def test_a_count_of_nothing_is_an_error_with_the_place(field: str) -> None:
    where = Where("job.yaml", 4, 5)
    with pytest.raises(DataError, match=f"{field} is 0, but must be 1 or more") as caught:
        Driver(training(where=where, **{field: 0})).start().epoch()
    assert caught.value.where == where


def pipe_of(
    map: list[Task], do: list[Task], rows: int = 40, epochs: int = 1, **pipe: Any
) -> Callable[[], Driver]:
    """Runs a pipe over ``x`` and ``y``, 0 to ``rows`` and ten times that."""
    job = Job("j", seed=1)
    with job.setup:
        Task(lambda: (np.arange(rows), np.arange(rows) * 10), out=["a", "b"], name="load")
    with job.epoch:
        Pipe({"x": "a", "y": "b"}, map=map, do=do, **pipe)
    return lambda: Driver(job).start().epochs(epochs)


def test_map_steps_run_at_the_same_time_and_ahead_of_the_do_steps() -> None:
    both = threading.Barrier(3)
    mapped = threading.Event()

    def prepare(x: Any) -> Any:
        if x[0] < 3:
            both.wait(20)
        if x[0] == 5:
            mapped.set()
        return x

    def apply(x: Any) -> None:
        assert mapped.wait(20)  # batch 5 is ready before batch 0 is applied

    pipe_of([Task(prepare, "x", out="x")], [Task(apply, "x")], threads=3, ahead=6)()


def test_without_threads_or_ahead_each_batch_is_prepared_when_it_is_wanted() -> None:
    log: list[str] = []
    names: set[str] = set()

    def prepare(x: Any) -> Any:
        log.append("map")
        names.add(threading.current_thread().name)
        return x

    def apply(x: Any) -> None:
        log.append("do")
        names.add(threading.current_thread().name)

    pipe_of([Task(prepare, "x", out="x")], [Task(apply, "x")])()
    assert log == ["map", "do"] * 40
    assert len(names) == 1


@pytest.mark.parametrize(
    ("columns", "how", "ahead"),
    [
        (1, {}, False),
        (1, {"shuffle": True}, False),
        (9000, {}, False),  # a view, however large
        (9000, {"shuffle": True}, True),
        (9000, {"shard": "0/2"}, True),
        (1, {"map": True}, True),
    ],
)
def test_what_is_read_in_no_time_is_not_handed_over(
    columns: int, how: dict[str, Any], ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in memory, with nothing to be done on them, cost less than another thread does."""
    made: list[str] = []
    for name in ("InTurn", "ReadAhead"):
        real = getattr(pipe_module, name)
        monkeypatch.setattr(
            pipe_module,
            name,
            lambda *a, name=name, real=real, **k: made.append(name) or real(*a, **k),
        )
    job = Job("j", seed=1)
    with job.setup:
        Task(lambda: np.zeros((20, columns)), out="x", name="load")
    steps = [Task(lambda x: x, "x", out="x")] if how.pop("map", False) else []
    with job.epoch:
        Pipe(["x"], 2, threads=3, map=steps, do=[Task(lambda x: None, "x")], **how)
    Driver(job).start().epochs(1)
    assert made == (["ReadAhead"] if ahead else ["InTurn"])


def test_one_thread_reads_ahead_where_ahead_is_given() -> None:
    mapped = threading.Event()

    def prepare(x: Any) -> Any:
        if x[0] == 2:
            mapped.set()
        return x

    def wait(x: Any) -> None:
        assert mapped.wait(20)

    pipe_of([Task(prepare, "x", out="x")], [Task(wait, "x")], threads=1, ahead=2)()


def test_under_check_one_step_runs_at_a_time() -> None:
    names: set[str] = set()
    job = training(threads=4)
    job.epoch.tasks[0].do += (  # type: ignore[attr-defined]
        Task(lambda: names.add(threading.current_thread().name), name="look"),
    )
    driver = Driver(job, check_inputs=True).start().epochs(3)
    assert all(map(same, blobs(driver), EXPECTED))
    assert len(names) == 1


# Columns: trees, and rows that are dropped.


@pytest.mark.parametrize("threads", [1, 4])
def test_a_column_may_be_a_tree(threads: int) -> None:
    seen: list[Any] = []

    def split(x: Any) -> Any:
        return {"low": x, "deep": {"high": x + 1, "name": "n"}}

    def look(tree: Any) -> None:
        seen.append((tree["low"].tolist(), tree["deep"]["high"].tolist(), tree["deep"]["name"]))

    run = pipe_of([Task(split, "x", out="tree")], [Task(look, "tree")], 5, batch=2, threads=threads)
    run()
    assert seen == [([0, 1], [1, 2], "n"), ([2, 3], [3, 4], "n"), ([4], [5], "n")]


@pytest.mark.parametrize("threads", [1, 4])
def test_parts_of_a_tree_are_columns_for_the_steps_after_it(threads: int) -> None:
    seen: list[Any] = []

    def split(x: Any) -> Any:
        return {"low": x, "deep": {"high": x + 1}, "list": [x * 2]}

    def look(low: Any, high: Any, more: Any) -> None:
        seen.append((low.tolist(), high.tolist(), more.tolist()))

    pipe_of(
        [
            Task(split, "x", out="parts", name="split"),
            Task(np.add, ["parts/deep/high", "parts/list/0"], out="more", name="add"),
        ],
        [Task(look, ["parts/low", "parts/deep/high", "more"])],
        3,
        batch=2,
        threads=threads,
    )()
    assert seen == [([0, 1], [1, 2], [1, 4]), ([2], [3], [7])]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("where", ["map", "do"])
@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("parts/lo", "column 'parts' has no part 'lo'", "did you mean 'low'"),
        ("parts/low/x", "there is no column 'parts/low/x': 'parts/low' is not a tree", ""),
    ],
)
def test_a_part_that_is_not_there_is_an_error_of_the_step_that_reads_it(
    threads: int, where: str, name: str, message: str, hint: str
) -> None:
    steps = [Task(lambda x: {"low": x}, "x", out="parts", name="split")]
    reads = Task(lambda y: y, name, out="z", name="reads")
    do = Task(lambda y: None, name, name="reads")
    if where == "map":
        steps, do = [*steps, reads], Task(lambda: None, name="nothing")
    with pytest.raises(TaskError, match=f"task 'pipe/reads' .* failed: {message}") as caught:
        pipe_of(steps, [do], threads=threads)()
    assert hint in caught.value.hint


def test_the_rows_of_a_part_are_the_rows_that_are_left() -> None:
    put = Task(lambda x: float(x.mean()), "parts/x", out="loss", name="put")
    step = Task(lambda x: {"x": x[x % 2 == 1]}, "x", out="parts", name="odd")
    found = mean_of([step], put, 10, 3, rows="parts/x")
    assert found == (1 * 1 + 4 * 2 + 7 * 1 + 9 * 1) / 5


def odd(x: Any, y: Any) -> Any:
    keep = x % 2 == 1
    return x[keep], y[keep]


def mean_of(map: list[Task], do: Task, count: int, batch: int, **pipe: Any) -> float:
    job = Job("j", seed=1)
    with job.setup:
        Task(lambda: (np.arange(count), np.arange(count) * 10), out=["a", "b"], name="load")
    with job.epoch:
        Pipe({"x": "a", "y": "b"}, map=map, do=[do], batch=batch, **pipe)
    driver = Driver(job).start()
    assert driver.epoch()
    return float(driver.blob("loss"))


@pytest.mark.parametrize("threads", [1, 4])
def test_weights_follow_the_rows_that_are_left(threads: int) -> None:
    put = Task(lambda x, y: float(x.mean()), ["x", "y"], out="loss", name="put")
    found = mean_of([Task(odd, ["x", "y"], out=["x", "y"])], put, 10, 3, threads=threads)
    assert found == (1 * 1 + 4 * 2 + 7 * 1 + 9 * 1) / 5


def test_a_batch_of_which_nothing_is_left_is_not_applied_and_counts_as_read() -> None:
    seen: list[Any] = []
    run = pipe_of(
        [Task(lambda x: x[x > 3], "x", out="x", name="large")],
        [Task(lambda x: seen.append(x.tolist()), "x")],
        7,
        batch=2,
        threads=2,
    )
    driver = run()
    assert seen == [[4, 5], [6]]
    assert driver.position.readers["pipe"].passes == 1


# Faults: every step, every number of threads, several states of the window.


@pytest.mark.sampled(5)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("ahead", [1, 4, 30])
@pytest.mark.parametrize("who", ["first", "second", "do"])
@pytest.mark.parametrize("at", [0, 3, 39])
def test_a_failing_step_ends_the_pipe_with_the_error_of_one_thread(
    threads: int, ahead: int, who: str, at: int
) -> None:
    applied: list[int] = []

    def fails(name: str) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            # Later batches fail in the 'map' steps too, and may do so first.
            if who == name and (x[0] >= at):
                raise ValueError(f"batch {x[0]}")
            return x

        return run

    def apply(x: Any) -> None:
        fails("do")(x)
        applied.append(int(x[0]))

    run = pipe_of(
        [Task(fails(n), "x", out="x", name=n) for n in ("first", "second")],
        [Task(apply, "x", name="do")],
        threads=threads,
        ahead=ahead,
    )
    with pytest.raises(TaskError, match=f"pipe/{who}' .* failed: ValueError: batch {at}"):
        run()
    assert applied == list(range(at))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("slow", ["map", "do"])
@pytest.mark.parametrize("ahead", [1, 20])
def test_a_cut_ends_the_pipe_while_a_step_is_slow(threads: int, slow: str, ahead: int) -> None:
    """With the window empty (the ``map`` step is slow) and full (the ``do`` step is)."""
    inside, cut = threading.Event(), threading.Event()
    applied: list[int] = []

    def pause(name: str, x: Any) -> Any:
        if slow == name and x[0] == 2:
            inside.set()
            assert cut.wait(20)
        return x

    def apply(x: Any) -> None:
        pause("do", x)
        applied.append(int(x[0]))

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(100), out="a", name="load")
    with job.epoch:
        Pipe(
            {"x": "a"},
            map=[Task(lambda x: pause("map", x), "x", out="x", name="map")],
            do=[Task(apply, "x", name="do")],
            threads=threads,
            ahead=ahead,
        )
    driver = Driver(job).start()

    def interrupt() -> None:
        assert inside.wait(20)
        cut.set()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    assert not driver.epoch(cut.is_set)
    interrupter.join()
    assert applied == list(range(len(applied)))
    assert len(applied) <= 3
    if applied:  # else it was cut before its first batch
        assert driver.position.pipes["pipe"].batches == len(applied)
        assert driver.position.readers["pipe"].row == len(applied)
    assert driver.epoch()
    assert applied == list(range(100))


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_failing_task_ends_a_pipe_beside_it_that_reads_ahead(threads: int) -> None:
    started = threading.Event()
    counts = {"applied": 0}

    def apply(x: Any) -> None:
        counts["applied"] += 1
        started.set()

    def fail() -> None:
        assert started.wait(20)
        raise ValueError("no")

    job = Job("j")
    with job.setup:
        Task(lambda: np.arange(10), out="a", name="load")
    with job.epoch:
        Pipe(
            {"x": "a"},
            batches_per_epoch=10_000_000,
            map=[Task(lambda x: x, "x", out="x", name="same")],
            do=[Task(apply, "x")],
            threads=threads,
            ahead=4,
        )
        Task(fail)
    with pytest.raises(TaskError, match=r"task 'fail' .* ValueError: no"):
        Driver(job, 2).start().epoch()
    assert counts["applied"] < 10_000_000
