"""Readers and pipes in whole runs: which rows, in which batches, in which order, how often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine import within
from whole_runs import (
    bytes_of_checkpoints,
    records,
    train,
    train_and_die,
)

from jobrun import Job, Pipe, Task
from jobrun.core.events import EpochFinished
from jobrun.errors import DataError, SpecError, TaskError

threads_1_and_8 = pytest.mark.parametrize("threads", [1, 8])


class Seen:
    """The batches of each epoch, as lists of the rows' values."""

    def __init__(self) -> None:
        self.epochs: dict[int, list[list[int]]] = {}

    def note(self, x: np.ndarray, epoch: int) -> None:
        """A ``do`` step."""
        self.epochs.setdefault(epoch, []).append(x.tolist())

    @property
    def sizes(self) -> list[list[int]]:
        """The sizes of the batches, by epoch."""
        return [[len(b) for b in batches] for batches in self.epochs.values()]

    @property
    def rows(self) -> list[list[int]]:
        """The rows, by epoch."""
        return [[x for b in batches for x in b] for batches in self.epochs.values()]


def reading(
    seen: Seen, rows: int, *, epochs: int | None = None, seed: int = 0, **reader: Any
) -> Job:
    """A job that reads rows 0, 1, … and notes them."""
    with Job("reading", seed=seed) as job:
        with job.setup:
            Task(lambda: np.arange(rows), out="rows", name="rows")
        Pipe({"x": "rows"}, do=[Task(seen.note, ["x", "epoch"])], name="read", **reader)
        if reader.get("passes") is not None:
            job.stop(data_finished="read")
        if epochs is not None:
            job.stop(epochs=epochs)
    return job


@threads_1_and_8
@pytest.mark.parametrize(
    ("batches_per_epoch", "epochs"),
    [(None, [100]), (10, [10] * 10), (110, [100]), (30, [30, 30, 30, 10])],
)
def test_100_rows_in_one_pass_are_100_rows(
    threads: int, batches_per_epoch: int | None, epochs: list[int]
) -> None:
    seen = Seen()
    job = reading(seen, 100, batches_per_epoch=batches_per_epoch, passes=1, threads=threads)
    ended = train(job, threads=threads)
    assert [len(rows) for rows in seen.rows] == epochs
    assert [x for rows in seen.rows for x in rows] == list(range(100))
    assert ended.outcome.reason.startswith("data finished")
    if batches_per_epoch == 10:
        assert seen.rows[0] == list(range(10))


def test_batch_3_over_10_rows_is_3_3_3_1_and_with_drop_last_3_3_3() -> None:
    for drop_last, sizes in ((False, [3, 3, 3, 1]), (True, [3, 3, 3])):
        seen = Seen()
        train(reading(seen, 10, batch=3, drop_last=drop_last, passes=2))
        assert seen.sizes == [sizes, sizes]


@threads_1_and_8
def test_an_epoch_may_cross_the_end_of_a_pass_and_a_batch_never(threads: int) -> None:
    seen = Seen()
    train(reading(seen, 10, batch=3, batches_per_epoch=5, epochs=3), threads=threads)
    assert seen.sizes == [[3, 3, 3, 1, 3], [3, 3, 1, 3, 3], [3, 1, 3, 3, 3]]
    assert seen.rows[0] == [*range(10), 0, 1, 2]
    assert seen.rows[1] == [*range(3, 10), *range(6)]


def test_the_end_of_the_data_needs_no_empty_epoch() -> None:
    for drop_last, batches, sizes in ((False, 2, [[5, 5], [1]]), (True, 1, [[5], [5]])):
        seen = Seen()
        how = {"batch": 5, "batches_per_epoch": batches, "passes": 1, "drop_last": drop_last}
        assert train(reading(seen, 11, **how)).epochs == 2
        assert seen.sizes == sizes


@pytest.mark.parametrize("passes", [1, 3])
def test_passes_are_counted_over_resumes(run_dir: Path, passes: int) -> None:
    seen = Seen()
    train_and_die(reading(seen, 10, batches_per_epoch=4, passes=passes), run_dir, after=1)
    after = Seen()
    train(reading(after, 10, batches_per_epoch=4, passes=passes), run_dir)
    assert seen.rows[0] == [0, 1, 2, 3]
    assert [x for rows in after.rows for x in rows] == ([*range(10)] * passes)[4:]


def test_the_position_is_saved_exactly_and_rows_not_yet_used_are_not_counted(run_dir: Path) -> None:
    train(reading(Seen(), 10, batch=4, batches_per_epoch=2, passes=2), run_dir)
    states = [r.position.readers.get("read") for r in records(run_dir)]
    assert [(s.passes, s.row) for s in states if s is not None] == [(0, 8), (1, 4), (2, 0)]


# Shuffling.


def test_a_new_permutation_each_pass_from_seed_and_pass() -> None:
    orders = {}
    for seed in (1, 1, 2):
        seen = Seen()
        train(reading(seen, 50, batch=7, shuffle=True, epochs=3, seed=seed))
        assert all(sorted(rows) == list(range(50)) for rows in seen.rows)
        assert len({tuple(rows) for rows in [list(range(50)), *seen.rows]}) == 4
        assert orders.setdefault(seed, seen.rows) == seen.rows
    assert orders[1] != orders[2]


@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("batches_per_epoch", [None, 3, 5])
def test_a_resumed_run_sees_the_order_of_one_left_alone(
    run_dir: Path, after: int, batches_per_epoch: int | None
) -> None:
    how = {"batch": 3, "shuffle": True, "batches_per_epoch": batches_per_epoch, "epochs": 4}
    alone, first, second = Seen(), Seen(), Seen()
    train(reading(alone, 11, **how))
    train_and_die(reading(first, 11, **how), run_dir, after)
    train(reading(second, 11, **how), run_dir)
    for epoch in range(1, 5):
        assert (second if epoch > after else first).epochs[epoch] == alone.epochs[epoch]


# Steps.


def make_data() -> np.ndarray:
    """40 rows of 3 columns."""
    return np.random.default_rng(0).random((40, 3), np.float32)


def pipeline(threads: int = 1) -> Job:
    """``map`` steps, ``do`` steps with an update, and reductions, whose bits show the order."""

    def center(x: np.ndarray) -> np.ndarray:
        return x - x.mean(axis=0, dtype=np.float32)

    def noise(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (y * rng.random(y.shape)).astype(np.float32)

    def step(z: np.ndarray, w: np.ndarray) -> dict[str, Any]:
        w *= np.float32(0.9)
        w += z.sum(axis=0)
        return {"mean": float(w[0]), "last": w[1].copy(), "rows": len(z)}

    with Job("pipeline", seed=5) as job:
        with job.setup:
            Task(make_data, out="data")
        with job.init:
            Task(lambda: np.zeros(3, np.float32), out="w", name="w")
        Pipe(
            {"x": "data"},
            7,
            shuffle=True,
            threads=threads,
            map=[Task(center, "x", out="y"), Task(noise, ["y", "rng"], out="z")],
            do=[Task(step, "z", update="w", out={"mean": "loss", "last": "seen", "rows": None})],
            reduce={"seen": "last", "rows": "sum"},
            name="train",
        )
        job.metrics.update(loss="min", rows=None)
        job.stop(epochs=3)
        with job.exit:
            Task(lambda *all: None, ["loss", "seen", "rows"], name="use")
    return job


def test_8_threads_give_the_bits_of_1_thread(run_dir: Path) -> None:
    for threads in (1, 8):
        train(pipeline(threads=threads), run_dir / str(threads), threads=threads)
    one, eight = run_dir / "1", run_dir / "8"
    assert bytes_of_checkpoints(one) == bytes_of_checkpoints(eight)
    assert [r.position for r in records(one)] == [r.position for r in records(eight)]
    assert [r.metrics for r in records(one)] == [r.metrics for r in records(eight)]


def test_a_number_that_is_only_put_out_is_its_mean_over_the_rows() -> None:
    with Job("means") as job:
        with job.setup:
            Task(lambda: np.arange(10.0), out="rows", name="rows")
        Pipe(
            {"x": "rows"},
            4,
            do=[
                Task(lambda x: x.mean(), "x", out="mean", name="mean"),
                Task(lambda x: (x.max(), x.min(), len(x)), "x", out=["hi", "lo", "n"], name="more"),
            ],
            reduce={"hi": "max", "lo": "min", "n": "sum"},
        )
        job.metrics.update(mean=None, hi=None, lo=None, n=None)
        job.stop(epochs=1)
    (epoch,) = train(job).said(EpochFinished)
    assert epoch.metrics == {"mean": 4.5, "hi": 9.0, "lo": 0.0, "n": 10}


def test_map_steps_see_columns_only() -> None:
    job = pipeline()
    pipe = job.epoch.tasks[0]
    pipe.map = (Task(lambda x, w: x, ["x", "w"], out="y"), *pipe.map[1:])
    with pytest.raises(SpecError, match="'w' is not a column; 'map' steps see columns only"):
        train(job)


@threads_1_and_8
@pytest.mark.parametrize("where", ["map", "do"])
def test_a_failing_step_in_the_middle_ends_the_run_with_its_error(threads: int, where: str) -> None:
    calls: list[int] = []

    def fail(x: np.ndarray) -> np.ndarray:
        calls.append(int(x[0]))
        if x[0] == 500:
            raise ZeroDivisionError("in the middle")
        return x

    with Job("failing") as job:
        with job.setup:
            Task(lambda: np.arange(1000), out="rows", name="rows")
        failing = Task(fail, "x", out="y", name="fail")
        step = Task(lambda x: None, "x", name="look")
        lists = {"map": [failing], "do": [step]} if where == "map" else {"do": [failing, step]}
        Pipe({"x": "rows"}, 1, threads=threads, name="read", **lists)
        job.stop(epochs=2)
    with pytest.raises(TaskError, match="read/fail' of group 'epoch' in batch 501 failed: ZeroDiv"):
        within(60, lambda: train(job, threads=threads))
    assert 500 in calls
    assert len(calls) < 1000


# Sources.


@pytest.fixture
def files(run_dir: Path) -> Path:
    """A folder with files of ten rows."""
    folder = run_dir.parent
    np.savez(folder / "data.npz", x=np.arange(10), y=np.arange(20).reshape(10, 2))
    np.save(folder / "data.npy", np.arange(10))
    return folder


@pytest.mark.parametrize(
    ("file", "columns"), [("data.npz", {"x": "x"}), ("data.npz", None), ("data.npy", {"x": None})]
)
def test_rows_of_a_file(
    files: Path, run_dir: Path, file: str, columns: dict[str, str] | None
) -> None:
    seen = Seen()
    with Job("file") as job:
        step = Task(seen.note, ["x", "epoch"])
        Pipe(columns, 4, file=str(files / file), passes=1, do=[step], name="read")
        job.stop(data_finished="read")
    train(job, run_dir)
    assert seen.epochs == {1: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]}


def test_a_source_that_changed_is_an_error_naming_both(run_dir: Path) -> None:
    train_and_die(reading(Seen(), 10, epochs=4), run_dir, after=2)
    with pytest.raises(DataError, match="the source has 12 rows, but had 10"):
        train(reading(Seen(), 12, epochs=4), run_dir)


def test_reader_state_is_in_success_and_not_a_blob(run_dir: Path) -> None:
    train(reading(Seen(), 10, epochs=1, shuffle=True, batches_per_epoch=3), run_dir)
    text = (run_dir / "checkpoint_1" / "_SUCCESS").read_text()
    position = json.loads(next(x for x in text.splitlines() if x.startswith("position: "))[10:])
    assert position["readers"]["read"]["row"] == 3
    assert not list((run_dir / "checkpoint_1").rglob("*read*"))
