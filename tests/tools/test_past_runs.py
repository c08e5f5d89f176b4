"""Runs on disk for Python: listed, read as arrays, shown in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, Task, list_runs, read_metrics
from jobrun.errors import NotFoundError, UsageError
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir


def start() -> float:
    return 8.0


def halve(x: float) -> float:
    return x / 2


def nothing(event: object) -> None:
    pass


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs; the first has a metric whose name is HTML."""
    monkeypatch.chdir(tmp_path)
    for name, metrics in (("first", {"x": "min", "y": None}), ("second", {"x": "min"})):
        with Job(name, metrics=metrics, vars={"lr": 0.5}) as job:
            with job.init:
                Task(start, out="x")
            with job.epoch:
                Task(halve, in_="x", out="x")
                if name == "first":
                    Task(halve, in_="x", out="y")
        job.stop(epochs=3)
        manager = CheckpointManager(tmp_path / "runs" / name)
        assert JobRunner(job, manager, report=nothing).train() == 3, "a local session by default"
    rows = ["epoch,seconds,elapsed,x,<b>", "1,.1,.1,4.0,2.0", "2,.1,.2,2.0,", "3,.1,.3,1.0,0.5"]
    (tmp_path / "runs/first/metrics.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "runs"


def test_the_newest_comes_first(runs: Path) -> None:
    second, first = list_runs()
    assert (second.name, first.name) == ("second", "first")
    assert first.path == Path("runs/first")
    assert (first.state, first.epochs) == ("finished", 3)
    assert first.best["x"] == (1.0, 3)
    assert first.metrics["x"] == 1.0
    assert first.vars == {"lr": 0.5}
    assert repr(first) == "PastRun('first', finished after 3 epochs)"
    assert list_runs(runs.parent / "nothing") == []


def test_metrics_are_arrays_by_name(runs: Path) -> None:
    for run in ("first", runs / "first", list_runs()[1]):
        found = read_metrics(run)
        assert list(found) == ["epoch", "seconds", "elapsed", "x", "<b>"]
        assert found["x"].dtype == np.float64
        assert found["x"].tolist() == [4.0, 2.0, 1.0]
        assert found["epoch"].tolist() == [1, 2, 3]
        assert len(found) == 5
    np.testing.assert_equal(found["<b>"], [2.0, np.nan, 0.5])
    assert read_metrics("second")["x"].tolist() == [4.0, 2.0, 1.0], "those of the checkpoints"
    assert repr(found) == "Metrics('first', 3 epochs: epoch, seconds, elapsed, x, <b>)"


def test_a_metric_named_like_the_time_of_an_epoch_does_not_replace_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "timed")
    run.write(RunState(name="timed", job="timed", facts={"metrics": {"seconds": "min"}}))
    text = "epoch,seconds,elapsed,metric:seconds\n1,0.5,1.5,40\n2,0.25,2,30\n"
    (run.path / "metrics.csv").write_text(text)
    found = read_metrics(run.path)
    assert found["seconds"].tolist() == [0.5, 0.25]
    assert found["metric:seconds"].tolist() == [40.0, 30.0]


def test_a_notebook_shows_tables_in_which_text_is_text(runs: Path) -> None:
    first = list_runs()[1]
    run, metrics = first._repr_html_(), read_metrics(first)._repr_html_()
    assert "<td>finished: " in run
    assert "&lt;b&gt;" in run
    assert metrics.count("<tr>") == 4
    assert "&lt;b&gt;" in metrics
    assert "<b>" not in run + metrics


@pytest.mark.usefixtures("runs")
def test_a_run_that_is_not_there() -> None:
    first = list_runs()[1]
    with pytest.raises(NotFoundError, match="no run 'third'"):
        read_metrics("third")
    (Path("runs/first")).rename("elsewhere")
    with pytest.raises(NotFoundError, match="the run is gone"):
        read_metrics(first)


@pytest.mark.usefixtures("runs")
def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="a DataFrame needs the package pandas"):
        read_metrics("first").to_frame()


@pytest.mark.usefixtures("runs")
def test_a_frame_of_pandas() -> None:
    pytest.importorskip("pandas", reason="pandas makes the frame")
    frame = read_metrics("first").to_frame()
    assert frame.index.tolist() == [1, 2, 3]
    assert frame["x"].tolist() == [4.0, 2.0, 1.0]
