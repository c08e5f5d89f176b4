"""What is known of a run that goes on: rates, the time that is left, the best values."""

from __future__ import annotations

from typing import Any

import pytest

from jobrun.core.events import (
    BatchesDone,
    CheckpointLoaded,
    GroupFinished,
    GroupStarted,
    SaveStarted,
    TaskProgress,
    TasksRunning,
)
from jobrun.report.screen import PipeProgress, Screen


def test_rates_are_of_the_last_seconds_and_go_on_over_epochs_and_cuts() -> None:
    pipe = PipeProgress()
    assert pipe.rates == (0.0, 0.0)
    for second in range(1, 11):  # 10 batches of 8 rows a second
        pipe.take(BatchesDone("t", "main", 1, 10 * second, 100, 80 * second), float(second))
    assert pipe.rates == pytest.approx((10.0, 80.0))
    pipe.begin(new=True)
    pipe.take(BatchesDone("t", "main", 2, 10, 100, 80), 11.0)
    assert pipe.rates == pytest.approx((10.0, 80.0))
    pipe.begin(new=False)  # after a cut: rows are counted anew
    pipe.take(BatchesDone("t", "main", 2, 20, 100, 80), 12.0)
    assert pipe.rates == pytest.approx((10.0, 80.0))
    assert pipe.fraction == 0.2
    assert len(pipe.moments) <= 7


def test_a_pipe_of_unknown_length_has_no_fraction() -> None:
    pipe = PipeProgress()
    pipe.take(BatchesDone("t", "main", 1, 3, None), 1.0)
    assert pipe.fraction is None


def after_epochs(make: Any, seconds: list[float], **started: Any) -> tuple[Screen, float]:
    """A screen after epochs of these lengths, and the time of now."""
    screen, now = Screen(), 100.0
    screen.take(make.started(**started), now)
    first = started.get("epoch", 0)
    for number, length in enumerate(seconds, first + 1):
        screen.take(GroupStarted("epoch", number, 1), now)
        now += length
        screen.take(make.epoch(number), now)
    return screen, now


def test_the_time_left_is_that_of_the_epochs_left_by_the_last_ones(make: Any) -> None:
    screen, now = after_epochs(make, [2.0, 2.0], epochs=10, epoch=2)
    assert screen.left(now) == pytest.approx(12.0)
    assert screen.left(now + 1) == pytest.approx(11.0)
    assert screen.left(now + 999) == 0.0
    screen, now = after_epochs(make, [100.0, *[1.0] * 20], epochs=30)
    assert screen.left(now) == pytest.approx(9.0)


def test_the_walltime_bounds_what_is_left_with_the_time_of_earlier_attempts(make: Any) -> None:
    screen, now = after_epochs(make, [2.0], epochs=100, walltime=60.0, elapsed=30.0)
    assert screen.left(now) == pytest.approx(28.0)
    assert screen.fraction(now) == pytest.approx(32 / 60)
    assert screen.progress_texts_now(now)[-1] == "walltime 32s/1m"


def test_without_a_limit_nothing_is_known_to_be_left(make: Any) -> None:
    screen, now = after_epochs(make, [2.0], epochs=None)
    assert screen.left(now) is None
    assert screen.fraction(now) is None
    assert screen.elapsed(now) == pytest.approx(2.0)


def test_the_first_epoch_is_guessed_from_its_batches(make: Any) -> None:
    screen, now = after_epochs(make, [], epochs=4)
    screen.take(GroupStarted("epoch", 1, 1), now)
    screen.take(BatchesDone("t", "main", 1, 1, 100), now + 1)
    assert screen.left(now + 1) is None
    screen.take(BatchesDone("t", "main", 1, 50, 100), now + 10)
    assert screen.left(now + 10) == pytest.approx(70.0)


@pytest.mark.parametrize(
    ("direction", "value", "change", "sign"),
    [
        ("min", 0.4, "better", -1),
        ("min", 0.6, "worse", 1),
        ("min", 0.5, "equal", 0),
        ("max", 0.6, "better", 1),
        ("max", 0.4, "worse", -1),
        ("max", 0.5, "equal", 0),
        ("max", float("nan"), "worse", 0),
        ("max", float("inf"), "worse", 0),
        ("min", float("-inf"), "worse", 0),
        (None, 0.6, "", 0),
    ],
)
def test_a_metric_beside_the_best_before_it(
    direction: str | None, value: float, change: str, sign: int, make: Any
) -> None:
    screen = Screen()
    screen.take(make.started(metrics={"m": direction}, best={"m": (0.5, 7)}), 0.0)
    screen.take(make.epoch(8, m=value), 1.0)
    (metric,) = screen.metrics
    assert (metric.change, metric.sign) == (change, sign)
    if change:
        assert (metric.best, metric.best_epoch) == (0.5, 7)


def test_a_new_best_is_compared_with_next_time(make: Any) -> None:
    screen = Screen()
    screen.take(make.started(), 0.0)
    for epoch, loss, best in ((1, 0.5, True), (2, 0.25, True), (3, 0.3, False)):
        screen.take(make.epoch(epoch, ("loss",) if best else (), loss=loss), float(epoch))
    assert (screen.metrics[0].best, screen.metrics[0].best_epoch) == (0.25, 2)


def test_phases(make: Any) -> None:
    screen = Screen()
    screen.take(make.started(checkpoint=4, epoch=2), 0.0)
    assert screen.phase() == "loading checkpoint_4"
    screen.take(GroupStarted("setup", 0, 1), 1.0)
    assert (screen.phase(), screen.phase_seconds(3.0)) == ("setup", 2.0)
    screen.take(GroupFinished("setup", 0, 1, 1.0), 4.0)
    assert screen.phase() == "loading checkpoint_4"
    screen.take(CheckpointLoaded(4, 2, "p", 9, 0.1), 5.0)
    screen.take(GroupStarted("epoch", 3, 1), 6.0)
    assert screen.phase() == ""
    screen.take(GroupStarted("exit", 3, 1), 7.0)
    assert screen.phase() == "exit"


def test_running_tasks_and_saves(make: Any) -> None:
    screen = Screen()
    screen.take(make.started(), 0.0)
    screen.take(TasksRunning("epoch", 1, (("train", 3.0), ("a:eval", 2.0)), 2), 10.0)
    screen.take(TaskProgress("eval", "a", 1, 0.5), 10.0)
    screen.take(BatchesDone("train", "main", 1, 1, 2), 10.0)
    assert screen.running_now(11.0) == [("a:eval", 3.0)]
    assert screen.fractions == {"a:eval": 0.5}
    screen.take(SaveStarted(5, 1), 12.0)
    assert screen.saving is not None
    screen.take(make.saved(5, 1), 13.0)
    assert screen.saving is None
    assert screen.waited == pytest.approx(0.3)
    screen.take(GroupFinished("epoch", 1, 2, 1.0), 14.0)
    assert screen.running_now(15.0) == []
