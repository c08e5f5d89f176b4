"""Groups of batches: all of them in order, errors in their place, sizes by time and bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jobrun.session.pipe.groups import Groups


def learned(size: int = 8, seconds: float = 1e-4) -> Groups:
    """Groups after many small batches that took ``seconds`` each."""
    groups = Groups()
    groups.begin(4, None, single=False)
    for _ in range(10):
        batches = len(next(groups.of(range(100))))
        groups.took(batches, batches * seconds, size)
    return groups


def sizes(groups: Groups, count: int = 100) -> set[int]:
    """The sizes of the groups of so many items; the last one may have fewer."""
    found = [*groups.of(range(count))]
    assert [item for group in found for item in group] == list(range(count))
    return {len(group) for group in found[:-1]}


def test_it_begins_with_single_batches_and_at_most_doubles() -> None:
    groups = Groups()
    assert groups.begin(4, None, single=False) == 4
    seen = []
    taken = groups.of(range(100))
    for group in taken:
        seen.append(len(group))
        groups.took(len(group), 1e-9, 8)
    assert seen == [1, 2, 4, 8, 16, 32, 37]


@pytest.mark.parametrize(
    ("seconds", "size", "expected"),
    [(1e-5, 8, 64), (0.4e-3, 8, 5), (1.9e-3, 8, 1), (1, 8, 1), (1e-5, 64 << 10, 4), (0, 9**9, 1)],
)
def test_a_group_takes_little_time_and_memory(seconds: float, size: int, expected: int) -> None:
    assert sizes(learned(size, seconds)) == {expected}


def test_groups_become_small_again() -> None:
    groups = learned()
    groups.took(64, 1.0, 8)
    assert sizes(groups) == {1}


def test_none_has_two_where_reading_may_wait() -> None:
    groups = learned()
    assert groups.begin(4, None, single=True) == 4
    assert sizes(groups) == {1}
    groups.begin(4, None, single=False)
    assert sizes(groups) == {20}


@pytest.mark.parametrize("ahead", range(1, 200))
def test_not_more_batches_than_ahead_are_ahead(ahead: int) -> None:
    """Counting those of a group of which the consumer has applied none but the first."""
    for window in (2, 4, 8):
        groups = learned()
        count = groups.begin(window, ahead, single=False)
        size = len(next(groups.of(range(1000))))
        assert count >= 1
        assert count * size + size - 1 <= ahead
        assert size == 1 or count >= window
        assert groups.begin(window, ahead, single=True) == ahead


def test_a_group_does_not_wait_for_slow_items() -> None:
    def items() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.003)
            yield number

    assert [*learned().of(items())] == [[0], [1], [2], [3]]


def test_an_error_comes_after_all_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise ValueError("no")

    groups = learned(size=1 << 17)
    assert sizes(groups) == {2}
    taken = groups.of(items())
    assert [next(taken) for _ in range(3)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="no"):
        next(taken)


def test_nothing_makes_no_group() -> None:
    assert not [*learned().of(())]
