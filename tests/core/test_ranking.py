"""The rule of the best: finite, strictly better, of equals the earlier."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint.record import Record
from jobrun.core.position import Position
from jobrun.core.ranking import (
    before_failure,
    best_record,
    best_values,
    better,
    extremes_of,
    finite,
    first_best,
    last_scalars,
    ranked,
    with_epoch,
)

NUMBERS = st.sampled_from([1, 2, 3, 1.0, -2.5, True, math.nan, math.inf, -math.inf, None])


def record(id: int, epoch: int, *, inside: bool = False, **metrics: Any) -> Record:
    position = Position(epoch, ("task",) if inside else ())
    return Record(id, "", position, 0.0, metrics, (), None, {}, "", "", {}, "", 0, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (True, True),
        (np.float32(0.5), 0.5),
        (np.array([3]), 3),
        (10**400, 10**400),
        *((v, None) for v in (math.nan, math.inf, -math.inf, np.float32("nan"), None, "1", "NaN")),
    ],
)
def test_what_is_a_finite_number(value: Any, expected: Any) -> None:
    assert finite(value) == expected


def test_better_is_strict_and_by_more_than_the_least_difference() -> None:
    assert better(1, 2, "min")
    assert better(2, 1, "max")
    assert not better(1, 1, "min")
    assert not better(1.5, 2, "min", 0.5)
    assert better(1.25, 2, "min", 0.5)
    assert not better(2**53, 2**53 + 1, "max"), "large integers are not rounded"
    assert better(2**53 + 1, 2**53, "max")
    assert not better(2**53 + 1, 2**53 + 1, "max"), "and an equal one is no improvement"
    assert not better(-(2**53) - 1, -(2**53) - 1, "min")
    assert better(float(2**53), 2**53 + 1, "min"), "nor beside a float"
    assert better(10**400, 10**400 - 2, "max", 1.5), "one beyond all floats too"
    assert better(1.0, 10**400, "min", 0.5)


def test_anything_finite_is_better_than_what_is_not() -> None:
    for direction in ("min", "max"):
        for nothing in (None, math.nan, math.inf, -math.inf):
            assert better(0, nothing, direction)
            assert not better(nothing, 0, direction)
            assert not better(nothing, None, direction)


def test_of_equal_checkpoints_that_of_the_earlier_epoch_and_then_the_newest() -> None:
    records = [
        record(0, 3, loss=1.0),
        record(1, 1, loss=1.0),
        record(2, 1, loss=1.0),
        record(3, 0, inside=True, loss=0.0),
        record(4, 2, loss=math.nan),
        record(5, 4),
    ]
    found = best_record(records, "loss", "min")
    assert found is not None
    assert found.id == 2
    assert best_record(records[3:], "loss", "min") is None


def test_inside_an_epoch_the_scalars_of_the_one_before_are_known_but_are_no_metrics() -> None:
    inside = record(1, 2, inside=True, loss=1.0)
    assert (inside.metrics, last_scalars(inside)) == ({}, {})
    assert last_scalars(record(1, 2, loss=1.0)) == {"loss": 1.0}


@settings(max_examples=200, deadline=None)
@given(st.lists(NUMBERS, max_size=8), st.sampled_from(["min", "max"]))
def test_all_forms_of_the_rule_agree(values: list[Any], direction: str) -> None:
    pairs = list(enumerate(values, 1))
    one_by_one: tuple[int, Any] | None = None
    extremes: Any = {}
    for epoch, value in pairs:
        if better(value, one_by_one[1] if one_by_one else None, direction):
            one_by_one = (epoch, value)
        extremes = with_epoch(extremes, epoch, {"loss": value})
    assert first_best(pairs, lambda pair: pair[1], direction) == one_by_one
    found = best_record([record(e, e, loss=v) for e, v in pairs], "loss", direction)
    assert (found.epoch if found else None) == (one_by_one[0] if one_by_one else None)
    best = best_values(extremes, {"loss": direction, "other": "min"})
    assert best == ({"loss": (one_by_one[1], one_by_one[0])} if one_by_one else {})
    assert best_values(extremes, {"loss": None}) == {}
    known = ranked(pairs, lambda pair: pair[1], direction)
    assert len(known) == sum(finite(v) is not None for v in values)
    for one, other in pairwise(known):
        assert not better(other[1], one[1], direction)
        assert better(one[1], other[1], direction) or one[0] < other[0]


def test_what_a_failure_is_gone_back_to() -> None:
    def one(id: int, epoch: int, *, failed: bool = False, **how: Any) -> Record:
        made = record(id, epoch, **how)
        decision = {"outcome": "fail"} if failed else {"outcome": "stop"}
        return replace(made, extra={"fails": ["loss"]}, decision=decision if id else None)

    records = [
        one(0, 0),
        one(1, 1, loss=2.0),
        one(2, 2, loss=1.0, other=math.nan),
        one(3, 3, loss=math.nan),
        one(4, 3, inside=True),
        one(5, 4, loss=9.0, failed=True),
    ]
    found = [before_failure(records[:n]) for n in range(7)]
    assert [r and r.id for r in found] == [None, 0, 1, 2, 2, 2, 2]
    assert before_failure([records[3], records[5]]) == records[3], "better than none"
    assert before_failure(records[4:]) is None
    plain = [replace(r, extra={}) for r in records]
    assert before_failure(plain[:5]) is None, "without a condition under fail"
    assert before_failure(plain) == plain[3], "one that has come true is one, whatever it looked at"
    assert before_failure(plain[:5], ["loss"]) == plain[2]


@pytest.mark.parametrize(
    "other", ["x", {"loss": 1}, {"loss": {"min": [1]}}, {"loss": {"min": ["a", 1]}}, []]
)
def test_what_others_keep_under_the_same_keys_is_not_the_runs(other: Any) -> None:
    """``extra`` of a save by hand may be any JSON, and that of a forged checkpoint is."""
    strange = replace(
        record(1, 0, inside=True), extra={"extremes": other, "last_scalars": [other], "fails": 3}
    )
    assert extremes_of(strange) == {}
    assert last_scalars(strange) == {}
    assert before_failure([strange]) is None
