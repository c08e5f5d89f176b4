"""MLflow: one run of it for each run, every metric once for each epoch, also after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

mlflow = pytest.importorskip("mlflow")

from jobrun.core.events import StepLogged  # noqa: E402
from jobrun.report.events_file import EventsFile  # noqa: E402
from jobrun.report.mlflow import MLflow  # noqa: E402


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def runs(uri: str, experiment: str = "digits") -> tuple[Any, list[Any]]:
    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(experiment)
    return client, client.search_runs([found.experiment_id])


def steps(client: Any, run: Any, key: str) -> list[tuple[int, float]]:
    points = client.get_metric_history(run.info.run_id, key)
    return [(p.step, p.value) for p in points]


def test_a_run_with_its_vars_metrics_and_end(uri: str, tmp_path: Path, make: Any) -> None:
    reporter = MLflow(experiment="mine", tracking_uri=uri, run_name="first")
    reporter(make.started(run_dir=str(tmp_path), vars={"lr": 0.1, "kind": "x"}))
    reporter(make.epoch(1, loss=0.5, **{"acc[val]": 1, "none": None}))
    reporter(make.epoch(2, loss=float("nan")))
    reporter(make.ended(outcome="failed"))
    client, (run,) = runs(uri, "mine")
    assert run.data.params == {"lr": "0.1", "kind": "x"}
    assert run.info.status == "FAILED"
    assert run.info.run_name == "first"
    assert run.data.tags["jobrun.run"] == "digits"
    assert steps(client, run, "acc_val_") == [(1, 1.0)]
    assert repr(steps(client, run, "loss")) == "[(1, 0.5), (2, nan)]"


def test_epochs_that_are_run_again_or_were_missed_show_once(
    uri: str, tmp_path: Path, make: Any
) -> None:
    events = EventsFile(tmp_path / "events.jsonl")
    first = MLflow(tracking_uri=uri)
    first(make.started(run_dir=str(tmp_path)))
    for epoch in range(1, 6):
        event = make.epoch(epoch, loss=1 / epoch)
        events(event)
        if epoch != 2:  # a kill came between
            first(event)
    again = MLflow(tracking_uri=uri)
    again(make.started(run_dir=str(tmp_path), attempt=2, epoch=3, checkpoint=3))
    for epoch in range(4, 7):
        again(make.epoch(epoch, loss=1 / epoch))
    client, (run,) = runs(uri)
    assert run.info.status == "RUNNING"
    again(make.ended())
    client, (run,) = runs(uri)
    assert run.info.status == "FINISHED"
    assert sorted(steps(client, run, "loss")) == [(n, 1 / n) for n in range(1, 7)]
    assert sorted(s for s, _ in steps(client, run, "epoch_seconds")) == [1, 2, 3, 4, 5, 6]


def test_another_value_is_logged_beside_the_first(uri: str, tmp_path: Path, make: Any) -> None:
    for attempt, loss in ((1, 0.5), (2, 0.25)):
        reporter = MLflow(tracking_uri=uri)
        reporter(make.started(run_dir=str(tmp_path), attempt=attempt))
        reporter(make.epoch(1, loss=loss))
    client, (run,) = runs(uri)
    assert sorted(v for _, v in steps(client, run, "loss")) == [0.25, 0.5]


def test_a_run_that_is_gone_is_begun_anew(uri: str, tmp_path: Path, make: Any) -> None:
    (tmp_path / "mlflow.json").write_text('{"run_id": "gone"}')
    reporter = MLflow(tracking_uri=uri)
    reporter(make.started(run_dir=str(tmp_path), attempt=2))
    reporter(make.epoch(1, loss=1.0))
    client, (run,) = runs(uri)
    assert steps(client, run, "loss") == [(1, 1.0)]


def test_steps_that_are_run_again_or_were_missed_show_once(
    uri: str, tmp_path: Path, make: Any
) -> None:
    events = EventsFile(tmp_path / "events.jsonl")
    first = MLflow(tracking_uri=uri)
    first(make.started(run_dir=str(tmp_path)))
    for batch in range(1, 6):
        event = StepLogged("train", "main", 1, batch, {"loss": 1 / batch}, 5)
        events(event)
        if batch != 2:  # a kill came between
            first(event)
    first(make.epoch(1))
    again = MLflow(tracking_uri=uri)
    again(make.started(run_dir=str(tmp_path), attempt=2, epoch=1, checkpoint=1))
    for batch in (4, 5):
        again(StepLogged("train", "main", 1, batch, {"loss": 1 / batch}, 5))
    again(StepLogged("train", "main", 2, 1, {"loss": 0.1}, 5))
    again(make.ended())
    client, (run,) = runs(uri)
    found = sorted(steps(client, run, "train/loss"))
    assert found == [(n, 1 / n) for n in range(1, 6)] + [(6, 0.1)]
