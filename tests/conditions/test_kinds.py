"""Stop conditions: the worked numbers, and states that survive."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.conditions.base import Condition, EpochSummary
from jobrun.conditions.decision import match_states, observe_all
from jobrun.conditions.expression import Expression
from jobrun.conditions.kinds.blob_true import BlobTrue
from jobrun.conditions.kinds.data_finished import DataFinished
from jobrun.conditions.kinds.epochs import Epochs
from jobrun.conditions.kinds.not_finite import NotFinite
from jobrun.conditions.kinds.patience import Patience
from jobrun.conditions.kinds.walltime import Walltime
from jobrun.conditions.kinds.when import When
from jobrun.errors import TaskError

MISSING = object()


def stopped_at(condition: Condition, series: Sequence[Any], resumes: bool = False) -> int | None:
    """The epoch after which a run over ``series`` of the metric stops, if it does."""
    state: dict[str, Any] = {}
    for epoch, value in enumerate(series, 1):
        scalars = {} if value is MISSING else {"loss": value}
        state = condition.observe(state, EpochSummary(epoch, float(epoch), scalars))
        if resumes:
            state = json.loads(json.dumps(state))
        if condition.verdict(state) is not None:
            return epoch
    return None


@pytest.mark.parametrize(("patience", "stop"), [(1, 4), (2, 5), (3, 6), (4, None)])
def test_patience_on_the_worked_series(patience: int, stop: int | None) -> None:
    series = [10, 9, 8, 9, 8.9, 8.8] if patience > 3 else [10, 9, 8, 9, 8.9, 8.8, 8.7]
    assert stopped_at(Patience("loss", patience), series) == stop


@pytest.mark.parametrize("resumes", [False, True])
def test_patience_stops_in_the_same_epoch_when_it_was_interrupted(resumes: bool) -> None:
    condition = Patience("loss", 3)
    assert stopped_at(condition, [1.0, 0.9, 0.95, 0.96, 0.97], resumes) == 5
    state: dict[str, Any] = {}
    for epoch, value in enumerate([1.0, 0.9, 0.95, 0.96], 1):
        state = condition.observe(state, EpochSummary(epoch, 0.0, {"loss": value}))
    killed = json.loads(json.dumps(state))
    assert condition.verdict(killed) is None
    after = condition.observe(killed, EpochSummary(5, 0.0, {"loss": 0.97}))
    reason = "patience: loss has not improved for 3 epochs (best 0.9 at epoch 2)"
    assert condition.verdict(after) == reason


@pytest.mark.parametrize(
    ("condition", "series", "stop"),
    [
        # the other direction
        (Patience("loss", 2, "max"), [0.1, 0.2, 0.2, 0.15], 4),
        (Patience("loss", 2, "max"), [0.1, 0.2, 0.2, 0.3, 0.3], None),
        # an equal value is no improvement
        (Patience("loss", 2), [1.0, 1.0, 1.0], 3),
        # NaN first, in the middle, alone
        (Patience("loss", 2), [math.nan, 1.0, 0.9, 0.95, 0.95], 5),
        (Patience("loss", 2), [1.0, math.nan, 0.9, math.nan, math.nan], 5),
        (Patience("loss", 3), [math.nan] * 3, 3),
        # improvement is strict: value < best - min_delta
        (Patience("loss", 1, min_delta=0.5), [2.0, 1.5], 2),
        (Patience("loss", 1, min_delta=0.5), [2.0, 1.25, 0.75], 3),
        (Patience("loss", 2, "max", min_delta=1.0), [0.0, 1.0, 2.0, 2.5, 3.0], 5),
        # the first epochs are not looked at: neither counted nor the best
        (Patience("loss", 2, start=2), [0.1, 0.1, 1.0, 0.9, 0.95, 0.95], 6),
        (Patience("loss", 1, start=3), [1.0, 1.0, 1.0, 1.0], None),
        # an epoch without a value does not count
        (Patience("loss", 2), [1.0, MISSING, 1.0, MISSING, 1.0], 5),
        (Patience("loss", 2), [MISSING, MISSING, MISSING], None),
        # an infinite value is never the best, of either sign, and can be improved upon
        (Patience("loss", 2), [math.inf, 1.0, 2.0, 3.0], 4),
        (Patience("loss", 2, "max"), [math.inf, 0.1, 0.2, 0.3, 0.2, 0.2], 6),
        (Patience("loss", 2), [3.0, -math.inf, 2.0, 1.0, 1.0, 1.0], 6),
        (Patience("loss", 2, "max"), [1.0, math.inf, math.inf], 3),
    ],
)
def test_patience(condition: Patience, series: list[Any], stop: int | None) -> None:
    assert stopped_at(condition, series) == stop
    assert stopped_at(condition, series, resumes=True) == stop


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, math.nan]), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["min", "max"]),
)
def test_patience_never_stops_on_an_improving_epoch(
    series: list[float], epochs: int, direction: str
) -> None:
    stop = stopped_at(Patience("loss", epochs, direction), series)
    if stop is not None:
        seen = [v for v in series[: stop - 1] if not math.isnan(v)]
        last = series[stop - 1]
        better = not math.isnan(last) and (
            not seen or (last < min(seen) if direction == "min" else last > max(seen))
        )
        assert not better
        assert stop >= epochs


def test_an_infinite_best_of_an_older_checkpoint_is_improved_upon() -> None:
    state = {"direction": "max", "best": math.inf, "best_epoch": 1, "wait": 2}
    found = Patience("loss", 3, "max").observe(state, EpochSummary(4, 0.0, {"loss": 0.5}))
    assert (found["best"], found["best_epoch"], found["wait"]) == (0.5, 4, 0)


def test_patience_with_changed_parameters_obeys_the_new_ones() -> None:
    state: dict[str, Any] = {}
    for epoch, value in enumerate([1.0, 1.1, 1.2], 1):
        state = Patience("loss", 5).observe(state, EpochSummary(epoch, 0.0, {"loss": value}))
    assert Patience("loss", 3).verdict(state) is None
    assert Patience("loss", 2).verdict(state) is not None
    assert Patience("loss", 2, "max").verdict(state) is None  # its best is another
    turned = Patience("loss", 2, "max").observe(state, EpochSummary(4, 0.0, {"loss": 1.0}))
    assert (turned["best"], turned["wait"]) == (1.0, 0)


def test_epochs_are_counted_over_resumes_and_the_limit_is_that_of_now() -> None:
    state = Epochs(3).observe({}, EpochSummary(3, 1.0))
    assert Epochs(3).verdict(state) == "3 epochs done"
    assert Epochs(10).verdict(state) is None
    assert Epochs(1).verdict(Epochs(1).observe({}, EpochSummary(1, 1.0))) == "1 epoch done"


def test_when_looks_at_the_state_with_the_expression_of_now() -> None:
    seen = EpochSummary(4, 12.5, {"loss": 0.2, "trainer_0:loss": 0.3})
    first = When(Expression.parse("loss < 0.1"))
    state = json.loads(json.dumps(first.observe({}, seen)))
    assert first.verdict(state) is None
    assert When(Expression.parse("loss < 0.25 and elapsed > 12")).verdict(state) is not None
    assert When(Expression.parse("epoch >= 4")).verdict(state) == "when: epoch >= 4"
    assert When(Expression.parse("loss < limit"), {"limit": 0.3}).verdict(state) is not None
    assert When(Expression.parse('blob("trainer_0:loss") > 0.2')).verdict(state) is not None


def test_when_is_false_without_a_value_and_for_nan() -> None:
    condition = When(Expression.parse("accuracy > 0.9"))
    assert condition.verdict(condition.observe({}, EpochSummary(1, 0.0))) is None
    assert condition.verdict({}) is None
    value = When(Expression.parse("loss"))
    assert value.verdict(value.observe({}, EpochSummary(1, 0.0, {"loss": math.nan}))) is None
    assert value.verdict(value.observe({}, EpochSummary(1, 0.0, {"loss": 2.0}))) == "when: loss"


def test_when_names_the_blobs_alone() -> None:
    condition = When(Expression.parse("loss < lr and epoch > 1 or elapsed > 9"), {"lr": 0.1})
    assert condition.names == ("loss",)


def test_blob() -> None:
    condition = BlobTrue("done")
    for value, true in ((0, False), (1, True), (False, False), (0.5, True)):
        state = condition.observe({}, EpochSummary(1, 0.0, {"done": value}))
        assert (condition.verdict(state) is not None) == true
    assert condition.verdict(condition.observe({}, EpochSummary(1, 0.0))) is None


def test_data_finished() -> None:
    condition = DataFinished("sum", 2)
    state = condition.observe({}, EpochSummary(1, 0.0, passes={"sum": 1}))
    assert condition.verdict(state) is None
    assert DataFinished("sum", 1).verdict(state) is not None
    state = condition.observe(state, EpochSummary(2, 0.0, passes={"sum": 2}))
    assert condition.verdict(state) == "data finished: sum has read all its data"
    seen = EpochSummary(2, 0.0, passes={"sum": 2}, ahead={"sum": "a"})
    text = "data finished: sum of node a has read all its data"
    assert condition.verdict(condition.observe(state, seen)) == text


def test_walltime_is_that_of_all_attempts() -> None:
    condition = Walltime(60.0)
    assert condition.verdict(condition.observe({}, EpochSummary(1, 59.9))) is None
    assert (
        condition.verdict(condition.observe({}, EpochSummary(1, 60.0)))
        == "walltime of 60 s is over"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite(value: float) -> None:
    condition = NotFinite("loss")
    state = json.loads(json.dumps(condition.observe({}, EpochSummary(3, 0.0, {"loss": value}))))
    reason = condition.verdict(state)
    assert reason is not None
    assert "in epoch 3" in reason
    assert condition.observe(state, EpochSummary(4, 0.0, {"loss": 1.0})) == {}
    assert condition.verdict(condition.observe({}, EpochSummary(1, 0.0))) is None


@pytest.mark.parametrize("condition", [Patience("loss", 1), NotFinite("loss")])
def test_a_metric_that_is_no_number_is_an_error_that_names_it(condition: Condition) -> None:
    with pytest.raises(TaskError, match="metric 'loss' is not a number: 'low'"):
        condition.observe({}, EpochSummary(1, 0.0, {"loss": "low"}))


def test_every_condition_observes_and_nothing_seen_is_no_reason() -> None:
    conditions: list[Condition] = [
        Epochs(1),
        When(Expression.parse("epoch > 0")),
        BlobTrue("loss"),
        DataFinished("sum", 1),
        Patience("loss", 1),
        Walltime(1.0),
        NotFinite("loss"),
    ]
    assert all(c.verdict({}) is None for c in conditions)
    watched = match_states([(c, False) for c in conditions], [])
    watched = observe_all(watched, EpochSummary(1, 2.0, {"loss": math.nan}, {"sum": 1}))
    assert all(w.state for w in watched)
    assert [w.condition.kind for w in watched if w.condition.verdict(w.state)] == [
        *("epochs", "when", "blob", "data_finished", "patience", "walltime", "not_finite")
    ]
    assert all(
        isinstance(c.progress_text(w.state), str) for c, w in zip(conditions, watched, strict=True)
    )


def test_patience_of_one_epoch_is_said_in_the_singular() -> None:
    state = {"wait": 1, "best": 0.5, "best_epoch": 1}
    reason = Patience("loss", 1, "min").verdict(state)
    assert reason == "patience: loss has not improved for 1 epoch (best 0.5 at epoch 1)"


def test_patience_of_a_metric_that_has_a_value_in_some_epochs_only() -> None:
    condition = Patience("loss", 2, "min")
    state: dict[str, Any] = {}
    for epoch, value in enumerate([None, 0.5, None, 0.6, None, 0.7], 1):
        assert condition.verdict(state) is None
        blobs = {} if value is None else {"loss": value}
        state = dict(condition.observe(state, EpochSummary(epoch, 0.0, blobs)))
    reason = "loss has not improved for 2 epochs with a value (best 0.5 at epoch 2)"
    assert condition.verdict(state) == f"patience: {reason}"
