"""Of several conditions: which one decides, and which saved state belongs to which."""

from __future__ import annotations

import json
import math

from jobrun.conditions.base import Condition, EpochSummary
from jobrun.conditions.decision import (
    Decision,
    decide_stop,
    match_states,
    observe_all,
    saved_states,
)
from jobrun.conditions.expression import Expression
from jobrun.conditions.kinds.epochs import Epochs
from jobrun.conditions.kinds.not_finite import NotFinite
from jobrun.conditions.kinds.patience import Patience
from jobrun.conditions.kinds.when import When


def test_fail_wins_and_else_the_first_is_the_reason() -> None:
    seen = EpochSummary(3, 0.0, {"loss": math.nan})
    pairs: list[tuple[Condition, bool]] = [
        (Epochs(3), False),
        (When(Expression.parse("epoch == 3")), False),
        (NotFinite("loss"), True),
    ]
    watched = observe_all(match_states(pairs, []), seen)
    decision = decide_stop(watched)
    assert decision == Decision("fail", "loss is not finite (nan) in epoch 3", "not_finite")
    assert decision.to_json()["outcome"] == "fail"
    first = decide_stop(watched[:2])
    assert first is not None
    assert (first.outcome, first.kind) == ("stop", "epochs")
    assert decide_stop(()) is None


def test_states_are_matched_by_kind_metric_and_occurrence() -> None:
    before: list[tuple[Condition, bool]] = [
        (Patience("loss", 3), False),
        (Patience("accuracy", 3, "max"), False),
        (When(Expression.parse("loss < 1")), False),
        (When(Expression.parse("loss < 2")), False),
    ]
    seen = EpochSummary(1, 0.0, {"loss": 5.0, "accuracy": 0.5})
    saved = json.loads(json.dumps(saved_states(observe_all(match_states(before, []), seen))))
    after: list[tuple[Condition, bool]] = [
        (Epochs(9), False),
        (When(Expression.parse("accuracy > 0.4")), True),
        (Patience("accuracy", 1, "max"), False),
        (Patience("loss", 1), False),
    ]
    watched = match_states(after, saved)
    assert [w.state.get("best") for w in watched] == [None, None, 0.5, 5.0]
    assert watched[0].state == {}
    assert watched[1].state["accuracy"] == 0.5
    assert watched[1].fails
