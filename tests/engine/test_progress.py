"""Where a run stands: what is observed, what is saved of it, and that it comes back the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from jobrun.analysis.analysis import JobAnalysis
from jobrun.checkpoint.record import Record, RecordFields, decode_record, encode_record
from jobrun.conditions.parse import build
from jobrun.core.position import Position, ReaderState
from jobrun.engine.progress import RunProgress
from jobrun.model.job import Job, Pipe, Task
from jobrun.usercode.environment import versions


def nothing(*given: Any) -> None:
    """A task that is never run."""


def job_of(**stop: Any) -> Job:
    with Job("progress", metrics={"loss": "min", "acc": "max", "size": None}) as job:
        with job.setup:
            Task(nothing, out="rows")
        with job.init:
            Task(nothing, out="model")
        passes = 3 if "data_finished" in stop else None
        do = [Task(nothing, ["x"], update=["model"])]
        Pipe({"x": "rows"}, passes=passes, do=do, name="read")
        Task(nothing, out=["loss", "acc", "size", "flag"])
        job.stop(**stop)
    return job


def progress_of(**stop: Any) -> RunProgress:
    job = job_of(**stop)
    return RunProgress(JobAnalysis(job), build(job))


def at(epoch: int, passes: int = 0) -> Position:
    """The end of an epoch, as a session gives it."""
    return Position(epoch, ("read", "nothing"), {}, {"read": ReaderState(passes, 0, 10)})


def record_of(fields: RecordFields, id: int = 7) -> Record:
    """The record that a checkpoint with these fields is read back as."""
    record = Record(
        id=id,
        time="2026-01-01T00:00:00.000000Z",
        position=fields.position,
        run_seconds=fields.run_seconds,
        metrics=fields.metrics,
        stops=fields.stops,
        decision=fields.decision,
        versions=fields.versions,
        job=fields.job,
        digest=fields.digest,
        manifests={"main": "00000000"},
        root="00000000",
        bytes=0,
        files=0,
        extra=fields.extra,
    )
    return decode_record(encode_record(record), "here")


def test_names_are_those_of_metrics_and_conditions_once_each() -> None:
    found = progress_of(epochs=9, when="loss < 1 and flag > 0", patience={"loss": 3})
    assert found.names == ("loss", "acc", "size", "flag")
    assert found.watched_paths == {"main": ["loss", "acc", "size", "flag"]}


def test_best_moves_strictly_and_never_to_what_is_not_finite() -> None:
    found = progress_of(epochs=9)
    assert found.finish_epoch(at(0), {"loss": math.nan, "acc": 0.5}) == ("acc",)
    assert found.finish_epoch(at(1), {"loss": 2.0, "acc": 0.5}) == ("loss",)
    assert found.finish_epoch(at(2), {"loss": 2.0, "acc": math.inf}) == ()
    assert found.finish_epoch(at(3), {"loss": 1.5}) == ("loss",)
    assert found.best == {"acc": (0.5, 1), "loss": (1.5, 4)}  # of equal ones the earlier
    assert found.metrics == {"loss": 1.5}


def test_a_decision_is_made_after_every_condition_has_observed() -> None:
    found = progress_of(epochs=2, patience={"loss": 1})
    found.finish_epoch(at(0), {"loss": 1.0})
    assert found.decision is None
    found.finish_epoch(at(1), {"loss": 1.0})
    assert found.decision is not None
    assert found.decision.kind == "epochs"
    assert {g.split()[0] for g in found.texts} == {"epochs", "patience"}


def test_passes_of_the_pipe_end_the_data() -> None:
    found = progress_of(data_finished="read")
    found.finish_epoch(at(0, passes=2), {})
    assert found.decision is None
    found.finish_epoch(at(1, passes=3), {})
    assert found.decision is not None
    assert found.decision.kind == "data_finished"


@pytest.mark.parametrize("loss", [1.25, math.nan, math.inf, -math.inf, 7, True])
def test_what_is_saved_comes_back_the_same(loss: float) -> None:
    one = progress_of(epochs=9, patience={"loss": 4}, when="loss < 0")
    one.finish_epoch(at(0), {"loss": 3.0, "acc": 0.25, "size": 4})
    one.finish_epoch(at(1, passes=1), {"loss": loss})
    other = progress_of(epochs=9, patience={"loss": 4}, when="loss < 0")
    other.restore(record_of(one.fields("progress", "d", versions())))
    assert other.position == one.position
    assert repr(other.scalars) == repr(one.scalars)
    assert other.best == one.best
    assert other.texts == one.texts
    assert other.verdict() == one.verdict()
    for progress in (one, other):
        progress.finish_epoch(at(2, passes=1), {"loss": 5.0})
    assert other.texts == one.texts


def test_elapsed_goes_on_where_the_checkpoint_was() -> None:
    found = progress_of(epochs=9)
    found.restore(record_of(RecordFields(position=Position(3), run_seconds=1000.0)))
    assert found.elapsed >= 1000.0


def test_at_a_cut_only_the_walltime_looks() -> None:
    found = progress_of(epochs=1, walltime=1e-9)
    inside = Position(0, ("nothing",), {}, {})
    found.cut(inside)
    assert found.position == inside
    assert found.decision is not None
    assert found.decision.kind == "walltime"
    other = progress_of(epochs=1, walltime="2h")
    other.cut(inside)
    assert other.decision is None
