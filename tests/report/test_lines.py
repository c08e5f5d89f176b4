"""Plain lines: one an epoch, no escapes, nothing cut."""

from __future__ import annotations

import io
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from jobrun.core.events import (
    BatchesDone,
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    CheckpointsMoved,
    CheckpointsRemoved,
    Event,
    GroupFinished,
    GroupStarted,
    LeftoversCleaned,
    SaveAsked,
    SaveStarted,
    Stopping,
    TaskFinished,
    TaskProgress,
    TasksRunning,
    Warned,
)
from jobrun.report.lines import Lines


def written(*events: Event, verbosity: int = 0) -> str:
    stream = io.StringIO()
    lines = Lines(stream, verbosity)
    for event in events:
        lines(event)
    return stream.getvalue()


def test_a_run(make: Any) -> None:
    text = written(
        make.started(run_dir="runs/digits", notes=("stop.epochs: 3 -> 10",)),
        GroupFinished("setup", 0, 2, 0.1),
        GroupFinished("init", 0, 2, 1.5, (("init_weights", 1.4),)),
        make.saved(0, 0),
        GroupStarted("epoch", 1, 3),
        GroupFinished("epoch", 1, 3, 5.0),
        make.epoch(1, ("loss",), loss=0.51234567, **{"acc[val]": 0.5}),
        make.saved(1, 1),
        make.epoch(2),
        make.ended(),
    )
    assert text == (
        "digits in runs/digits: starts from the beginning\n"
        "  stop.epochs: 3 -> 10\n"
        "init: 2 tasks in 1.5 s (slowest: init_weights 1.4 s)\n"
        "epoch 1/3  loss 0.51235*  acc[val] 0.5  0.25 s\n"
        "epoch 2/3  0.25 s\n"
    )


def test_an_epoch_is_exactly_one_line(make: Any) -> None:
    saved = make.saved(1, 1)
    events = [make.epoch(1), saved, CheckpointsRemoved((0,)), GroupFinished("epoch", 1, 9, 99.0)]
    assert written(*events).count("\n") == 1


INSIDE = "epoch 3, after batch 10 of pipe 'train'"


def test_a_place_inside_an_epoch(make: Any) -> None:
    text = written(
        make.started(epoch=2, checkpoint=4, place=INSIDE),
        CheckpointLoaded(4, 2, "p", 999, 0.1, place=INSIDE),
        replace(make.saved(5, 2), place=INSIDE),
        CheckpointFailed(6, 2, "no room", INSIDE),
        verbosity=1,
    )
    assert text == (
        f"digits: continues in {INSIDE} (checkpoint_4)\n"
        f"loaded checkpoint_4 ({INSIDE}, 999 B, 0.10 s)\n"
        f"saved checkpoint_5 ({INSIDE}, 1.23 MB, 0.30 s); the run waited 0.30 s\n"
        f"warning: checkpoint_6 ({INSIDE}) was not saved, the run continues: no room\n"
    )


def test_a_place_after_a_task_of_an_epoch(make: Any) -> None:
    text = written(
        make.started(epoch=2, checkpoint=4, place="epoch 3, after 1 task"),
        CheckpointLoaded(4, 2, "p", 0, 0.1, place="epoch 3, after 1 task"),
    )
    assert text == (
        "digits: continues in epoch 3, after 1 task (checkpoint_4)\n"
        "loaded checkpoint_4 (epoch 3, after 1 task, 0.10 s)\n"
    )


def test_a_save_that_was_asked_for_is_said(make: Any) -> None:
    text = written(SaveAsked("SIGUSR1"), replace(make.saved(5, 2), asked=True))
    assert text == (
        "SIGUSR1: the state is saved at the next possible point\n"
        "saved checkpoint_5 (epoch 2, 1.23 MB, 0.30 s); the run waited 0.30 s\n"
    )


def test_what_a_rewind_moves_is_said() -> None:
    moved = CheckpointsMoved((5, 3, 4), "runs/x/attempts/1")
    assert written(moved) == "checkpoints 3..5 moved to runs/x/attempts/1\n"
    moved = CheckpointsMoved((7,), "runs/x/attempts/2")
    assert written(moved) == "checkpoint 7 moved to runs/x/attempts/2\n"


def test_a_resumed_run_without_a_limit(make: Any) -> None:
    text = written(make.started(epoch=2, checkpoint=4, epochs=None), make.epoch(3))
    assert text == "digits: continues after epoch 2 (checkpoint_4)\nepoch 3  0.25 s\n"


LOUD = [
    (
        CheckpointFailed(3, 2, "checkpoint 3 was not saved: No space left on device"),
        "warning: checkpoint_3 (epoch 2) was not saved, the run continues: No space left on device",
    ),
    (
        CheckpointSkipped(5, "main/w is damaged"),
        "warning: checkpoint_5 is skipped: main/w is damaged",
    ),
    (
        CheckpointLoaded(2, 2, "p", 9, 0.1, ("numpy: 1.26 -> 2.0",)),
        "warning: since then: numpy: 1.26 -> 2.0",
    ),
    (Warned("nothing persists"), "warning: nothing persists"),
    (
        Stopping("SIGINT"),
        "SIGINT: no new work starts, the state is saved (a second one ends it at once)",
    ),
]


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize(("event", "line"), LOUD)
def test_warnings_are_always_said(event: Event, line: str, verbosity: int) -> None:
    assert written(event, verbosity=verbosity).splitlines()[-1] == line


def test_quiet_says_nothing_else(make: Any) -> None:
    loaded = CheckpointLoaded(2, 2, "p", 999, 0.1)
    events = (make.started(), loaded, make.epoch(1), make.saved(1, 1), LeftoversCleaned(("x",)))
    assert written(*events, verbosity=-1) == ""


VERBOSE = [
    (GroupFinished("epoch", 1, 1, 0.5), "epoch: 1 task in 0.50 s\n"),
    (TaskFinished("epoch", 1, "[bold]", "main", 0.5), "epoch: [bold] (main) 0.50 s\n"),
    (CheckpointsRemoved((0, 1)), "removed checkpoint_0, checkpoint_1\n"),
    (
        CheckpointSaved(2, 2, "p", 999, 9, 0.1, 0.09),
        "saved checkpoint_2 (epoch 2, 999 B, 0.10 s)\n",
    ),
    (
        CheckpointSaved(2, 2, "p", 999, 9, 0.6, 0.4),
        "saved checkpoint_2 (epoch 2, 999 B, 0.60 s); the run waited 0.40 s\n",
    ),
]


@pytest.mark.parametrize(("event", "text"), VERBOSE)
def test_verbose_says_more(event: Event, text: str) -> None:
    assert (written(event), written(event, verbosity=1)) == ("", text)


def test_a_load_is_said() -> None:
    text = "loaded checkpoint_2 (epoch 2, 999 B, 0.10 s)\n"
    assert written(CheckpointLoaded(2, 2, "p", 999, 0.1)) == text


def test_verbose_shows_progress_texts(make: Any) -> None:
    assert written(make.epoch(1), verbosity=1) == "epoch 1  0.25 s  epochs 1/3\n"


def test_text_of_the_user_is_literal_and_harmless(make: Any) -> None:
    text = written(
        make.started(job="[bold]x[/]\r\x1b[31m", notes=("a\nb\x07",)),
        make.epoch(1, **{"acc[val]": 1.0, "[/x]": float("nan")}),
        Warned("[red]"),
    )
    assert text == (
        "[bold]x[/]\\x0d\\x1b[31m: starts from the beginning\n  a\n  b\\x07\n"
        "epoch 1/3  acc[val] 1  [/x] nan  0.25 s\nwarning: [red]\n"
    )


def test_long_lines_are_not_cut(make: Any) -> None:
    metrics = {f"a_metric_with_a_long_name_{i}": float(i) for i in range(40)}
    lines = written(make.epoch(1, **metrics)).splitlines()
    assert len(lines) == 1
    assert "a_metric_with_a_long_name_39 39" in lines[0]


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_heartbeat_once_a_minute_when_nothing_was_said(make: Any) -> None:
    stream, clock = io.StringIO(), Clock()
    lines = Lines(stream, clock=clock)
    lines(make.started())
    lines(GroupStarted("epoch", 1, 3))
    said = stream.getvalue()
    clock.now = 59.0
    assert lines.beat() == 1.0
    assert stream.getvalue() == said
    clock.now = 60.0
    lines(TasksRunning("epoch", 1, (("[evaluate]", 50.0),), 1))
    lines(TaskProgress("[evaluate]", "main", 1, 0.25))
    lines(BatchesDone("train", "main", 1, 31, 900, 31))
    assert lines.beat() == 60.0
    lines(SaveStarted(4, 1))
    clock.now = 121.0
    lines.beat()
    assert stream.getvalue().removeprefix(said) == (
        "still running: epoch 1 for 1m00s: train batch 31/900, [evaluate] for 50.0 s (25%)\n"
        "still running: epoch 1 for 2m01s: train batch 31/900, [evaluate] for 1m51s (25%), "
        "checkpoint_4 is being saved for 1m01s\n"
    )
    clock.now = 150.0
    lines(make.epoch(1))
    clock.now = 200.0
    assert lines.beat() == 10.0
    lines(make.ended())


def test_a_heartbeat_before_the_loop(make: Any) -> None:
    stream, clock = io.StringIO(), Clock()
    lines = Lines(stream, clock=clock)
    lines(make.started(checkpoint=3, epoch=3))
    clock.now = 61.0
    lines.beat()
    assert stream.getvalue().endswith("still running: loading checkpoint_3 for 1m01s\n")
    lines(make.ended())


def test_the_thread_of_the_heartbeat_beats_and_ends_with_the_run(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.report.lines.HEARTBEAT", 0.01)
    before, stream = set(threading.enumerate()), io.StringIO()
    lines = Lines(stream)
    lines(make.started())
    (thread,) = set(threading.enumerate()) - before
    deadline = time.monotonic() + 120
    while "still running: starting" not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "still running: starting" in stream.getvalue()
    lines(make.ended())
    thread.join(30)
    assert not thread.is_alive()


def test_no_heartbeat_when_quiet(make: Any) -> None:
    before = set(threading.enumerate())
    lines = Lines(io.StringIO(), verbosity=-1)
    lines(make.started())
    assert set(threading.enumerate()) <= before
