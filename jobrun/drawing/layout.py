"""Positions of boxes and arrows: a layered drawing, top to bottom, with lanes side by side.

The method is that of Sugiyama, Tagawa and Toda (1981): every arrow is cut into pieces between
neighbouring rows, rows are sorted by the mean position of their neighbours until few arrows cross,
and then every row is placed as close to its neighbours as its order allows, by isotonic regression.
Lengths are in pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

__all__ = ["LayoutItem", "Link", "PlacedLayout", "place"]

ITEM_GAP = 28.0
LANE_GAP = 56.0
ROW_GAP = 26.0
SWEEPS = 8
LONGEST = 4000
"""The most pieces that all arrows together may have; beyond, the longest are left out."""


@dataclass
class LayoutItem:
    """Something with a size in a row: a box, a label, or a bend of an arrow.

    ``x`` and ``y`` are its centre and its top, once it is placed.
    """

    row: int
    lane: int = 0
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    above: list[LayoutItem] = field(default_factory=list, repr=False)
    below: list[LayoutItem] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Link:
    """An arrow between two items, by number, and the size of its label."""

    source: int
    target: int
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class PlacedLayout:
    """A finished layout: ``bends`` are the ends and bends of each link; the last one is its label.

    A link that was left out, since there are too many, has none.  ``tops`` and ``bottoms`` are
    those of the rows, ``lanes`` the left and right end of each lane.
    """

    bends: tuple[tuple[LayoutItem, ...], ...]
    tops: tuple[float, ...]
    bottoms: tuple[float, ...]
    lanes: tuple[tuple[float, float], ...]


def place(
    items: Sequence[LayoutItem], links: Sequence[Link], gaps: Sequence[float]
) -> PlacedLayout:
    """Set the position of every item, and return the layout.

    Items stand in even rows; a label takes the odd row above the target of its arrow.
    ``gaps[row]`` is extra room above a row.
    """
    rows: list[list[LayoutItem]] = [[] for _ in range(len(gaps))]
    for item in items:
        rows[item.row].append(item)
    bends = tuple(_bends(items, links, rows))
    for row in rows:
        row.sort(key=attrgetter("lane"))
    for sweep in range(SWEEPS):
        _sort(rows, down=sweep % 2 == 0)
    lanes = _columns(rows)
    tops, bottoms = _heights(rows, gaps)
    return PlacedLayout(bends, tops, bottoms, lanes)


def _bends(
    items: Sequence[LayoutItem], links: Sequence[Link], rows: list[list[LayoutItem]]
) -> Iterator[tuple[LayoutItem, ...]]:
    """Cut the links at every row between their ends; the longest are left out if too many."""
    spans = sorted(items[link.target].row - items[link.source].row for link in links)
    left = LONGEST
    limit = 0
    for span in spans:
        left -= span
        if left < 0:
            break
        limit = span
    for link in links:
        source, target = items[link.source], items[link.target]
        if target.row - source.row > max(limit, 2):
            yield ()
            continue
        chain = [source]
        for row in range(source.row + 1, target.row):
            last = row == target.row - 1
            bend = LayoutItem(row, target.lane if last else source.lane)
            if last:
                bend.width, bend.height = link.width, link.height
            rows[row].append(bend)
            chain.append(bend)
        chain.append(target)
        for upper, lower in pairwise(chain):
            upper.below.append(lower)
            lower.above.append(upper)
        yield tuple(chain)


def _sort(rows: list[list[LayoutItem]], down: bool) -> None:
    """Sort every row by the mean position of its neighbours, lane by lane, in one sweep."""
    where: dict[int, float] = {}
    for row in rows if down else rows[::-1]:
        sorted_row: list[LayoutItem] = []
        for _, items in groupby(row, key=attrgetter("lane")):
            lane = _by_middle(list(items), down, where)
            where.update((id(item), number) for number, item in enumerate(lane))
            sorted_row += lane
        row[:] = sorted_row


def _by_middle(lane: list[LayoutItem], down: bool, where: Mapping[int, float]) -> list[LayoutItem]:
    """Return a lane's items by the mean position of their neighbours; others keep theirs."""
    middles = []
    for number, item in enumerate(lane):
        near = [where[id(n)] for n in (item.above if down else item.below)]
        middles.append((sum(near) / len(near) if near else number, number))
    return [lane[number] for _, number in sorted(middles)]


def _columns(rows: list[list[LayoutItem]]) -> tuple[tuple[float, float], ...]:
    """Set the ``x`` of every item, each lane right of the one before; return the lanes' ends."""
    count = max((item.lane for row in rows for item in row), default=0) + 1
    ends = []
    start = 0.0
    for lane in range(count):
        own = [[item for item in row if item.lane == lane] for row in rows]
        left, right = _lane(own)
        for item in (item for row in own for item in row):
            item.x += start - left
        ends.append((start, start + right - left))
        start = ends[-1][1] + LANE_GAP
    return tuple(ends)


def _lane(rows: list[list[LayoutItem]]) -> tuple[float, float]:
    """Place one lane by itself; return its left and right end."""
    for row in rows:
        _spread(row, [0.0] * len(row))
    inside = {id(item) for row in rows for item in row}
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else rows[::-1]:
            wanted = []
            for item in row:
                near = [n.x for n in (item.above if down else item.below) if id(n) in inside]
                wanted.append(sum(near) / len(near) if near else item.x)
            _spread(row, wanted)
    items = [item for row in rows for item in row]
    left = min((item.x - item.width / 2 for item in items), default=0.0)
    right = max((item.x + item.width / 2 for item in items), default=0.0)
    return left, right


def _spread(row: Sequence[LayoutItem], wanted: Sequence[float]) -> None:
    """Place a row as close to ``wanted`` as its order and widths allow (least squares).

    After subtracting the room left of each item, that is isotonic regression, solved by pooling
    adjacent violators.
    """
    offsets, offset = [], 0.0
    for number, item in enumerate(row):
        if number:
            offset += (row[number - 1].width + item.width) / 2 + ITEM_GAP
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for want, off in zip(wanted, offsets, strict=True):
        mean, count = want - off, 1
        while blocks and blocks[-1][0] >= mean:
            other, size = blocks.pop()
            mean = (mean * count + other * size) / (count + size)
            count += size
        blocks.append((mean, count))
    means = (mean for mean, count in blocks for _ in range(count))
    for item, off, mean in zip(row, offsets, means, strict=True):
        item.x = mean + off


def _heights(
    rows: list[list[LayoutItem]], gaps: Iterable[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Set the ``y`` of every item; return the tops and bottoms of the rows."""
    tops, bottoms = [], []
    y = 0.0
    for row, gap in zip(rows, gaps, strict=True):
        y += gap
        height = max((item.height for item in row), default=0.0)
        for item in row:
            if item.width == 0:  # a bend: its line goes straight through the row, past the boxes
                item.height = height
            item.y = y + (height - item.height) / 2
        tops.append(y)
        bottoms.append(y + height)
        y += height + ROW_GAP / 2
    return tuple(tops), tuple(bottoms)
