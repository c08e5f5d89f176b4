"""Every reader of "the best" gives the same, whatever history the run has had.

Readers are retention, ``best:``, ``path --best``, ``show``, ``runs``, ``metrics``, ``compare``, the
sweep table, the summary, the live view, and patience where it is of the same direction all along.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from whole_runs import MEMORY, Died, Ended, records, start

from jobrun import Best, CheckpointPolicy, Every, Job, Keep, Pipe, Task, load_blobs
from jobrun.checkpoint.record import Record
from jobrun.cli.metrics import _Run
from jobrun.cli.sweep_table import SweepTable
from jobrun.core.events import CheckpointLoaded, CheckpointSaved, EpochFinished, Event
from jobrun.engine.best_metric import best_of
from jobrun.errors import NotFoundError, TaskError
from jobrun.report import Broadcast, RunFiles
from jobrun.report.screen import Screen
from jobrun.runs.overview import overview, rows_of
from jobrun.runs.rundir import RunDir
from jobrun.tools.compare_runs import compare_runs
from jobrun.tools.run_summary import run_summary
from jobrun.tools.sweep_rows import SweepRow, row_on_disk

LONG = bool(os.environ.get("JOBRUN_LONG"))
BATCHES = 2
NEVER = 99
Value = float | None

# Histories.


@dataclass(frozen=True)
class Attempt:
    """A start of the run: under which direction, from where, and where it ends.

    ``rewind`` picks one of the checkpoints at a boundary to go back to.  It is cut in a batch of
    epoch ``cut`` or dies when epoch ``death`` has ended, before that is saved; 0: it does not.
    """

    direction: str
    rewind: int | None = None
    cut: int = 0
    death: int = 0


@dataclass
class History:
    """A run so far: the value of the metric in each epoch (None: nothing wrote it)."""

    values: Sequence[Value]
    keep: Keep
    every: Every
    seen: list[list[int]] = field(default_factory=list)
    directions: list[str] = field(default_factory=list)


VALUES = st.sampled_from([None, math.nan, math.inf, -math.inf, 1.0, 2.0, 3.0])
DIRECTIONS = st.sampled_from(["min", "min", "max"])
KEEPS = st.builds(
    Keep, st.integers(1, 2), st.none(), st.builds(Best, st.just("loss"), st.integers(1, 2))
)
EVERY = st.builds(Every, st.integers(1, 2), st.sampled_from([None, 1, 3]))
ATTEMPTS = st.builds(
    Attempt,
    DIRECTIONS,
    st.none() | st.integers(0, 5),
    st.integers(0, 6),
    st.integers(0, 6),
)


def job_of(history: History, direction: str, hook: Callable[[int], None]) -> Job:
    """``w`` is the epoch and the batch applied last; ``loss`` starts as 2, which is no epoch's."""

    def step(x: Any, w: Any, epoch: int) -> Any:
        hook(epoch)
        return np.array([epoch, int(w[1]) % BATCHES + 1])

    def left(x: Any, epoch: int) -> Any:
        return x[: 0 if history.values[epoch - 1] is None else None]

    policy = CheckpointPolicy(every=history.every, keep=history.keep)
    with Job("readers", metrics={"loss": direction}, checkpoint=policy) as job:
        with job.setup:
            Task(lambda: np.arange(BATCHES), out="rows", name="rows")
        with job.init:
            Task(lambda: (2.0, np.array([0, 0])), out=["loss", "w"], name="begin")
        measure = Task(lambda x, epoch: history.values[epoch - 1], ["x", "epoch"], out="loss")
        empty = Task(left, ["x", "epoch"], out="x")
        Pipe(
            {"x": "rows"},
            batch=1,
            map=[empty],
            do=[measure],
            reduce={"loss": "last"},
            name="measure",
        )
        do = [Task(step, ["x", "w", "epoch"], out="w", name="step")]
        Pipe({"x": "rows"}, batch=1, do=do, name="train")
        job.stop(epochs=len(history.values), patience={"loss": NEVER})
        with job.exit:
            Task(lambda w: history.seen.append(w.tolist()), "best:w", name="see")
    return job


def run_attempt(history: History, attempt: Attempt, run_dir: Path) -> tuple[Ended, Screen, int]:
    """One attempt; the epochs that are done in the run after it."""
    ended: Ended | None = None
    files, screen, reached = Broadcast(), Screen(), 0
    files.add("files", lambda: RunFiles(files))

    def hook(epoch: int) -> None:
        if epoch == attempt.cut:
            assert ended is not None
            ended.runner.interrupt("SIGTERM")

    def watch(event: Event) -> None:
        nonlocal reached
        files(event)
        screen.take(event, 0.0)
        if isinstance(event, CheckpointLoaded | EpochFinished):
            reached = event.epoch
        if isinstance(event, EpochFinished) and event.epoch == attempt.death:
            raise Died

    boundaries = [r.epoch for r in records(run_dir) if r.at_boundary]
    rewind = attempt.rewind
    epoch = boundaries[rewind % len(boundaries)] if rewind is not None and boundaries else None
    ended = start(job_of(history, attempt.direction, hook), run_dir, epoch, watch=watch)
    with suppress(Died, TaskError):  # a TaskError where there is no best for ``best:``
        ended.runner.train(ended.session)
    files.close()
    return ended, screen, reached


# The oracle.


def expected(pairs: Sequence[tuple[int, Value]], direction: str) -> tuple[float, int] | None:
    """The best value and its epoch, by brute force."""
    finite = [(v, e) for e, v in pairs if v is not None and math.isfinite(v)]
    best = [
        p
        for p in finite
        if all((p[0] <= o[0]) if direction == "min" else (p[0] >= o[0]) for o in finite)
    ]
    return min(best, key=lambda pair: pair[1], default=None)


def expected_record(found: Sequence[Record], history: History, direction: str) -> int | None:
    """The epoch of the best checkpoint; its value is known from its epoch alone."""
    pairs = [(r.epoch, history.values[r.epoch - 1]) for r in found if r.at_boundary and r.epoch]
    best = expected(pairs, direction)
    return best[1] if best is not None else None


# What is read.


def check_values(
    history: History, direction: str, run: RunDir, screen: Screen, reached: int
) -> None:
    """The best of all epochs, as commands give it."""
    best = expected(list(enumerate(history.values[:reached], 1)), direction)
    wanted = {"loss": best} if best is not None else {}
    view = overview(run)
    assert view.best == wanted, "runs, show"
    assert screen.best == wanted, "the live view"
    of_rows = _Run("run", view, rows_of(run)).best("loss")
    assert of_rows == (best[::-1] if best is not None else None), "metrics"
    state = run.state()
    assert state is not None
    for metric in compare_runs([view, view], [state, state]).metrics:
        assert metric.best == (best, best), "compare"
    row = row_on_disk(SweepRow("run", str(run.path), {}), job_of(history, direction, print), run)
    if row.checkpoint is not None:
        assert row.best == wanted, "the sweep table"
        table = SweepTable("s", "", {"loss": direction}, [SweepRow("a", "", {}), row], [], 0)
        assert table.best("loss") == (row if wanted else None)


def check_checkpoints(history: History, direction: str, run: RunDir) -> None:
    """The best of the checkpoints that are kept, as commands give it."""
    best = expected_record(records(run.path), history, direction)
    shown = run_summary(run).best
    assert (shown.epoch if shown is not None else None) == best, "show"
    if best is None:
        with pytest.raises(NotFoundError):
            best_of(run)
    else:
        assert load_blobs(best_of(run))["w"].tolist() == [best, BATCHES], "path --best"


def check_patience(history: History, run: RunDir) -> None:
    """The best that patience has seen, where its direction was the same all along."""
    last = [r for r in records(run.path) if r.at_boundary][-1:]
    if len(set(history.directions)) == 1 and last and last[0].epoch:
        best = expected(list(enumerate(history.values[: last[0].epoch], 1)), history.directions[0])
        (state,) = (s["state"] for s in last[0].stops if s["kind"] == "patience")
        assert (state.get("best"), state.get("best_epoch")) == (best or (None, None))


def check_retention(
    history: History, direction: str, run: RunDir, before: Sequence[int], ended: Ended
) -> None:
    """No checkpoint that is better was removed: of those there were, and those saved since."""
    loaded = [e.epoch for e in ended.said(CheckpointLoaded)]
    saves = [e for e in ended.said(CheckpointSaved) if e.place == f"epoch {e.epoch}"]
    there = [e for e in before if loaded and e <= loaded[0]] + [e.epoch for e in saves]
    best = expected([(e, history.values[e - 1]) for e in there if e], direction)
    if saves and best is not None:
        assert best[1] in [r.epoch for r in records(run.path) if r.at_boundary]


@settings(
    deadline=None,
    max_examples=400 if LONG else 40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(VALUES, min_size=2, max_size=6),
    KEEPS,
    EVERY,
    st.lists(ATTEMPTS, max_size=3),
    DIRECTIONS,
)
def test_every_reader_gives_the_same_best(
    values: list[Value], keep: Keep, every: Every, attempts: list[Attempt], last: str
) -> None:
    history = History(values, keep, every)
    with TemporaryDirectory(dir=MEMORY) as folder:
        run = RunDir(Path(folder, "run"))
        for attempt in (*attempts, Attempt(last)):
            direction = attempt.direction
            before = [r.epoch for r in records(run.path) if r.at_boundary]
            ended, screen, reached = run_attempt(history, attempt, run.path)
            outcome = ended.outcome
            if outcome.outcome == "nothing":
                best = expected(list(enumerate(values, 1)), direction)
                assert outcome.best == ({"loss": best} if best is not None else {})
                continue
            history.directions.append(direction)
            best = expected(list(enumerate(values[:reached], 1)), direction)
            assert outcome.best == ({"loss": best} if best is not None else {}), "the summary"
            check_values(history, direction, run, screen, reached)
            check_checkpoints(history, direction, run)
            check_patience(history, run)
            check_retention(history, direction, run, before, ended)
            kept = expected_record(records(run.path), history, direction)
            if outcome.outcome == "finished":
                assert history.seen.pop() == [kept, BATCHES], "best:"
            assert history.seen == []
