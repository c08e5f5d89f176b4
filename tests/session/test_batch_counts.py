from __future__ import annotations

from jobrun.session.base import Control
from jobrun.session.batch_counts import BatchCounts

DIAMOND = [[], [0], [0], [1, 2]]
"""Unit 3 waits for 1 and 2, which wait for 0."""


def run(counts: BatchCounts, unit: int, batches: int) -> int:
    """Run a unit as a pipe of so many batches; return how many it has applied."""
    control, done = counts.control(unit, Control()), 0
    while done < batches and not control.cut():
        done += 1
        control.applied(done)
    if done < batches:
        counts.held.add(unit)
    return done


def test_the_largest_count_before_a_unit_is_its_own() -> None:
    counts = BatchCounts(DIAMOND, (), None)
    for unit, batches in ((0, 2), (1, 3), (2, 4), (3, 1)):
        assert counts.begin(unit)
        assert run(counts, unit, batches) == batches
    assert counts.longest == 2 + 4 + 1


def test_nothing_begins_behind_the_limit() -> None:
    counts = BatchCounts(DIAMOND, (), 3)
    assert counts.begin(0)
    assert run(counts, 0, 2) == 2
    assert counts.begin(1)
    assert run(counts, 1, 5) == 1
    assert counts.is_full(1)
    assert counts.begin(2)
    assert not counts.is_full(2)
    assert not counts.begin(3)
    assert counts.held == {1, 3}
    assert counts.longest == 3


def test_a_unit_behind_a_pipe_that_ended_at_the_limit_is_held() -> None:
    counts = BatchCounts([[], [0], [1]], (), 2)
    counts.begin(0)
    assert run(counts, 0, 2) == 2
    assert not counts.begin(1)
    assert not counts.begin(2)
    assert counts.held == {1, 2}


def test_bound_units_end_with_the_one_before_them() -> None:
    counts = BatchCounts([[], [0], [1]], {1}, 2)
    counts.begin(0)
    run(counts, 0, 2)
    assert counts.begin(1)
    assert not counts.begin(2)
    other = BatchCounts([[], [0]], {1}, 2)
    other.begin(0)
    run(other, 0, 3)
    assert not other.begin(1)


def test_the_control_of_a_pipe_tells_the_count_of_the_run() -> None:
    told: list[int] = []
    counts = BatchCounts([[], [0]], (), None)
    for unit in (0, 1):
        counts.begin(unit)
        control = counts.control(unit, Control(applied=told.append))
        for count in (1, 2):
            control.applied(count)
    assert told == [1, 2, 3, 4]


def test_a_pipe_is_cut_for_other_reasons_too() -> None:
    counts = BatchCounts([[]], (), 2)
    counts.begin(0)
    control = counts.control(0, Control(cut=lambda: True))
    assert control.cut()
    assert not counts.is_full(0)


def test_units_elsewhere_count_as_those_here() -> None:
    counts = BatchCounts(DIAMOND, (), 5)
    assert counts.begin(0)
    counts.elsewhere(1, 3, held=False)
    counts.elsewhere(1, 2, held=False)
    assert counts.begin(1)
    assert run(counts, 1, 9) == 2
    assert counts.count(1) == 5
    counts.elsewhere(2, 1, held=True)
    assert not counts.begin(2)
    assert not counts.begin(3)
    assert counts.held == {1, 2, 3}
