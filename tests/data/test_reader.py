"""The arithmetic of batches and positions, against a plain model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.position import ReaderState
from jobrun.data.reader import BatchReader, Limits
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError


def order_of(rows: int, pass_: int) -> Any:
    return np.random.default_rng(pass_).permutation(rows)


START = ReaderState()


def reader(rows: int, limits: Limits, state: ReaderState = START, **columns: Any) -> Any:
    columns = columns or {"x": np.arange(rows)}
    return BatchReader("p", ArrayTable(columns), limits, state, lambda p: order_of(rows, p))


def epoch(read: BatchReader, column: str = "x") -> list[list[int]]:
    """The batches of an epoch."""
    batches = []
    for _ in range(read.total(0)):
        batch = read.next()
        assert batch.rows == len(batch.columns[column])
        batches.append(batch.columns[column].tolist())
        read.applied()
    return batches


def epochs(read: BatchReader, most: int = 100) -> list[list[list[int]]]:
    """All epochs until the data is finished."""
    found = []
    while not read.finished:
        found.append(epoch(read))
        assert len(found) <= most
    return found


def model(rows: int, limits: Limits) -> Iterator[list[int]]:
    """Every batch of the data, one after another, from the definition."""
    for pass_ in range(limits.passes or 60):
        order = order_of(rows, pass_).tolist() if limits.shuffle else list(range(rows))
        for start in range(0, rows, limits.batch):
            batch = order[start : start + limits.batch]
            if len(batch) == limits.batch or not limits.drop_last:
                yield batch


# The worked numbers.


@pytest.mark.parametrize("batches", [None, 1, 3, 10, 110])
def test_one_pass_is_every_row_once(batches: int | None) -> None:
    read = reader(100, Limits(10, batches_per_epoch=batches, passes=1))
    found = epochs(read)
    assert [row for one in found for batch in one for row in batch] == list(range(100))
    assert len(found[0]) == min(batches or 10, 10)


def test_ten_batches_of_one_row_are_the_first_ten_rows() -> None:
    read = reader(100, Limits(1, batches_per_epoch=10, passes=1))
    assert epoch(read) == [[i] for i in range(10)]
    assert not read.finished


def test_a_limit_above_what_there_is() -> None:
    read = reader(100, Limits(1, batches_per_epoch=110, passes=1))
    assert len(epoch(read)) == 100
    assert read.finished
    assert epoch(read) == []


def test_the_last_batch_of_a_pass_is_smaller_or_dropped() -> None:
    assert [len(b) for b in epoch(reader(10, Limits(3)))] == [3, 3, 3, 1]
    assert [len(b) for b in epoch(reader(10, Limits(3, drop_last=True)))] == [3, 3, 3]
    assert [len(b) for b in epoch(reader(9, Limits(3, drop_last=True)))] == [3, 3, 3]


@pytest.mark.parametrize(
    ("rows", "batches", "expected"),
    [
        (9, 3, [3, 3, 3]),
        (10, 3, [3, 3, 3, 1]),
        (10, 5, [5, 5]),
        (10, 1, [1] * 10),
        (10, None, [10]),
    ],
)
def test_data_is_finished_without_an_extra_empty_epoch(
    rows: int, batches: int | None, expected: list[int]
) -> None:
    read = reader(rows, Limits(1, batches_per_epoch=batches, passes=1))
    assert [len(e) for e in epochs(read)] == expected


def test_an_epoch_may_cross_the_end_of_a_pass_but_a_batch_never_does() -> None:
    read = reader(5, Limits(2, batches_per_epoch=4))
    assert epoch(read) == [[0, 1], [2, 3], [4], [0, 1]]
    assert epoch(read) == [[2, 3], [4], [0, 1], [2, 3]]


def test_without_a_limit_an_epoch_is_the_rest_of_a_pass() -> None:
    read = reader(5, Limits(2), ReaderState(3, 2))
    assert epoch(read) == [[2, 3], [4]]
    assert read.state.passes == 4
    assert epoch(read) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    "limits",
    [
        Limits(2),
        Limits(2, drop_last=True),
        Limits(2, batches_per_epoch=7),
        Limits(2, batches_per_epoch=20, passes=2),
        Limits(2, shard=(1, 3)),
        Limits(2, drop_last=True, shard=(2, 3), batches_per_epoch=4),
    ],
)
def test_several_batches_at_once_are_those_that_come_one_by_one(
    limits: Limits, shuffle: bool
) -> None:
    """Never beyond the epoch or the pass, and only what is applied counts."""
    limits = replace(limits, shuffle=shuffle)
    read, one_by_one = reader(31, limits), reader(31, limits)
    most = 0
    for _ in range(3 if limits.passes is None else 1):
        expected, found = epoch(one_by_one), []
        read.begin()
        while read.more(len(found)):
            few = read.next_few(len(found))
            most = max(most, len(few))
            assert len(found) + len(few) <= len(expected)
            for batch in few[:3]:  # a cut: the others are read again
                found.append(batch.columns["x"].tolist())
                read.applied()
        assert found == expected
        assert read.state == one_by_one.state
        one_by_one.begin()
    assert most > 1


def test_a_state_that_is_made_later_is_that_of_before() -> None:
    read = reader(10, Limits(4, batches_per_epoch=5))
    later = []
    for done in range(4):
        later.append((read.state_later(), read.state))
        assert read.more(done)
        read.next()
        read.applied()
    assert [make() for make, _ in later] == [state for _, state in later]
    assert [(s.passes, s.row) for _, s in later] == [(0, 0), (0, 4), (0, 8), (1, 0)]


def test_large_batches_come_one_by_one() -> None:
    read = reader(40, Limits(4), x=np.zeros((40, 9000)))
    assert len(read.next_few(0)) == 1
    assert len(reader(40, Limits(4), x=np.zeros((40, 2000))).next_few(0)) == 4


def test_a_batch_larger_than_the_data() -> None:
    assert epoch(reader(3, Limits(10))) == [[0, 1, 2]]
    with pytest.raises(DataError, match="leaves nothing of 3 rows"):
        reader(3, Limits(10, drop_last=True))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(0), "batch is 0, but must be 1 or more"),
        (Limits(-3), "batch is -3"),
        (Limits(1, batches_per_epoch=0), "batches_per_epoch is 0"),
        (Limits(1, passes=0), "passes is 0"),
        (Limits(1, passes=-1), "passes is -1"),
    ],
)
def test_limits_of_zero_or_below_are_errors_that_say_so(limits: Limits, message: str) -> None:
    with pytest.raises(DataError, match=f"pipe 'p': {message}"):
        reader(5, limits)


def test_an_empty_source_is_an_error() -> None:
    with pytest.raises(DataError, match="no rows"):
        reader(0, Limits(1))


# Shuffling.


def test_each_pass_has_a_permutation_of_its_own() -> None:
    read = reader(50, Limits(7, shuffle=True, passes=3))
    passes = [[row for batch in e for row in batch] for e in epochs(read)]
    assert [sorted(p) for p in passes] == [list(range(50))] * 3
    assert len({tuple(p) for p in passes}) == 3


def test_columns_are_shuffled_alike() -> None:
    columns = {"x": np.arange(20), "y": np.arange(20) * 10.0, "z": np.arange(40).reshape(20, 2)}
    read = reader(20, Limits(6, shuffle=True), **columns)
    for _ in range(read.total(0)):
        found = read.next().columns
        assert (found["x"] * 10.0 == found["y"]).all()
        assert (found["z"][:, 0] == found["x"] * 2).all()
        read.applied()


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_read_only_and_contiguous(shuffle: bool) -> None:
    source = np.arange(12).reshape(6, 2)
    source.setflags(write=False)
    batch = reader(6, Limits(4, shuffle=shuffle), x=source).next()
    assert batch.columns["x"].flags.c_contiguous
    assert not batch.columns["x"].flags.writeable


# Positions.


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 12),
    st.builds(
        Limits,
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(1, 7),
        st.none() | st.integers(1, 3),
    ),
    st.lists(st.integers(0, 5), max_size=6),
)
def test_any_cutting_reads_the_same_batches(rows: int, limits: Limits, stops: list[int]) -> None:
    """A reader that is closed after any batch and opened at its state goes on with the next."""
    if limits.drop_last and rows < limits.batch:
        limits = replace(limits, drop_last=False)
    wanted = list(model(rows, limits))
    found: list[list[int]] = []
    read = reader(rows, limits)
    for count in [*stops, 8]:
        for _ in range(count):
            if read.finished:
                break
            found.append(read.next().columns["x"].tolist())
            read.applied()
        read = reader(rows, limits, ReaderState.from_json(read.state.to_json()))
    assert found == wanted[: len(found)]
    assert read.finished == (limits.passes is not None and len(found) == len(wanted))


@settings(deadline=None, max_examples=150)
@given(
    st.integers(1, 12),
    st.builds(
        Limits,
        st.integers(1, 5),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(1, 7),
        st.none() | st.integers(1, 3),
    ),
    st.integers(0, 6),
)
def test_the_total_of_an_epoch_does_not_change_while_it_runs(
    rows: int, limits: Limits, ahead: int
) -> None:
    if limits.drop_last and rows < limits.batch:
        limits = replace(limits, drop_last=False)
    read = reader(rows, limits)
    for _ in range(ahead % 3):
        epoch(read)
    total = read.total(0)
    for done in range(total):
        assert read.total(done) == total
        assert reader(rows, limits, read.state).total(done) == total
        read.next()
        read.applied()


def test_a_batch_that_was_not_applied_is_not_read() -> None:
    read = reader(5, Limits(2))
    read.next()
    assert read.state == ReaderState(0, 0, 5, {"x": "<i8"})
    assert read.next().columns["x"].tolist() == [0, 1]
    read.applied()
    assert read.state.row == 2


def test_the_limits_of_now_count_on_resume() -> None:
    state = ReaderState(0, 3, 10)
    assert len(epoch(reader(10, Limits(1, batches_per_epoch=5), state))) == 5
    assert reader(10, Limits(1, passes=1), ReaderState(2, 0, 10)).finished
    assert reader(10, Limits(4, drop_last=True), ReaderState(0, 8, 10)).state.passes == 1
    assert reader(10, Limits(1, batches_per_epoch=2)).total(3) == 3


def test_another_source_is_an_error_that_names_both() -> None:
    with pytest.raises(DataError, match="has 5 rows, but had 7") as caught:
        reader(5, Limits(1), ReaderState(rows=7))
    assert "--fresh" in caught.value.hint
    with pytest.raises(DataError, match="'x' is of dtype <i8, but was <f4"):
        reader(5, Limits(1), ReaderState(rows=5, dtypes={"x": "<f4"}))
    reader(5, Limits(1), ReaderState(rows=5, dtypes={"gone": "<f4"}))
