"""Where boxes go: none on top of another, arrows downward, straight where they can be."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.drawing.layout import ITEM_GAP, LONGEST, LayoutItem, Link, place


@st.composite
def drawings(draw: st.DrawFn) -> tuple[list[LayoutItem], list[Link], int]:
    rows = draw(st.integers(1, 5))
    sizes = st.tuples(st.integers(0, rows - 1), st.integers(0, 2), st.integers(20, 200))
    items = [LayoutItem(2 * row, lane, float(w), 40.0) for row, lane, w in draw(st.lists(sizes))]
    pairs = [(i, j) for i in range(len(items)) for j in range(len(items))]
    down = [(i, j) for i, j in pairs if items[i].row < items[j].row]
    chosen = draw(st.lists(st.sampled_from(down), max_size=12, unique=True)) if down else []
    return items, [Link(i, j, 30.0, 15.0) for i, j in chosen], 2 * rows


@settings(deadline=None, max_examples=150)
@given(drawings())
def test_nothing_overlaps(drawing: tuple[list[LayoutItem], list[Link], int]) -> None:
    items, links, rows = drawing
    placed = place(items, links, [0.0] * rows)
    every = {id(i): i for chain in placed.bends for i in chain} | {id(i): i for i in items}
    by_row: dict[int, list[LayoutItem]] = {}
    for item in every.values():
        by_row.setdefault(item.row, []).append(item)
    for row in by_row.values():
        row.sort(key=lambda i: i.x)
        for left, right in itertools.pairwise(row):
            assert right.x - right.width / 2 >= left.x + left.width / 2 + ITEM_GAP - 1e-6
    for chain in placed.bends:
        assert [i.row for i in chain] == list(range(chain[0].row, chain[-1].row + 1))
        for upper, lower in itertools.pairwise(chain):
            assert upper.y + upper.height < lower.y
    for (_, end), (start, _) in zip(placed.lanes, placed.lanes[1:], strict=False):
        assert end < start
    for item in every.values():
        left, right = placed.lanes[item.lane]
        assert left - 1e-6 <= item.x - item.width / 2
        assert item.x + item.width / 2 <= right + 1e-6


def test_a_chain_is_one_straight_line() -> None:
    items = [LayoutItem(2 * n, 0, 50.0 + 10 * n, 20.0) for n in range(5)]
    place(items, [Link(n, n + 1) for n in range(4)], [0.0] * 10)
    assert len({round(item.x, 3) for item in items}) == 1


def test_arrows_that_need_not_cross_do_not() -> None:
    items = [
        LayoutItem(0, 0, 40, 20),
        LayoutItem(0, 0, 40, 20),
        LayoutItem(2, 0, 40, 20),
        LayoutItem(2, 0, 40, 20),
    ]
    place(items, [Link(0, 3), Link(1, 2)], [0.0] * 4)
    assert (items[0].x < items[1].x) == (items[3].x < items[2].x)


def test_the_longest_arrows_are_left_out_where_there_are_too_many() -> None:
    rows = 400
    items = [LayoutItem(2 * n, 0, 40, 20) for n in range(rows)]
    links = [Link(0, n) for n in range(1, rows)] + [Link(n, n + 1) for n in range(1, rows - 1)]
    placed = place(items, links, [0.0] * (2 * rows))
    kept = [chain for chain in placed.bends if chain]
    assert sum(len(chain) - 1 for chain in kept) <= LONGEST
    assert all(chain for chain, link in zip(placed.bends, links, strict=True) if link.source)
    assert not placed.bends[rows - 2]
