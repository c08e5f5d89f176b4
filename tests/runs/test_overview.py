"""A run in one line, from run.json, the newest checkpoint and the end of metrics.csv."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.runs.overview import direction_of, overview, rows_of
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.values.boxes import Box

FACTS = {"metrics": {"loss": "min", "size": None}, "stop": {"epochs": 9, "when": "loss < 0"}}
HEAD = "epoch,seconds,elapsed,loss,size\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A directory without anything in it."""
    return RunDir(tmp_path / "sum")


def write(run: RunDir, state: str = "finished", rows: str = "", **fields: Any) -> None:
    run.write(RunState("sum", "sum", state=state, facts=fields.pop("facts", FACTS), **fields))
    if rows:
        (run.path / "metrics.csv").write_text(HEAD + rows)


def save(run: RunDir, epoch: int, metrics: dict[str, Any], best: dict[str, Any]) -> None:
    """A checkpoint; ``best`` are the smallest values so far."""
    with CheckpointManager(run.path) as manager:
        fields = RecordFields(
            Position(epoch),
            epoch * 2.0,
            metrics,
            extra={"extremes": {name: {"min": pair} for name, pair in best.items()}},
            versions={"numpy": "2"},
        )
        manager.save_snapshot(BlobSource({"main": {"n": Box(epoch, "int")}}), fields)


def test_a_finished_run(run: RunDir) -> None:
    save(run, 2, {"loss": 0.5, "size": 3, "watched": 1}, {"loss": [0.25, 1]})
    rows = "1,1,1,0.25,3\n2,1,2.5,0.5,3\n"
    write(run, reason="2 epochs done", epoch=2, elapsed=3.0, rows=rows)
    view = overview(run)
    assert (view.name, view.state, view.reason) == ("sum", "finished", "2 epochs done")
    assert (view.epoch, view.limit, view.elapsed) == (2, 9, 3.0)
    assert view.metrics == {"loss": 0.5, "size": 3}
    assert view.directions == {"loss": "min", "size": None}
    assert (view.best, view.best_by) == ({"loss": (0.25, 1)}, "loss")
    assert (view.checkpoints, view.head, view.versions) == (1, 0, {"numpy": "2"})


def test_epochs_after_the_newest_checkpoint_count(run: RunDir) -> None:
    save(run, 1, {"loss": 0.5}, {"loss": [0.5, 1]})
    write(run, "interrupted", "1,1,1,0.5,3\n2,1,2,NaN,3\n3,1,3,0.125,4\n4,1,4,0.125,\n")
    view = overview(run)
    assert (view.epoch, view.elapsed) == (4, 4.0)
    assert view.metrics == {"loss": 0.125}
    assert view.best == {"loss": (0.125, 3)}, "of equals the earlier"


def test_the_best_before_the_newest_checkpoint_counts(run: RunDir) -> None:
    save(run, 2, {"loss": 0.5}, {"loss": [0.25, 1]})
    write(run, "interrupted", "3,1,3,0.375,3\n")
    assert overview(run).best == {"loss": (0.25, 1)}


def test_without_checkpoints(run: RunDir) -> None:
    write(run, "error", "1,1,1,2,3\n2,1,2,1,3\n", reason="full")
    view = overview(run)
    assert (view.epoch, view.head, view.checkpoints) == (2, None, 0)
    assert view.best == {"loss": (1, 2)}


def test_without_metrics_csv_the_checkpoint_says_it(run: RunDir) -> None:
    save(run, 1, {"size": 3, "loss": 0.5, "watched": 1}, {"loss": [0.5, 1]})
    write(run, "interrupted", epoch=0)
    view = overview(run)
    assert (view.epoch, view.elapsed, view.metrics) == (1, 2.0, {"loss": 0.5, "size": 3})
    assert [(row.epoch, row.elapsed) for row in rows_of(run)] == [(1, 2.0)]


def test_metrics_are_in_the_order_of_the_job(run: RunDir) -> None:
    """Whatever epoch had a value of them first, or last: the first with a direction is the best."""
    facts = {"metrics": {"late": "min", "seen": None, "loss": "max"}}
    run.write(RunState(name="sum", job="sum", facts=facts, state="finished"))
    text = "epoch,seconds,elapsed,loss,seen,late\n1,1,1,1,2,\n2,1,2,3,4,5\n3,1,3,1,2,\n"
    (run.path / "metrics.csv").write_text(text)
    view = overview(run)
    assert list(view.metrics) == ["seen", "loss"]
    assert list(view.directions) == ["late", "seen", "loss"]
    assert (list(view.best), view.best_by) == (["late", "loss"], "late")


def test_the_time_of_an_attempt_that_failed_counts(run: RunDir) -> None:
    write(run, "error", "1,1,1,2,3\n2,1,2,1,3\n", reason="full", elapsed=2.75)
    assert overview(run).elapsed == 2.75


def test_the_time_of_the_attempt_before_a_kill_does_not_count(run: RunDir) -> None:
    """It went back, and was killed: run.json still has the time of what is undone."""
    write(run, "running", "1,1,1,2,3\n2,1,2,1,3\n", elapsed=9.0)
    assert (overview(run).state, overview(run).elapsed) == ("interrupted", 2.0)
    run.lock()
    assert (overview(run).state, overview(run).elapsed) == ("running", 2.0)
    run.unlock()


def test_a_directory_of_checkpoints_alone(run: RunDir) -> None:
    save(run, 4, {"acc": 0.5}, {})
    view = overview(run)
    assert (view.state, view.epoch, view.metrics) == ("interrupted", 4, {"acc": 0.5})
    assert (view.directions, view.best, view.best_by) == ({"acc": None}, {}, None)


def test_several_nodes(run: RunDir) -> None:
    save(run, 1, {"b:loss": 2.0, "a:loss": 1.0, "a:x": 0}, {"a:loss": [1.0, 1], "b:loss": [2.0, 1]})
    write(run, facts={"metrics": {"loss": "min"}})
    assert overview(run).metrics == {"b:loss": 2.0, "a:loss": 1.0}
    assert overview(run).best["a:loss"] == (1.0, 1)
    assert direction_of({"loss": "min", "a:loss": "max"}, "a:loss") == "max"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "run.json cannot be read, and there is no checkpoint"),
        ('{"format": 99}', "run.json is of format 99; this jobrun reads format 1"),
    ],
)
def test_a_broken_run_is_told_of(text: str, reason: str, run: RunDir) -> None:
    run.path.mkdir()
    (run.path / "run.json").write_text(text)
    view = overview(run)
    assert (view.name, view.state, view.reason) == ("sum", "broken", reason)


def test_a_damaged_checkpoint_is_passed_over(run: RunDir) -> None:
    save(run, 1, {"loss": 0.5}, {"loss": [0.5, 1]})
    save(run, 2, {"loss": 0.25}, {"loss": [0.25, 2]})
    (run.path / "checkpoint_1/_SUCCESS").write_text("torn")
    write(run)
    view = overview(run)
    assert (view.head, view.epoch, view.checkpoints) == (0, 1, 2)
