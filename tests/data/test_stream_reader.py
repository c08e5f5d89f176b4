"""Readers of streams and of shards: batches and positions, against plain models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.core.position import ReaderState
from jobrun.data.call_source import called_source
from jobrun.data.reader import BatchReader, Limits, RowReader
from jobrun.data.source import Stream, TableStream, ignore_slow
from jobrun.data.stream_reader import StreamReader
from jobrun.data.tables import ArrayTable
from jobrun.errors import DataError, TaskError

START = ReaderState()
Open = Callable[[Limits, ReaderState], RowReader]


def draw(pass_: int, block: int) -> np.random.Generator:
    return np.random.default_rng([7, pass_, block + 1])


def of_stream(stream: Stream) -> Open:
    return lambda limits, state: StreamReader("p", stream, limits, state, draw, ignore_slow)


def mapped(rows: int) -> Open:
    return of_stream(TableStream(ArrayTable({"x": np.arange(rows)})))


def iterated(rows: int) -> Open:
    """Skips to its place."""
    made = called_source(lambda: iter(range(rows)), {"x": "x"}, "f", TaskError)
    assert isinstance(made, Stream)
    return of_stream(made)


def table(rows: int) -> Open:
    def order(pass_: int) -> Any:
        return np.random.default_rng(pass_).permutation(rows)

    made = ArrayTable({"x": np.arange(rows)})
    return lambda limits, state: BatchReader("p", made, limits, state, order)


def batches(read: RowReader, most: int = 10_000) -> Iterator[list[int]]:
    """The next batches of any epochs."""
    for _ in range(most):
        if read.finished:
            return
        batch = read.next()
        assert batch.rows == len(batch.columns["x"]) > 0
        yield batch.columns["x"].tolist()
        read.applied()


def flat(found: Any) -> list[int]:
    return [row for batch in found for row in batch]


def test_batches_of_a_stream() -> None:
    read = iterated(10)(Limits(3, passes=1), START)
    assert list(batches(read)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    read = iterated(10)(Limits(3, drop_last=True, passes=2), START)
    assert [len(b) for b in batches(read)] == [3] * 6


def test_the_end_of_a_stream_needs_no_empty_epoch() -> None:
    read = iterated(9)(Limits(1, batches_per_epoch=3, passes=1), START)
    epochs = []
    while not read.finished:
        read.begin()
        done = 0
        while read.more(done):
            read.next()
            read.applied()
            done += 1
        epochs.append(done)
    assert epochs == [3, 3, 3]


def test_totals_are_given_where_they_are_known() -> None:
    assert iterated(9)(Limits(1, batches_per_epoch=3), START).total(0) == 3
    assert iterated(9)(Limits(1), START).total(0) is None
    assert iterated(9)(Limits(1, batches_per_epoch=3, passes=1), START).total(0) is None
    assert iterated(9)(Limits(1, passes=1), ReaderState(passes=1)).total(4) == 4


@pytest.mark.parametrize(
    ("rows", "limits", "message"),
    [
        (0, Limits(1), "f has no rows"),
        (3, Limits(4, drop_last=True), "leaves nothing of 3 rows"),
        (3, Limits(0), "batch is 0"),
        (3, Limits(1, shuffle=True), r"front to back.*"),
        (3, Limits(1, shuffle=True, buffer=0), "buffer is 0"),
        (3, Limits(1, shard=(2, 2)), "no shard 2 of 2"),
        (1, Limits(1, shard=(1, 2)), "shard 1 of 2 has no rows"),
    ],
)
def test_what_cannot_be_read(rows: int, limits: Limits, message: str) -> None:
    with pytest.raises(DataError, match=f"pipe 'p': .*{message}"):
        iterated(rows)(limits, START).next()


def test_what_fails_ahead_fails_at_its_own_batch() -> None:
    def rows() -> Iterator[int]:
        yield from range(4)
        raise ValueError("gone")

    def failed(error: BaseException) -> TaskError:
        return TaskError(str(error))

    made = called_source(rows, {"x": "x"}, "f", failed)
    assert isinstance(made, Stream)
    read = of_stream(made)(Limits(2), START)
    assert list(batches(read, 2)) == [[0, 1], [2, 3]]
    assert read.state.row == 4
    with pytest.raises(TaskError, match="gone"):
        read.next()


def test_another_dtype_than_before_is_an_error() -> None:
    state = ReaderState(0, 2, None, {"x": "<f8"})
    with pytest.raises(DataError, match="'x' is of dtype <i8, but was <f8"):
        iterated(5)(Limits(1), state).next()


def test_a_buffer_shuffles_anew_in_each_pass_and_within_blocks() -> None:
    read = iterated(200)(Limits(9, shuffle=True, buffer=20, passes=3), START)
    found = flat(batches(read))
    passes = [found[i : i + 200] for i in (0, 200, 400)]
    assert all(sorted(p) == list(range(200)) for p in passes)
    assert len({tuple(p) for p in [*passes, list(range(200))]}) == 4
    assert all(abs(row - place) < 20 for p in passes for place, row in enumerate(p))


@pytest.mark.parametrize("make", [iterated, mapped])
@pytest.mark.parametrize("buffer", [12, 13, 100])
def test_a_buffer_of_no_fewer_rows_than_a_pass_shuffles_it_as_a_whole(
    make: Callable[[int], Open], buffer: int
) -> None:
    passes = 200
    read = make(12)(Limits(12, shuffle=True, buffer=buffer, passes=passes), START)
    places = [batch.index(11) for batch in batches(read)]
    assert len(places) == passes
    for place in range(12):  # 17 on average, never so few of 200 by chance
        assert places.count(place) > 4


def test_shards_share_the_rows_of_a_pass() -> None:
    for make in (table, iterated, mapped):
        for shuffle in ({}, {"shuffle": True, "buffer": None if make is table else 4}):
            limits = Limits(2, passes=1, **shuffle)
            shares = [
                flat(batches(make(11)(replace(limits, shard=(i, 3)), START))) for i in range(3)
            ]
            assert [len(s) for s in shares] == [4, 4, 3]
            assert sorted(flat(shares)) == list(range(11))
    assert flat(batches(table(7)(Limits(2, passes=1, shard=(1, 3)), START))) == [1, 4]


def test_a_shard_without_rows_or_batches_is_an_error() -> None:
    with pytest.raises(DataError, match="shard 2 of 3 has none of 2 rows"):
        table(2)(Limits(1, shard=(2, 3)), START)
    with pytest.raises(DataError, match="leaves nothing of 2 rows"):
        table(5)(Limits(3, drop_last=True, shard=(1, 2)), START)


LIMITS = st.builds(
    Limits,
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.none(),
    st.integers(1, 3),
    st.integers(1, 6),
    st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
)
MAKERS = st.sampled_from([table, iterated, mapped])


@settings(deadline=None, max_examples=150)
@given(MAKERS, st.integers(3, 14), LIMITS, st.lists(st.integers(0, 5), max_size=6))
def test_any_cutting_reads_the_same_batches(
    make: Callable[[int], Open], rows: int, limits: Limits, stops: list[int]
) -> None:
    """A reader that is closed after any batch and opened at its state goes on with the next."""
    index, count = limits.shard
    if limits.drop_last and -(-(rows - index) // count) < limits.batch:
        limits = replace(limits, drop_last=False)
    alone = list(batches(make(rows)(limits, START)))
    found: list[list[int]] = []
    state = START
    for steps in [*stops, 1000]:
        read = make(rows)(limits, state)
        found += batches(read, steps)
        state = ReaderState.from_json(read.state.to_json())
    assert found == alone


@settings(deadline=None, max_examples=100)
@given(
    MAKERS,
    st.integers(1, 30),
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 4)), max_size=5),
)
def test_every_row_once_though_batches_and_shards_change(
    make: Callable[[int], Open],
    rows: int,
    shuffle: bool,
    attempts: list[tuple[int, int, int]],
) -> None:
    """The shards of each attempt apply as many batches as each other, as nodes do."""
    seen: list[int] = []
    state = START
    for batch, shards, steps in attempts:
        limits = Limits(batch, shuffle, passes=1, buffer=None if make is table else 4)
        steps = min(steps, (rows - shards - state.row) // (batch * shards))
        if steps < 1:
            continue
        reached = []
        for index in range(shards):
            read = make(rows)(replace(limits, shard=(index, shards)), state)
            seen += flat(batches(read, steps))
            reached.append(read.state)
        assert len({(s.passes, s.row) for s in reached}) == 1
        state = reached[-1]
    limits = Limits(3, shuffle, passes=1, buffer=None if make is table else 4)
    seen += flat(batches(make(rows)(limits, state)))
    assert sorted(seen) == list(range(rows))
