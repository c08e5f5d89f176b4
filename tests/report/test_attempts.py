"""What events.jsonl tells of the attempts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobrun.core.events import (
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    Event,
    GroupFinished,
    LeftoversCleaned,
    RunWentBack,
    SlowestNode,
    Uploaded,
    Warned,
)
from jobrun.report.attempts import Attempts, read_attempts
from jobrun.report.events_file import EventsFile, runs_ended


@pytest.fixture
def told(tmp_path: Path) -> Any:
    """Writes events and reads them back."""

    def told(*events: Event) -> Attempts:
        keep = EventsFile(tmp_path / "events.jsonl")
        for event in events:
            keep(event)
        keep.close()
        return read_attempts(tmp_path / "events.jsonl")

    return told


def test_no_file(tmp_path: Path) -> None:
    assert read_attempts(tmp_path / "events.jsonl") == Attempts()


def test_one_that_ended(told: Any, make: Any) -> None:
    found = told(
        make.started(),
        make.epoch(1, loss=1.0),
        make.epoch(2, loss=1.0),
        make.saved(2, 2),
        make.ended(epoch=2, ran=2, saved=3, seconds=5.0, checkpoint_seconds=0.5),
    )
    (attempt,) = found.attempts
    assert (attempt.number, attempt.epoch, attempt.checkpoint, attempt.last) == (1, 0, None, 2)
    assert (attempt.outcome, attempt.reason) == ("finished", "3 epochs done")
    assert (attempt.epochs, attempt.saved, attempt.seconds) == (2, 3, 5.0)
    assert (found.seconds, found.checkpoint_seconds, found.saved) == (5.0, 0.5, 3)
    assert attempt.started <= attempt.ended


def test_ends_tell_what_all_events_tell(told: Any, make: Any, tmp_path: Path) -> None:
    """Epochs and saves are not read where each attempt has its end, as it mostly has."""
    path = tmp_path / "events.jsonl"
    brief = told(
        make.started(),
        make.epoch(1, loss=1.0),
        CheckpointSaved(1, 1, "p", 10, 1, 0.3, 0.25),
        make.ended(epoch=1, ran=1, saved=1, checkpoint_seconds=0.25),
        make.started(attempt=2, epoch=1, checkpoint=1),
        make.epoch(2, loss=1.0),
        GroupFinished("epoch", 3, 1, 1.0, (("fit", 1.0),)),
        make.ended(epoch=2, ran=1, saved=0, checkpoint_seconds=0.0),
    )
    text = path.read_text()
    path.write_text(text + '{"event": "RunStarted", "of": "another form"}\n')
    assert not runs_ended(path)
    assert read_attempts(path) == brief
    assert [a.last for a in brief.attempts] == [1, 2]
    # An end that cannot be used is as good as none, and an older one may lack the epoch.
    for old, new in {'"exit_code"': '"code"', '"epoch": 2, "ran"': '"ran"'}.items():
        path.write_text(new.join(text.rsplit(old, 1)))
        assert runs_ended(path)
        second = read_attempts(path).attempts[1]
        assert (second.last, second.epochs) == (2, 1)


def test_the_slurm_job_and_how_often_it_was_requeued(told: Any, make: Any) -> None:
    first, second = told(
        make.started(slurm_job="17_3"), make.started(slurm_job="17_3", requeued=1)
    ).attempts
    assert (first.slurm_job, first.requeued) == ("17_3", 0)
    assert (second.slurm_job, second.requeued) == ("17_3", 1)


def test_the_slowest_node(told: Any, make: Any) -> None:
    slowest = SlowestNode("b", 4.0, 2.0)
    (attempt,) = told(make.started(), make.ended(slowest=slowest)).attempts
    assert attempt.slowest == slowest


def test_one_that_was_killed_ends_with_its_last_work(told: Any, make: Any) -> None:
    found = told(
        make.started(),
        make.epoch(1, loss=1.0),
        CheckpointSaved(1, 1, "p", 10, 1, 0.3, 0.25),
        LeftoversCleaned(("x",)),
        make.started(attempt=2, epoch=1, checkpoint=1),
        make.ended(ran=0),
    )
    killed, second = found.attempts
    assert (killed.outcome, killed.epochs, killed.saved) == ("", 1, 1)
    assert killed.checkpoint_seconds == 0.25
    assert killed.seconds >= 0
    assert (second.epoch, second.checkpoint, second.last) == (1, 1, 1)


def test_tasks_the_slowest_first(told: Any, make: Any) -> None:
    found = told(
        make.started(),
        GroupFinished("init", 0, 1, 0.1, (("start", 0.125),)),
        GroupFinished("epoch", 1, 3, 2.0, (("fit", 1.0), ("score", 0.5))),
        GroupFinished("epoch", 2, 3, 4.0, (("fit", 3.0), ("score", 0.5))),
    )
    assert [(t.group, t.task, t.times, t.seconds, t.longest) for t in found.tasks] == [
        ("epoch", "fit", 2, 4.0, 3.0),
        ("epoch", "score", 2, 1.0, 0.5),
        ("init", "start", 1, 0.125, 0.125),
    ]


def test_warnings_each_once(told: Any, make: Any) -> None:
    found = told(
        Warned("early"),
        make.started(),
        Warned("early"),
        CheckpointFailed(3, 3, "checkpoint 3 was not saved: disk full"),
        CheckpointSkipped(2, "torn"),
        CheckpointLoaded(1, 1, "p", 1, 0.1),
        CheckpointLoaded(1, 4, "p", 1, 0.1, ("numpy: 1 -> 2",)),
        RunWentBack("worker n1 was killed", 1, 3, 4, 4),
    )
    assert found.warnings == [
        "early",
        "checkpoint_3 was not saved: disk full",
        "checkpoint_2 was skipped: torn",
        "other libraries from epoch 4 on: numpy: 1 -> 2",
        "worker n1 was killed: the run went back to epoch 4",
    ]


def test_events_of_an_older_jobrun(tmp_path: Path) -> None:
    """``only`` came later."""
    (tmp_path / "events.jsonl").write_text(
        '{"time": "2026-11-28T01:00:00.000Z", "event": "RunStarted", "attempt": 1, "epoch": 0, '
        '"checkpoint": null, "session": "local"}\n{"torn'
    )
    (attempt,) = read_attempts(tmp_path / "events.jsonl").attempts
    assert (attempt.only, attempt.outcome) == ("", "")


def test_thousands_of_warnings_and_uploads_each_once_in_order(told: Any, make: Any) -> None:
    each = [Warned(f"warning {n}") for n in range(3000)]
    places = [Uploaded(n, f"s3://b/{n}", 1, 1, 1, 0.1) for n in range(3000)]
    found = told(make.started(), *each, *each, *places, places[0])
    assert found.warnings == [f"warning {n}" for n in range(3000)]
    assert found.uploaded == [*(f"s3://b/{n}" for n in range(1, 3000)), "s3://b/0"]


def test_the_pieces_of_an_epoch_that_saves_cut_are_one_time(told: Any, make: Any) -> None:
    found = told(
        make.started(),
        GroupFinished("epoch", 1, 2, 1.0, (("fit", 1.0), ("read", 0.5))),
        GroupFinished("epoch", 1, 2, 1.0, (("fit", 2.0),)),
        GroupFinished("epoch", 2, 2, 1.0, (("fit", 1.5),)),
        make.started(attempt=2, epoch=1, checkpoint=1),
        GroupFinished("epoch", 2, 2, 1.0, (("fit", 1.0),)),
    )
    fit, read = found.tasks
    assert (fit.task, fit.times, fit.seconds, fit.longest) == ("fit", 3, 5.5, 3.0)
    assert (read.task, read.times, read.seconds, read.longest) == ("read", 1, 0.5, 0.5)
