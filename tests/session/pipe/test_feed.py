"""What feeds the ``do`` steps: in turn or ahead, only what was applied counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from engine import within

from jobrun.core.position import ReaderState
from jobrun.data.reader import Batch, BatchReader, Limits, RowReader
from jobrun.data.tables import ArrayTable
from jobrun.session.pipe.feed import Feed, InTurn, ReadAhead, ReadAheadInGroups
from jobrun.session.pipe.groups import Groups
from jobrun.session.pipe.prefetch import Turns
from jobrun.session.stores import CallContext
from jobrun.values.boxes import Box, Value

Make = Callable[..., Feed]


def reader_at(row: int = 0) -> BatchReader:
    table = ArrayTable({"x": np.arange(10)})
    return BatchReader("p", table, Limits(3, passes=2), ReaderState(0, row), np.arange)


def prepare(number: int, batch: Batch) -> tuple[CallContext, int]:
    columns: dict[str, Value] = {n: Box(a, "array") for n, a in batch.columns.items()}
    return CallContext(1, number, columns), batch.rows


def one(reader: RowReader, done: int) -> list[Batch]:
    return [reader.next()]


def few(reader: RowReader, done: int) -> list[Batch]:
    return reader.next_few(done)


def in_turn(first: int = 0, row: int = 0, **more: Any) -> Feed:
    return InTurn(reader_at(row), one, prepare, first, mapped=False)


def in_turn_mapped(first: int = 0, row: int = 0, **more: Any) -> Feed:
    return InTurn(reader_at(row), few, prepare, first, mapped=True)


def several(first: int = 0, row: int = 0, **more: Any) -> Feed:
    return InTurn(reader_at(row), few, prepare, first, mapped=False)


def ahead(
    first: int = 0, row: int = 0, cut: Callable[[], bool] = lambda: False, threads: int = 3
) -> Feed:
    return ReadAhead(reader_at(row), one, prepare, first, cut, threads, 4, Turns())


def several_ahead(first: int = 0, row: int = 0, **more: Any) -> Feed:
    return ReadAhead(reader_at(row), few, prepare, first, lambda: False, 3, 4, Turns())


def in_groups(
    first: int = 0,
    row: int = 0,
    cut: Callable[[], bool] = lambda: False,
    threads: int = 3,
    fails: int = -1,
) -> Feed:
    """Groups of one, two, and four batches; that of the number ``fails`` fails."""

    class Doubling(Groups):
        def took(self, batches: int, seconds: float, size: int) -> None:
            super().took(batches, 1e-9, 8)

    def prepare_group(group: Sequence[tuple[int, Batch]]) -> Iterator[tuple[CallContext, int]]:
        for number, batch in group:
            if number == fails:
                raise ValueError(f"no {number}")
            yield prepare(number, batch)

    groups = Doubling()
    window = groups.begin(2, None, single=False)
    return ReadAheadInGroups(
        reader_at(row), one, prepare_group, first, cut, threads, window, groups
    )


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("jobrun-ahead")]


each_way = pytest.mark.parametrize(
    "make", [in_turn, in_turn_mapped, several, ahead, several_ahead, in_groups]
)


def take(feed: Feed) -> tuple[int, list[int]]:
    """The next batch: its number and rows."""
    found = within(20, feed.next)
    assert found is not None
    moment, rows = found
    box = moment.columns["x"]
    assert isinstance(box, Box)
    values = box.value.tolist()
    assert rows == len(values)
    assert moment.batch is not None
    return moment.batch, values


@each_way
def test_batches_come_in_order_until_the_epoch_has_ended(make: Make) -> None:
    feed, seen = make(), []
    while not feed.ended:
        seen.append(take(feed))
        feed.applied()
    feed.close()
    assert seen == [(0, [0, 1, 2]), (1, [3, 4, 5]), (2, [6, 7, 8]), (3, [9])]
    assert (feed.state.passes, feed.state.row) == (1, 0)


@each_way
def test_only_what_was_applied_counts(make: Make) -> None:
    feed = make(first=5, row=3)
    assert feed.state.row == 3
    assert take(feed) == (5, [3, 4, 5])
    assert feed.state.row == 3
    feed.applied()
    assert feed.state.row == 6
    take(feed)
    feed.close()
    assert feed.state.row == 6
    assert not feed.ended


@each_way
def test_it_may_have_ended_before_it_begins(make: Make) -> None:
    table = ArrayTable({"x": np.arange(10)})
    finished = BatchReader("p", table, Limits(3, passes=2), ReaderState(2, 0), np.arange)
    feed: Feed = InTurn(finished, few, prepare, 0, mapped=False)
    if make is ahead:
        feed = ReadAhead(finished, one, prepare, 0, lambda: False, 2, 2, Turns())
    assert feed.ended
    feed.close()


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_a_cut_gives_what_was_read_and_then_nothing(threads: int) -> None:
    cut = threading.Event()
    feed = ahead(cut=cut.is_set, threads=threads)
    take(feed)
    feed.applied()
    cut.set()
    number = 1
    while within(20, feed.next) is not None:
        feed.applied()
        number += 1
    feed.close()
    assert 1 <= number <= 4
    assert feed.state.row + 10 * feed.state.passes == min(3 * number, 10)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", range(4))
def test_a_batch_of_a_group_that_fails_does_so_after_those_before_it(threads: int, at: int) -> None:
    feed = in_groups(threads=threads, fails=at)
    for number in range(at):
        assert take(feed)[0] == number
        feed.applied()
    with pytest.raises(ValueError, match=f"no {at}"):
        take(feed)
    feed.close()
    assert (feed.state.passes, feed.state.row) == (0, 3 * at)
    assert not feed.ended


def test_map_steps_run_on_a_batch_when_it_is_the_next_one() -> None:
    seen: list[str] = []

    def noted(number: int, batch: Batch) -> tuple[CallContext, int]:
        seen.append(f"map {number}")
        return prepare(number, batch)

    feed = InTurn(reader_at(), few, noted, 0, mapped=True)
    while not feed.ended:
        seen.append(f"do {take(feed)[0]}")
        feed.applied()
    assert seen == [f"{what} {number}" for number in range(4) for what in ("map", "do")]
