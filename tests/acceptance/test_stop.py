"""Stop conditions in whole runs: left alone, killed at any epoch, and edited in between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from whole_runs import Died, Ended, ids_and_epochs, records, start, train, train_and_die

from jobrun import Best, CheckpointPolicy, Every, Job, Keep, Pipe, Task, load_blobs
from jobrun.core.events import CheckpointSaved, EpochFinished, Event, GroupStarted
from jobrun.errors import SpecError, TaskError
from jobrun.model.policy import DEFAULT_POLICY

NAN = math.nan


def value_at(series: list[float], epoch: int) -> Any:
    """The value of an epoch; the last one from then on."""
    return series[min(epoch, len(series)) - 1]


def measured(
    series: Sequence[Any],
    *,
    direction: str | None = "min",
    fail: dict[str, Any] | None = None,
    every: int | None = None,
    policy: CheckpointPolicy | None = DEFAULT_POLICY,
    **stop: Any,
) -> Job:
    """A job whose ``loss`` follows ``series``, with ``total`` counting the epochs."""
    with Job(
        "measured", vars={"series": list(series)}, metrics={"loss": direction}, checkpoint=policy
    ) as job:
        with job.init:
            Task(lambda: 0, out="total", name="zero")
        Task(lambda total: total + 1, "total", out="total", name="count")
        Task(value_at, ["series", "epoch"], out="loss", every=every)
        job.stop(**stop)
        job.fail(**(fail or {}))
    return job


# Each condition.


def test_epochs_stops_after_epoch_n_in_all_counted_over_resumes(run_dir: Path) -> None:
    train_and_die(measured([1], epochs=5), run_dir, after=2)
    ended = train(measured([1], epochs=5), run_dir)
    assert (ended.epochs, ended.outcome.ran, ended.outcome.reason) == (5, 3, "5 epochs done")


@pytest.mark.parametrize("n", [0, -1, 2.5, True, None])
def test_epochs_below_1_is_a_spec_error(n: object) -> None:
    with pytest.raises(SpecError, match=r"stop\.epochs: expected a number of epochs from 1 up"):
        start(measured([1], epochs=n))


def test_a_run_of_3_resumed_with_10_goes_on_to_10(run_dir: Path) -> None:
    assert train(measured([1], epochs=3), run_dir).epochs == 3
    ended = train(measured([1], epochs=10), run_dir)
    assert (ended.epochs, ended.outcome.ran, ended.saved) == (10, 7, [4, 5, 6, 7, 8, 9, 10])


def test_epochs_added_on_resume_counts_the_epochs_before(run_dir: Path) -> None:
    train_and_die(measured([1], when="loss < 0"), run_dir, after=4)
    ended = train(measured([1], when="loss < 0", epochs=4), run_dir)
    assert (ended.epochs, ended.outcome.ran) == (4, 0)


@pytest.mark.parametrize(
    ("when", "epochs"),
    [
        ("loss < 0.1 and epoch >= 3", 4),
        ("loss < 0.1 or epoch >= 3", 2),
        ("loss < limit", 5),
        ("not loss >= 0.25 and elapsed >= 0", 1),
        ("total == 3", 3),
        ('blob("total") > 5', 6),
    ],
)
def test_when_over_blobs_vars_epoch_and_elapsed(when: str, epochs: int) -> None:
    job = measured([0.2, 0.05, 0.3, 0.09, 0.01], when=when)
    job.vars["limit"] = 0.02
    ended = train(job)
    assert (ended.epochs, ended.outcome.reason) == (epochs, f"when: {when}")


@pytest.mark.parametrize("when", ["los < 1", "loss < limit", "__import__('os')", "loss.real", ""])
def test_when_with_an_unknown_name_or_other_syntax_is_a_spec_error(when: str) -> None:
    with pytest.raises(SpecError, match=r"stop\.when"):
        start(measured([1], when=when))


def test_elapsed_is_frozen_at_the_epochs_end_and_saved(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow_clock(monkeypatch)
    job = measured([1], when="elapsed >= 25")
    ended = train(job, run_dir, watch=clock)
    elapsed = [e.elapsed for e in ended.said(EpochFinished)]
    states = [r.stops[0]["state"]["elapsed"] for r in records(run_dir)[1:]]
    assert elapsed == states == [10, 20, 30]
    assert train(measured([1], when="elapsed >= 25"), run_dir, watch=clock).outcome.ran == 0


def slow_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that only moves when an epoch starts, by ten seconds."""
    now = [1000.0]
    monkeypatch.setattr("jobrun.engine.progress.time", SimpleNamespace(monotonic=lambda: now[0]))

    def watch(event: Event) -> None:
        if isinstance(event, GroupStarted) and event.group == "epoch":
            now[0] += 10

    return watch


@pytest.mark.parametrize(
    "value", [1, True, 0.5, np.int8(3), np.array([2.0]), np.array(True), np.array([[1]])]
)
def test_blob_is_true_if_its_one_element_is_truthy(value: object) -> None:
    values = [value * 0, value * 0, value]
    ended = train(measured_blob(values))
    assert (ended.epochs, ended.outcome.reason) == (3, "blob flag is true")


def measured_blob(values: list[Any]) -> Job:
    """A job that stops when ``flag``, which follows ``values``, is true."""
    with Job("flagged") as job:
        Task(lambda epoch: values[epoch - 1], "epoch", out="flag", name="raise_flag")
        job.stop(blob="flag")
    return job


def test_blob_with_more_than_one_element_is_an_error_that_names_it() -> None:
    with pytest.raises(TaskError, match=r"'flag'.*shape \(2,\)"):
        train(measured_blob([np.zeros(2)]))


def test_data_finished_without_passes_is_a_spec_error() -> None:
    with Job("endless") as job:
        with job.setup:
            Task(np.arange, "ten", out="rows")
        Pipe({"x": "rows"}, do=[Task(lambda x: None, "x", name="look")], name="read")
        job.stop(data_finished="read")
    job.vars["ten"] = 10
    with pytest.raises(SpecError, match="this can never be true"):
        start(job)


def test_walltime_is_accumulated_over_resumes(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At ten seconds an epoch, 45 s are over after the fifth, interrupted or not."""
    clock = slow_clock(monkeypatch)
    assert train(measured([1], walltime="45s"), watch=clock).epochs == 5
    for after in (1, 3, 4):
        directory = run_dir / str(after)
        slow_clock(monkeypatch)
        with_death(measured([1], walltime="45s"), directory, after, monkeypatch)
        ended = train(measured([1], walltime="45s"), directory, watch=slow_clock(monkeypatch))
        assert (ended.epochs, ended.outcome.reason) == (5, "walltime of 45 s is over")


def with_death(job: Job, run_dir: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train to a death right after a checkpoint, under the slow clock."""
    clock = slow_clock(monkeypatch)

    def watch(event: Event) -> None:
        clock(event)
        if isinstance(event, CheckpointSaved) and event.epoch == after:
            raise Died

    with pytest.raises(Died):
        train(job, run_dir, watch=watch)


# Patience.

WORKED = [
    ([1.0, 0.9, 0.95, 0.96, 0.97], 3, 5, 2),
    ([10, 9, 8, 9, 8.9, 8.8, 8.7], 1, 4, 3),
    ([10, 9, 8, 9, 8.9, 8.8, 8.7], 2, 5, 3),
    ([10, 9, 8, 9, 8.9, 8.8, 8.7], 3, 6, 3),
]
worked = pytest.mark.parametrize(("series", "patience", "epochs", "best"), WORKED)


@worked
def test_patience_left_alone(series: list[float], patience: int, epochs: int, best: int) -> None:
    ended = train(measured(series, patience={"loss": patience}))
    assert ended.epochs == epochs
    assert f"at epoch {best})" in ended.outcome.reason
    assert ended.outcome.best == {"loss": (series[best - 1], best)}


@worked
def test_patience_killed_after_any_epoch_stops_where_it_does_left_alone(
    run_dir: Path, series: list[float], patience: int, epochs: int, best: int
) -> None:
    for after in range(epochs + 1):
        directory = run_dir / str(after)
        train_and_die(measured(series, patience={"loss": patience}), directory, after)
        ended = train(measured(series, patience={"loss": patience}), directory)
        assert (ended.epochs, ended.outcome.ran) == (epochs, epochs - after)
        assert f"at epoch {best})" in ended.outcome.reason
        assert ended.outcome.best == {"loss": (series[best - 1], best)}
        assert train(measured(series, patience={"loss": patience}), directory).outcome.ran == 0


@pytest.mark.parametrize(
    ("series", "patience", "direction", "epochs"),
    [
        ([1, 2, 3, 2, 2.5, 9], {"loss": 2}, "max", 5),
        ([1, 1, 1], {"loss": 2}, "min", 3),
        ([1, 1, 1], {"loss": 2}, "max", 3),
        ([1, 0.95, 0.9, 0.85], {"loss": {"epochs": 2, "min_delta": 0.2}}, "min", 3),
        ([1, 0.8, 0.75, 0.5, 0.45, 0.4], {"loss": {"epochs": 2, "min_delta": 0.2}}, "min", 6),
        ([9, 1, 2, 3, 4, 5], {"loss": {"epochs": 2, "start": 3}}, "min", 6),
        ([NAN, 5, 4, 4, 4], {"loss": 2}, "min", 5),
        ([NAN, NAN, NAN], {"loss": 3}, "min", 3),
        ([5, NAN, NAN, 4], {"loss": 2}, "min", 3),
        ([5, NAN, 4, NAN, NAN], {"loss": 2}, "max", 3),
        ([5, NAN, 4, NAN, 3, 3, 3], {"loss": 2}, "min", 7),
        ([math.inf, 3, 3, 3], {"loss": 2}, "min", 4),
    ],
    ids=[
        "the metric's own direction",
        "improvement is strict, min",
        "improvement is strict, max",
        "less than min_delta is none",
        "min_delta from the best",
        "not before start",
        "a first NaN does not freeze the best",
        "NaN only",
        "NaN counts",
        "NaN counts, max",
        "never on an improving epoch",
        "infinity is no value to beat",
    ],
)
def test_patience(
    series: list[float], patience: dict[str, Any], direction: str, epochs: int
) -> None:
    ended = train(measured(series, direction=direction, patience=patience))
    assert ended.epochs == epochs
    assert ended.outcome.reason.startswith("patience: loss has not improved for")


@pytest.mark.parametrize("persists", [False, True])
def test_an_epoch_without_a_value_is_not_counted(persists: bool) -> None:
    """Also where the blob persists, and so holds the value of an earlier epoch."""
    job = measured([5, 5, 5, 4, 4, 3, 3, 3, 3, 3, 3, 3], every=2, patience={"loss": 2})
    if persists:
        with job.exit:
            Task(lambda loss: None, "loss", name="use")
    ended = train(job)
    assert ended.epochs == 10
    values = [e.metrics.get("loss") for e in ended.said(EpochFinished)]
    assert values == [None, 5, None, 4, None, 3, None, 3, None, 3]


# Failures.


@pytest.mark.parametrize(
    ("bad", "text"),
    [(NAN, "nan"), (math.inf, "inf"), (-math.inf, "-inf"), (np.float32("nan"), "n")],
)
def test_not_finite_ends_the_run_as_a_failure(run_dir: Path, bad: float, text: str) -> None:
    job = failing([3.0, 2.0, bad, 1.0])
    ended = train(job, run_dir)
    assert (ended.epochs, ended.outcome.outcome, ended.outcome.exit_code) == (3, "failed", 7)
    assert f"loss is not finite ({text}" in ended.outcome.reason
    assert ended.saved == [0, 1, 2, 3], "the last epoch is saved all the same"
    again = train(failing([3.0, 2.0, bad, 1.0]), run_dir)
    assert (again.outcome.ran, again.outcome.exit_code, again.outcome.outcome) == (0, 7, "nothing")


def failing(series: list[float]) -> Job:
    """A job that must not reach its exit, and fails when ``loss`` is not finite."""
    job = measured(series, fail={"not_finite": "loss"}, epochs=9)
    with job.exit:
        Task(lambda: pytest.fail("exit ran after a failure"), name="never")
    job.vars["series"] = [0.0]  # plain values; the real series is not JSON
    job.epoch.tasks[1].fn = lambda _, epoch: value_at(series, epoch)
    return job


def test_an_epoch_that_is_not_finite_is_never_best_and_never_costs_the_best_finite_one(
    run_dir: Path,
) -> None:
    policy = CheckpointPolicy(keep=Keep(last=1, best=Best("loss")))
    seen: list[Any] = []

    def job() -> Job:
        job = measured([], policy=policy, epochs=5)
        job.epoch.tasks[1].fn = lambda _, epoch: [3.0, 2.0, NAN, -math.inf, NAN][epoch - 1]
        with job.exit:
            Task(seen.append, "best:total", name="see")
        return job

    ended = train(job(), run_dir)
    assert ids_and_epochs(run_dir) == {2: 2, 5: 5}
    assert seen == [2]
    assert ended.outcome.best == {"loss": (2.0, 2)}


@pytest.mark.parametrize(
    "condition",
    [
        {"epochs": 2},
        {"when": "total >= 2"},
        {"blob": "flag"},
        {"patience": {"loss": 1}},
        {"walltime": "15s"},
        {"data_finished": "read"},
    ],
    ids=lambda c: next(iter(c)),
)
def test_any_condition_can_stand_under_fail(
    condition: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slow_clock(monkeypatch)
    job = measured([1.0, 1.0], fail=condition, epochs=9)
    with job.setup:
        Task(lambda: np.arange(4), out="rows", name="rows")
    with job.epoch:
        Task(lambda epoch: epoch > 1, "epoch", out="flag", name="flag")
        if "data_finished" in condition:
            step = Task(lambda x: None, "x", name="look")
            Pipe({"x": "rows"}, 2, batches_per_epoch=1, passes=1, do=[step], name="read")
    ended = train(job, watch=clock)
    assert (ended.epochs, ended.outcome.outcome, ended.outcome.exit_code) == (2, "failed", 7)


def test_of_several_true_conditions_one_under_fail_wins() -> None:
    ended = train(measured([1], fail={"when": "total >= 3"}, epochs=3, when="epoch == 3"))
    assert (ended.outcome.outcome, ended.outcome.reason) == ("failed", "when: total >= 3")


def test_else_the_first_under_stop_is_the_reason() -> None:
    ended = train(measured([1], when="epoch == 3", epochs=3))
    assert (ended.outcome.outcome, ended.outcome.reason) == ("finished", "when: epoch == 3")
    ended = train(measured([1], epochs=3, when="epoch == 3"))
    assert ended.outcome.reason == "3 epochs done"


def test_every_condition_observes_every_epoch_without_a_short_circuit(run_dir: Path) -> None:
    stop = {"epochs": 3, "patience": {"loss": 2}}
    train(measured([3, 4, 5], fail={"when": "epoch >= 3"}, **stop), run_dir)
    last = records(run_dir)[-1]
    states = {s["kind"]: s["state"] for s in last.stops}
    assert states["epochs"] == {"epoch": 3}
    assert states["patience"]["wait"] == 2
    assert states["when"]["epoch"] == 3
    assert last.decision["outcome"] == "fail"


# Edited conditions.


def test_a_finished_run_with_more_patience_goes_on_where_it_stood(run_dir: Path) -> None:
    series = [5, 6, 6, 4, 5, 5, 5]
    assert train(measured(series, patience={"loss": 2}), run_dir).epochs == 3
    ended = train(measured(series, patience={"loss": 3}), run_dir)
    assert ended.epochs == train(measured(series, patience={"loss": 3})).epochs == 7
    assert ended.outcome.ran == 4


def test_a_finished_run_with_fewer_epochs_stays_finished(run_dir: Path) -> None:
    train(measured([1], epochs=4), run_dir)
    ended = train(measured([1], epochs=2), run_dir)
    assert (ended.epochs, ended.outcome.ran, ended.outcome.outcome) == (4, 0, "nothing")
    assert ended.blobs["total"] == 4


def test_an_interrupted_run_with_fewer_epochs_ends_at_once(run_dir: Path) -> None:
    train_and_die(measured([1], epochs=9), run_dir, after=4)
    ended = train(measured([1], epochs=2), run_dir)
    assert (ended.epochs, ended.outcome.ran, ended.outcome.outcome) == (4, 0, "finished")


def test_a_failed_run_goes_on_if_the_condition_is_taken_away(run_dir: Path) -> None:
    assert train(measured([1], fail={"when": "total >= 2"}, epochs=4), run_dir).epochs == 2
    ended = train(measured([1], epochs=4), run_dir)
    assert (ended.epochs, ended.outcome.exit_code) == (4, 0)


def test_states_are_matched_by_kind_metric_and_occurrence(run_dir: Path) -> None:
    """Two metrics with a patience each, the conditions in another order after the kill."""

    def job(*conditions: dict[str, Any]) -> Job:
        with Job("two", metrics={"a": "min", "b": "max"}) as job:
            Task(lambda epoch: (-epoch, -min(epoch, 3)), "epoch", out=["a", "b"], name="both")
            for condition in conditions:
                job.stop(**condition)
        return job

    a, b, epochs = {"patience": {"a": 2}}, {"patience": {"b": 4}}, {"epochs": 9}
    assert train(job(a, b, epochs)).epochs == 5
    train_and_die(job(a, b, epochs), run_dir, after=3)
    ended = train(job(epochs, b, a), run_dir)
    assert (ended.epochs, ended.outcome.reason[:11]) == (5, "patience: b")


def test_a_changed_expression_sees_what_was_saved(run_dir: Path) -> None:
    train_and_die(measured([4, 3, 2, 1], when="loss < 2"), run_dir, after=3)
    assert train(measured([4, 3, 2, 1], when="loss < 3"), run_dir).epochs == 3


def test_no_stop_condition_at_all_is_a_spec_error() -> None:
    with pytest.raises(SpecError, match="no stop condition"):
        start(measured([1]))


def test_best_is_saved_and_survives_a_kill(run_dir: Path) -> None:
    """With a save every two epochs the best of the saved ones is loaded, whatever ended the run."""
    policy = CheckpointPolicy(every=Every(2))
    series = [5.0, 1.0, 0.5, 4.0, 3.0]
    seen: list[Any] = []

    def job() -> Job:
        job = measured(series, policy=policy, epochs=5)
        with job.exit:
            Task(lambda total: seen.append(total), "best:total", name="see")
        return job

    train_and_die(job(), run_dir, after=4)
    ended: Ended = train(job(), run_dir)
    assert ended.outcome.best == {"loss": (0.5, 3)}
    assert seen == [2]
    assert load_blobs(run_dir)["total"] == 5
