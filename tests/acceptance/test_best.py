"""The best of a run: one rule for all who ask, whatever is saved, equal, infinite or missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import Ended, records, start, train, train_and_die

from jobrun import Best, CheckpointPolicy, Every, Job, Keep, Pipe, Task, load_blobs
from jobrun.core.events import CheckpointLoaded, EpochFinished
from jobrun.engine.best_metric import best_of
from jobrun.report.summary import summary
from jobrun.runs.overview import overview
from jobrun.runs.rundir import RunDir

NAN, INF = math.nan, math.inf
WORKED = [9.0, 2.0, 5.0, 6.0]
"""The losses of four epochs; the second is the best."""

Hook = Callable[[int, int], None]
"""Is called in each batch with the epoch and the batch."""


def batches(
    losses: list[float],
    *,
    keep: Keep,
    every: Every | None = None,
    seen: list[Any] | None = None,
    hook: Hook = lambda epoch, batch: None,
    direction: str | None = "min",
    fail: Mapping[str, Any] | None = None,
    stop: Mapping[str, Any] | None = None,
) -> Job:
    """Three batches an epoch; ``w`` is the epoch and the batch applied last.  ``seen`` gets what
    ``exit`` reads from the best checkpoint."""
    policy = CheckpointPolicy(every=every or Every(), keep=keep)

    def step(x: Any, w: Any, epoch: int) -> Any:
        batch = int(w[1]) % 3 + 1
        hook(epoch, batch)
        return np.array([epoch, batch])

    with Job("best", metrics={"loss": direction}, checkpoint=policy) as job:
        with job.setup:
            Task(lambda: np.arange(3), out="rows", name="rows")
        with job.init:
            Task(lambda: np.array([0, 0]), out="w", name="zero")
        do = [Task(step, ["x", "w", "epoch"], out="w", name="step")]
        Pipe({"x": "rows"}, batch=1, do=do, name="train")
        Task(lambda _, epoch: losses[epoch - 1], ["w", "epoch"], out="loss", name="score")
        job.stop(**(stop or {"epochs": len(losses)}))
        if fail is not None:
            job.fail(**fail)
        if seen is not None:
            with job.exit:
                Task(lambda w: seen.append(w.tolist()), "best:w", name="see")
    return job


def at(place: tuple[int, int], action: Callable[[], None]) -> Hook:
    """Does ``action`` in one batch."""

    def hook(epoch: int, batch: int) -> None:
        if (epoch, batch) == place:
            action()

    return hook


def interrupted(make: Callable[[Hook], Job], run_dir: Path, place: tuple[int, int]) -> Ended:
    """Train until a signal comes in the batch at ``place``, which is applied to its end."""
    ended: Ended | None = None

    def signal() -> None:
        assert ended is not None
        ended.runner.interrupt("SIGTERM")

    ended = start(make(at(place, signal)), run_dir)
    ended.epochs = ended.runner.train(ended.session)
    assert ended.outcome.outcome == "interrupted"
    return ended


def kept(run_dir: Path) -> list[tuple[int, bool]]:
    """The epochs of the checkpoints, and whether they lie at a boundary."""
    return [(r.epoch, r.at_boundary) for r in records(run_dir)]


KEEP = Keep(last=1, best=Best("loss"))


@pytest.mark.parametrize("place", [(3, 1), (3, 2), (4, 1)])
def test_a_signal_inside_an_epoch_costs_no_best_checkpoint(
    run_dir: Path, place: tuple[int, int]
) -> None:
    seen: list[Any] = []

    def make(hook: Hook) -> Job:
        return batches(WORKED, keep=KEEP, seen=seen, hook=hook)

    interrupted(make, run_dir, place)
    assert kept(run_dir) == [(2, True), (place[0] - 1, False)]
    inside = records(run_dir)[-1]
    assert (inside.metrics, overview(RunDir(run_dir)).best) == ({}, {"loss": (2.0, 2)})
    ended = train(make(lambda epoch, batch: None), run_dir)
    assert seen == [[2, 3]]
    assert load_blobs(best_of(RunDir(run_dir)))["w"].tolist() == [2, 3]
    assert ended.outcome.best == {"loss": (2.0, 2)}
    assert kept(run_dir) == [(2, True), (4, True)]


def test_what_is_read_as_the_best_is_kept_though_only_the_last_is_asked_for(run_dir: Path) -> None:
    seen: list[Any] = []
    train(batches(WORKED, keep=Keep(last=1), seen=seen), run_dir)
    assert seen == [[2, 3]]
    assert [r.epoch for r in records(run_dir)] == [2, 4]
    train(
        batches([-w for w in WORKED], keep=Keep(last=1), direction="max", seen=seen), run_dir / "m"
    )
    assert seen[1] == [2, 3]
    train(batches(WORKED, keep=Keep(last=1)), run_dir / "unread")
    assert [r.epoch for r in records(run_dir / "unread")] == [4]


@pytest.mark.parametrize(
    "every",
    [Every(1, batches=1), Every(1, batches=2), Every(1, seconds=0.0)],
    ids=["each batch", "every two batches", "seconds"],
)
def test_saves_inside_epochs_cost_no_best_checkpoint(run_dir: Path, every: Every) -> None:
    seen: list[Any] = []
    train(batches(WORKED, keep=KEEP, every=every, seen=seen), run_dir)
    assert seen == [[2, 3]]
    assert kept(run_dir) == [(2, True), (4, True)]
    assert load_blobs(best_of(RunDir(run_dir)))["w"].tolist() == [2, 3]


def test_a_save_that_was_asked_for_costs_no_best_checkpoint(run_dir: Path) -> None:
    seen: list[Any] = []
    ended: Ended | None = None

    def ask() -> None:
        assert ended is not None
        ended.runner.save_soon("SIGUSR1")

    ended = start(batches(WORKED, keep=KEEP, seen=seen, hook=at((3, 1), ask)), run_dir)
    ended.runner.train(ended.session)
    assert len(ended.saved) == 6
    assert seen == [[2, 3]]


# Ties, and what is not finite.


@pytest.mark.parametrize(
    ("losses", "direction", "best"),
    [
        ([3.0, 1.0, 1.0, 2.0], "min", 2),
        ([1.0, 3.0, 3.0, 2.0], "max", 2),
        ([1.0, 1.0, 1.0, 1.0], "min", 1),
        ([INF, NAN, 1.0, -INF], "min", 3),
        ([-INF, INF, 1.0, 1.0], "max", 3),
    ],
)
def test_of_equals_the_earlier_epoch_for_all_who_ask(
    run_dir: Path, losses: list[float], direction: str, best: int
) -> None:
    seen: list[Any] = []
    stop = {"epochs": 4, "patience": {"loss": 9}}
    job = batches(losses, keep=KEEP, direction=direction, seen=seen, stop=stop)
    ended = train(job, run_dir)
    assert seen == [[best, 3]]
    assert ended.outcome.best == {"loss": (losses[best - 1], best)}
    assert overview(RunDir(run_dir)).best == {"loss": (losses[best - 1], best)}
    patience = next(s["state"] for s in records(run_dir)[-1].stops if s["kind"] == "patience")
    assert patience["best_epoch"] == best


def test_infinity_freezes_no_patience(run_dir: Path) -> None:
    losses = [INF, 0.1, 0.2, 0.3, 0.2, 0.2]
    job = batches(losses, keep=Keep(), direction="max", stop={"patience": {"loss": 2}})
    ended = train(job, run_dir)
    assert ended.epochs == 6
    assert "best 0.3 at epoch 4" in ended.outcome.reason


# A direction that is changed, or given later.


@pytest.mark.parametrize("before", ["min", None])
@pytest.mark.parametrize("place", [None, (4, 2)], ids=["killed after an epoch", "cut inside one"])
def test_the_direction_of_now_decides(
    run_dir: Path, before: str | None, place: tuple[int, int] | None
) -> None:
    losses = [5.0, 4.0, 2.6, 3.0, 4.5]

    def make(hook: Hook = lambda epoch, batch: None, direction: str | None = before) -> Job:
        return batches(losses, keep=Keep(), hook=hook, direction=direction)

    if place is None:
        train_and_die(make(), run_dir, after=4)
    else:
        interrupted(make, run_dir, place)
    before_best = {"loss": (2.6, 3)} if before else {}
    assert overview(RunDir(run_dir)).best == before_best
    ended = train(batches(losses, keep=Keep(), direction="max"), run_dir)
    assert ended.outcome.best == {"loss": (5.0, 1)}
    assert overview(RunDir(run_dir)).best == {"loss": (5.0, 1)}
    assert best_of(RunDir(run_dir)).name == "checkpoint_1"
    again = train(batches(losses, keep=Keep(), direction="min"), run_dir)
    assert (again.outcome.ran, again.outcome.best) == (0, {"loss": (2.6, 3)})


# What a failure goes back to.


@pytest.mark.parametrize("every", [Every(), Every(1, batches=1), Every(1, seconds=0.0), Every(2)])
@pytest.mark.parametrize("keep", [Keep(last=1), Keep(last=3), KEEP, Keep(every=9)])
@pytest.mark.parametrize("fail", [{"not_finite": "loss"}, {"when": "isnan(loss) or loss > 50"}])
def test_a_failure_leaves_what_it_is_gone_back_to(
    run_dir: Path, every: Every, keep: Keep, fail: dict[str, Any]
) -> None:
    losses = [9.0, 2.0, 5.0, NAN if "not_finite" in fail else 99.0, 1.0]
    ended = train(batches(losses, keep=keep, every=every, fail=fail), run_dir)
    assert (ended.epochs, ended.outcome.exit_code) == (4, 7)
    back = 2 if every == Every(2) else 3
    assert ended.outcome.before_failure == back
    assert summary(ended.outcome)[-1].endswith(f"resume {run_dir} --epoch {back}")
    losses[3] = 4.0
    again = train(batches(losses, keep=keep, every=every, fail=fail), run_dir, back)
    assert (again.epochs, again.outcome.ran, again.outcome.exit_code) == (5, 5 - back, 0)
    assert again.said(CheckpointLoaded)[0].epoch == back


def test_what_a_failure_is_gone_back_to_is_finite(run_dir: Path) -> None:
    """NaN is not above 50, so that the condition comes true an epoch later."""
    losses = [9.0, 2.0, NAN, 99.0]
    fail = {"when": "loss > 50"}
    ended = train(batches(losses, keep=Keep(last=1), fail=fail), run_dir)
    assert (ended.outcome.outcome, ended.outcome.before_failure) == ("failed", 2)
    assert kept(run_dir) == [(2, True), (4, True)]


def test_without_a_condition_under_fail_no_other_checkpoint_is_kept(run_dir: Path) -> None:
    train(batches(WORKED, keep=Keep(last=1), every=Every(1, batches=1)), run_dir)
    assert kept(run_dir) == [(4, True)]


def test_a_failure_by_conditions_of_now_goes_back_behind_it(run_dir: Path) -> None:
    train_and_die(batches(WORKED, keep=Keep(), stop={"epochs": 9}), run_dir, after=4)
    ended = train(batches(WORKED, keep=Keep(), fail={"when": "loss > 5.5"}), run_dir)
    assert (ended.outcome.ran, ended.outcome.outcome) == (0, "failed")
    assert ended.outcome.before_failure == 3


# An epoch in which nothing wrote the metric.


def measured_by(
    dropped: Callable[[int], bool],
    *,
    every: Any = None,
    keep: Keep = KEEP,
    hook: Hook = lambda epoch, batch: None,
    seen: list[Any] | None = None,
    direction: str = "max",
    **stop: Any,
) -> Job:
    """``init`` gives a loss of 9; a step puts out the epoch, unless it is not due, or all rows of
    the epoch are ``dropped``.  ``w`` is as in ``batches``."""

    def step(x: Any, w: Any, epoch: int) -> Any:
        batch = int(w[1]) % 3 + 1
        hook(epoch, batch)
        return np.array([epoch, batch])

    policy = CheckpointPolicy(keep=keep)
    with Job("seldom", metrics={"loss": direction}, checkpoint=policy) as job:
        with job.setup:
            Task(lambda: np.arange(3), out="rows", name="rows")
        with job.init:
            Task(lambda: (9.0, np.array([0, 0])), out=["loss", "w"], name="begin")
        empty = Task(lambda x, epoch: x[: 0 if dropped(epoch) else None], ["x", "epoch"], out="x")
        measure = Task(lambda x, epoch: float(epoch), ["x", "epoch"], out="loss", every=every)
        Pipe({"x": "rows"}, batch=1, map=[empty], do=[measure], name="measure")
        last = [Task(step, ["x", "w", "epoch"], out="w", name="step")]
        Pipe({"x": "rows"}, batch=1, do=last, name="train")
        job.stop(**stop)
        if seen is not None:
            with job.exit:
                Task(lambda w: seen.append(w.tolist()), "best:w", name="see")
    return job


def never(epoch: int) -> bool:
    return False


@pytest.mark.parametrize("direction", ["min", "max"])
def test_a_step_that_is_never_due_gives_no_value(run_dir: Path, direction: str) -> None:
    every = {"batches": 5}
    stop: dict[str, Any] = {"epochs": 5, "patience": {"loss": 2}, "when": "loss > 8"}
    ended = train(measured_by(never, every=every, direction=direction, **stop), run_dir)
    assert (ended.epochs, ended.outcome.reason) == (5, "5 epochs done")
    assert (ended.outcome.best, ended.outcome.metrics) == ({}, {})
    assert [r.metrics for r in records(run_dir)] == [{}]
    assert overview(RunDir(run_dir)).best == {}


def test_what_was_really_measured_is_the_best(run_dir: Path) -> None:
    """The map drops all rows but in epochs 2 and 4; the 9 of ``init`` would be the largest."""
    seen: list[Any] = []
    odd = lambda epoch: epoch % 2 == 1  # noqa: E731
    ended = train(measured_by(odd, seen=seen, epochs=5), run_dir)
    assert ended.outcome.best == {"loss": (4.0, 4)}
    assert seen == [[4, 3]]
    assert [(r.epoch, dict(r.metrics)) for r in records(run_dir)] == [(4, {"loss": 4.0}), (5, {})]
    finished = [e for e in ended.events if isinstance(e, EpochFinished)]
    assert [dict(e.metrics) for e in finished] == [{}, {"loss": 2.0}, {}, {"loss": 4.0}, {}]


@pytest.mark.parametrize("epoch", [2, 3])
def test_what_was_measured_before_a_cut_counts_and_nothing_else(run_dir: Path, epoch: int) -> None:
    """The cut lies behind the pipe that measures, which has dropped all rows in epoch 3."""

    def make(hook: Hook) -> Job:
        return measured_by(lambda e: e == 3, hook=hook, keep=Keep(), epochs=4)

    interrupted(make, run_dir, (epoch, 2))
    inside = records(run_dir)[-1]
    assert inside.position.tasks == ("measure",)
    assert inside.metrics == {}
    train(make(lambda epoch, batch: None), run_dir)
    found = {r.epoch: dict(r.metrics) for r in records(run_dir) if r.at_boundary}
    assert found == {0: {}, 1: {"loss": 1.0}, 2: {"loss": 2.0}, 3: {}, 4: {"loss": 4.0}}
