"""Which checkpoint is the best, and by what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager
from jobrun.engine.best_metric import best_by, best_in, best_of
from jobrun.errors import NotFoundError, UsageError
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir


def run_of(path: Path, facts: dict[str, Any], *metrics: dict[str, float]) -> RunDir:
    with CheckpointManager(path) as manager:
        for epoch, values in enumerate(metrics):
            manager.save(epoch, {"main": {"n": 1}}, metrics=values)
    run = RunDir(path)
    run.write(RunState(name="x", job="x", facts=facts))
    return run


def test_the_only_metric_with_a_direction(tmp_path: Path) -> None:
    facts = {"metrics": {"loss": "min", "seen": None}}
    run = run_of(tmp_path, facts, {"loss": 2.0, "seen": 1.0}, {"loss": 1.0, "seen": 2.0})
    assert best_by(run) == ("loss", "min")
    assert best_of(run).name == "checkpoint_1"
    assert best_of(run, "loss:max").name == "checkpoint_0"
    with pytest.raises(UsageError, match="smaller or a larger 'seen'"):
        best_by(run, "seen")
    assert best_by(run, "seen:max") == ("seen", "max")


def test_the_one_that_keep_names(tmp_path: Path) -> None:
    facts = {
        "metrics": {"loss": "min", "acc": "max"},
        "checkpoint": {"keep": {"best": {"metric": "acc", "count": 1}}},
    }
    run = run_of(tmp_path, facts, {"loss": 2.0, "acc": 1.0}, {"loss": 1.0, "acc": 0.5})
    assert best_by(run) == ("acc", "max")
    assert best_of(run).name == "checkpoint_0"


@pytest.mark.parametrize("checkpoint", [False, {"keep": "all"}, {"keep": {"last": 3}}])
def test_an_open_choice_is_asked_for(tmp_path: Path, checkpoint: Any) -> None:
    facts = {"metrics": {"loss": "min", "acc": "max"}, "checkpoint": checkpoint}
    run = run_of(tmp_path, facts, {"loss": 2.0, "acc": 1.0})
    with pytest.raises(UsageError, match="best by which metric") as error:
        best_by(run)
    assert "loss, acc" in error.value.hint
    assert best_by(run, "acc") == ("acc", "max")


def test_several_nodes_have_a_metric_each(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"metrics": {"loss": "min"}}, {"a:loss": 1.0, "b:loss": 2.0})
    with pytest.raises(UsageError, match="which metric"):
        best_by(run)
    assert best_by(run, "a:loss") == ("a:loss", "min")
    assert best_by(run, "b:loss:max") == ("b:loss", "max")


def test_values_that_are_not_finite_are_never_the_best(tmp_path: Path) -> None:
    nan = float("nan")
    run = run_of(
        tmp_path, {"metrics": {"loss": "min"}}, {"loss": nan}, {"loss": 3.0}, {"loss": nan}
    )
    assert best_of(run).name == "checkpoint_1"
    with pytest.raises(NotFoundError, match="no checkpoint has a metric 'lss'"):
        best_of(run, "lss")


def test_of_a_run_without_metrics_yet_it_is_said_when_they_come(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"metrics": {"loss": "min"}}, {})
    with pytest.raises(NotFoundError, match="no checkpoint has a metric 'loss'") as error:
        best_by(run, "loss")
    assert error.value.hint == "metrics are recorded at the end of an epoch, and none has any"
    with pytest.raises(NotFoundError, match="has a metric\\n"):
        best_by(run)


@pytest.mark.parametrize("metric", [None, "loss", "loss:min"])
def test_where_there_is_no_run_nobody_is_asked_for_a_metric(
    tmp_path: Path, metric: str | None
) -> None:
    with pytest.raises(NotFoundError, match="there is no checkpoint"):
        best_by(RunDir(tmp_path / "nope"), metric)


def test_the_best_of_some_checkpoints_by_each_metric_that_has_a_direction(tmp_path: Path) -> None:
    facts = {"metrics": {"loss": "min", "acc": "max", "seen": None}}
    nan = float("nan")
    run = run_of(
        tmp_path,
        facts,
        {},
        {"loss": 1.0, "acc": 0.5, "seen": 1.0},
        {"loss": 1.0, "acc": 0.75, "other": 3.0},
        {"loss": nan, "acc": 0.75},
    )
    records = run.records()
    assert best_in(run.state(), records) == {1: ("loss",), 2: ("acc",)}
    assert best_in(run.state(), records[2:]) == {2: ("loss", "acc")}
    assert best_in(None, records) == {}
