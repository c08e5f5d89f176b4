"""The files of a run whose report does not write them, and metrics where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun import CheckpointManager, CheckpointPolicy, Every, Job, JobRunner, Task, read_metrics
from jobrun.core.events import Event, RunEnded, RunStarted, Warned
from jobrun.report.metrics_file import MetricsFile
from jobrun.report.python import progress_report


def train(folder: Path, epochs: int, by: float, start: int | None = None, **given: Any) -> None:
    """Train a job whose loss grows by ``by`` in each epoch."""

    def step(loss: float) -> float:
        return loss + by

    policy = CheckpointPolicy(every=Every(epochs=given.pop("every", 1)))
    with Job("j", metrics={"loss": "min"}, checkpoint=policy) as job:
        with job.init:
            Task(lambda: 0.0, out="loss", name="start")
        with job.epoch:
            Task(step, "loss", out="loss")
        job.stop(epochs=epochs)
    JobRunner(job, CheckpointManager(folder), start, **given).train()


def losses(folder: Path) -> dict[int, float]:
    found = read_metrics(folder)
    return dict(zip(found["epoch"].astype(int).tolist(), found["loss"].tolist(), strict=True))


@pytest.mark.parametrize("report", [None, lambda event: None, progress_report("none", files=False)])
def test_a_rewind_by_a_script_leaves_no_row_of_what_it_has_undone(
    tmp_path: Path, report: Any
) -> None:
    """The rows of epochs 3 to 5 stayed those of the run before."""
    train(tmp_path / "r", 5, 1.0, report=progress_report("none"))
    train(tmp_path / "r", 6, 10.0, 2, report=report)
    assert losses(tmp_path / "r") == {1: 1, 2: 2, 3: 12, 4: 22, 5: 32, 6: 42}
    train(tmp_path / "r", 7, 100.0, report=progress_report("none"))
    assert losses(tmp_path / "r")[7] == 142


def test_epochs_without_rows_have_those_of_their_checkpoints(tmp_path: Path) -> None:
    """As soon as there was a metrics.csv, they had none."""
    train(tmp_path / "r", 4, 1.0, every=2)
    assert losses(tmp_path / "r") == {2: 2, 4: 4}
    train(tmp_path / "r", 5, 1.0, report=progress_report("none"))
    assert losses(tmp_path / "r") == {2: 2, 4: 4, 5: 5}


def test_the_report_gets_each_event_once_and_the_warnings_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "r", 1, 1.0, report=progress_report("none"))

    def full(self: MetricsFile) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsFile, "_write", full)
    seen: list[Event] = []
    train(tmp_path / "r", 3, 1.0, report=seen.append)
    assert [type(e) for e in seen].count(RunStarted) == 1
    assert isinstance(seen[-1], RunEnded)
    warned = [e.message for e in seen if isinstance(e, Warned)]
    assert len(warned) == 1
    assert warned[0].startswith("metrics.csv continues once it can be written again")
