from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.checkpoint.record import Record
from jobrun.checkpoint.retention import retain
from jobrun.core.position import Position
from jobrun.errors import UsageError
from jobrun.model.policy import Best, Keep


def record(
    id: int, *, epoch: int | None = None, tasks: tuple[str, ...] = (), **metrics: Any
) -> Record:
    position = Position(epochs=id if epoch is None else epoch, tasks=tasks)
    return Record(id, "", position, 0.0, metrics, (), None, {}, "", "", {}, "", 0, 0)


def kept(records: list[Record], keep: Keep, protected: tuple[int, ...] = ()) -> list[int]:
    stay, drop = retain(records, keep, protected)
    assert sorted(r.id for r in stay + drop) == sorted(r.id for r in records)
    return [r.id for r in stay]


def losses(*values: float | None) -> list[Record]:
    return [record(i, loss=v) if v is not None else record(i) for i, v in enumerate(values)]


TEN = [record(i) for i in range(10)]


def test_all_is_the_default() -> None:
    assert kept(TEN, Keep()) == list(range(10))


def test_ten_saves_last_three() -> None:
    assert kept(TEN, Keep(last=3)) == [7, 8, 9]


def test_last_more_than_there_are() -> None:
    assert kept(TEN[:2], Keep(last=3)) == [0, 1]


@pytest.mark.parametrize("number", [0, -1])
def test_numbers_below_one_are_refused(number: int) -> None:
    for make in (
        lambda: Keep(last=number), lambda: Keep(every=number), lambda: Best("loss", number)
    ):  # fmt: skip
        with pytest.raises(UsageError, match="at least 1"):
            make()


def test_every_keeps_boundaries_of_epochs_and_the_head() -> None:
    records = [*TEN, record(10, epoch=8, tasks=("a",)), record(11, epoch=9)]
    assert kept(records, Keep(every=4)) == [0, 4, 8, 11]


def test_any_rule_keeps() -> None:
    records = losses(5, 1, 4, 3, 2)
    assert kept(records, Keep(last=1, every=3, best=Best("loss"))) == [0, 1, 3, 4]


def test_best_in_both_directions() -> None:
    records = losses(5, 1, 4, 3, 2)
    assert kept(records, Keep(best=Best("loss", 2))) == [1, 4]
    assert kept(records, Keep(best=Best("loss", 2, smaller=False))) == [0, 2, 4]


def test_of_equals_the_earlier_epoch_is_the_best() -> None:
    assert kept(losses(1, 2, 1, 2), Keep(best=Best("loss"))) == [0, 3]
    twice = [record(0, epoch=1, loss=1), record(1, epoch=1, loss=1), record(2, epoch=2, loss=1)]
    assert kept([*twice, record(3, epoch=3)], Keep(best=Best("loss"))) == [1, 3]


def test_one_inside_an_epoch_is_never_the_best() -> None:
    records = [record(0, loss=2), record(1, epoch=0, tasks=("a",), loss=1), record(2, loss=3)]
    assert kept(records, Keep(best=Best("loss"))) == [0, 2]


@pytest.mark.parametrize("smaller", [True, False])
def test_what_is_not_finite_is_never_among_the_best(smaller: bool) -> None:
    records = losses(math.nan, math.inf, 3, -math.inf, math.nan, None)
    assert kept(records, Keep(best=Best("loss", 1, smaller))) == [2, 5]
    assert kept(records, Keep(best=Best("loss", 2, smaller))) == [2, 5]


def test_protected_stay() -> None:
    assert kept(TEN, Keep(last=1), (2, 77)) == [2, 9]


@settings(deadline=None)
@given(
    st.lists(st.floats() | st.none(), max_size=8),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 3),
)
def test_the_head_and_the_best_finite_one_always_stay(
    values: list[float | None], last: int | None, every: int | None, best: int | None
) -> None:
    records = losses(*values)
    keep = Keep(last, every, Best("loss", best) if best else None)
    stay = kept(records[::-1], keep)
    assert stay == sorted(stay)
    if records:
        assert records[-1].id in stay
    finite = [v for v in values if v is not None and math.isfinite(v)]
    if best and finite:
        assert min(i for i, v in enumerate(values) if v == min(finite)) in stay
    if last:
        assert set(range(len(values))[-last:]) <= set(stay)
    if keep.all:
        assert len(stay) == len(values)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats() | st.none(), st.booleans()), min_size=1, max_size=8),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 3),
)
def test_a_damaged_one_takes_no_place_of_another_and_is_not_dropped(
    found: list[tuple[float | None, bool]], last: int | None, every: int | None, best: int | None
) -> None:
    keep = Keep(last, every, Best("loss", best) if best else None)
    records = losses(*(value for value, _ in found))
    whole = [record for record, (_, is_whole) in zip(records, found, strict=True) if is_whole]
    stay, drop = retain(records, keep, is_whole=lambda id: found[id][1])
    expected_stay, expected_drop = retain(whole, keep)
    assert drop == expected_drop
    assert [r for r in stay if r in whole] == expected_stay
