"""``metrics.csv`` has one row per epoch of the history that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun.core.events import CheckpointLoaded, Event, RunWentBack
from jobrun.report.events_file import EventsFile
from jobrun.report.metrics_file import MetricsFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def attempt(folder: Path, *events: Event) -> str:
    """One start of the run: both files are told of the events; what metrics.csv holds then."""
    events_file = EventsFile(folder / "events.jsonl")
    metrics_file = MetricsFile(folder / "metrics.csv", folder / "events.jsonl")
    for event in events:
        events_file(event)
        metrics_file(event)
    events_file.close()
    return (folder / "metrics.csv").read_text()


def loaded(epoch: int) -> CheckpointLoaded:
    return CheckpointLoaded(epoch, epoch, "c", 0, 0.0)


def test_one_row_per_epoch(folder: Path, make: Any) -> None:
    first = make.epoch(1, loss=0.1 + 0.2, **{"acc[val]": 1})
    text = attempt(folder, make.started(), first, make.epoch(2, loss=float("nan")), make.ended())
    assert text == (
        "epoch,seconds,elapsed,loss,acc[val]\n1,0.25,0.25,0.30000000000000004,1\n2,0.25,0.5,NaN,\n"
    )


def test_going_on_adds_rows(folder: Path, make: Any) -> None:
    attempt(folder, make.started(), make.epoch(1, loss=1.0))
    text = attempt(folder, make.started(epoch=1, checkpoint=1), make.epoch(2, loss=2.0))
    assert [line.split(",")[0] for line in text.splitlines()] == ["epoch", "1", "2"]


def test_a_metric_named_like_a_column_of_the_file(folder: Path, make: Any) -> None:
    metrics = {"seconds": "min", "elapsed": None, "loss": "min"}
    attempt(folder, make.started(metrics=metrics), make.epoch(1, seconds=7, elapsed=8, loss=9))
    text = attempt(folder, make.started(metrics=metrics, epoch=1, checkpoint=1))
    assert text == ("epoch,seconds,elapsed,metric:seconds,metric:elapsed,loss\n1,0.25,0.25,7,8,9\n")


def test_a_rewind_takes_rows_away(folder: Path, make: Any) -> None:
    attempt(folder, make.started(), *(make.epoch(n, loss=1.0) for n in (1, 2, 3)))
    start = make.started(epoch=1, checkpoint=1)
    text = attempt(folder, start, loaded(1), make.epoch(2, loss=5.0))
    assert [line.split(",")[::3] for line in text.splitlines()[1:]] == [["1", "1.0"], ["2", "5.0"]]
    text = attempt(folder, make.started(epoch=2, checkpoint=2), loaded(2), make.epoch(3, loss=6.0))
    assert [line.split(",")[3] for line in text.splitlines()[1:]] == ["1.0", "5.0", "6.0"]


def test_a_rewind_that_fails_before_its_checkpoint_is_loaded_takes_none(
    folder: Path, make: Any
) -> None:
    """The checkpoints of the later epochs are in place still."""
    epochs = [make.epoch(n, loss=float(n)) for n in (1, 2, 3)]
    text = attempt(folder, make.started(), *epochs)
    assert attempt(folder, make.started(epoch=1, checkpoint=1), make.ended()) == text
    assert attempt(folder, make.started(epoch=3, checkpoint=3), loaded(3)) == text
    (folder / "metrics.csv").unlink()
    assert attempt(folder, make.started(epoch=3, checkpoint=3)) == text
    text = attempt(folder, make.started(epoch=2, checkpoint=2), loaded(2))
    assert [line[0] for line in text.splitlines()] == ["e", "1", "2"]


def test_a_start_from_the_beginning_leaves_no_row(folder: Path, make: Any) -> None:
    attempt(folder, make.started(), make.epoch(1, loss=1.0))
    assert attempt(folder, make.started()).count("\n") == 1


def test_running_exit_again_leaves_the_rows_alone(folder: Path, make: Any) -> None:
    """Also if a worker is lost on the way, so that it begins again."""
    text = attempt(folder, make.started(), *(make.epoch(n, loss=1.0) for n in (1, 2, 3)))
    back = RunWentBack("a worker was lost", 1, 3, 1, 1)
    assert attempt(folder, make.started(epoch=1, checkpoint=1, only="exit"), back) == text
    (folder / "metrics.csv").unlink()
    assert attempt(folder, make.started(epoch=3, checkpoint=3)) == text


def test_rows_after_a_lost_worker_follow_those_that_are_left(folder: Path, make: Any) -> None:
    back = RunWentBack("a worker was lost", 1, 3, 1, 1)
    epochs = [make.epoch(n, loss=float(n)) for n in (1, 2)]
    text = attempt(folder, make.started(), *epochs, back, make.epoch(2, loss=5.0))
    assert [line.split(",")[::3] for line in text.splitlines()[1:]] == [["1", "1.0"], ["2", "5.0"]]


def test_a_lost_file_is_derived_again(folder: Path, make: Any) -> None:
    attempt(folder, make.started(), make.epoch(1, loss=1.0), make.epoch(2, loss=0.5))
    (folder / "metrics.csv").unlink()
    text = attempt(folder, make.started(epoch=2, checkpoint=2))
    assert text == "epoch,seconds,elapsed,loss,acc[val]\n1,0.25,0.25,1.0,\n2,0.25,0.5,0.5,\n"


def test_new_metrics_get_columns_and_old_ones_stay(folder: Path, make: Any) -> None:
    attempt(folder, make.started(metrics={"loss": "min"}), make.epoch(1, loss=1.0))
    start = make.started(metrics={"f1, macro": "max"}, epoch=1, checkpoint=1)
    text = attempt(folder, start, make.epoch(2, **{"f1, macro": 0.5}))
    assert text == 'epoch,seconds,elapsed,"f1, macro",loss\n1,0.25,0.25,,1.0\n2,0.25,0.5,0.5,\n'
