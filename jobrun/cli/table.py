"""Tables as plain text: columns as wide as their content, numbers aligned right.

``rich.table`` draws no better table without lines and colours, and costs more: 14 ms of CPU for its
import, where ``jobrun runs`` takes 119 ms in all, and 22 ms for a table of 100 rows, which takes
0.25 ms here.  For the same reason the width of characters is not that of ``rich.cells`` (1.4 ms).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobrun.report.fitting import broken, cut, text_width

__all__ = ["Fitted", "fitted", "table"]

_LEAST_ROOM = 15
"""The columns into which a text is broken, or cut, at least."""
_NAME = 20
"""The columns of a name above which a long value stands below it."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table, the numbers of the columns that had no room, and whether each row is a block."""

    text: str
    left_out: Sequence[int] = ()
    blocks: bool = False


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: str = "",
    *,
    width: int | None = None,
    flows: bool = False,
    hangs: bool = False,
) -> str:
    """Return ``header`` and ``rows`` as lines: see ``fitted``."""
    return fitted(header, rows, right, width=width, flows=flows, hangs=hangs).text


def fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: str = "",
    *,
    width: int | None = None,
    spare: Sequence[int] = (),
    follows: Sequence[int] = (),
    shortens: bool = False,
    flows: bool = False,
    hangs: bool = False,
) -> Fitted:
    """Return ``header`` and ``rows`` as lines; ``right`` has an ``r`` per right-aligned column.

    ``right="lr"``: the first column to the left, the second to the right, the others to the left.
    If a line would be longer than ``width``: if the last column ``flows``, its texts are broken
    into lines; columns of the numbers ``spare`` are left out, the first ones first (those of
    ``follows`` say nothing without the one before); if the first column ``shortens``, its texts are
    cut, to half the width before others are left out; if it ``hangs``, a long text of it stands
    above its row; and if that is not enough, each row becomes its own block, one line per column,
    without those that are empty.
    """
    whole = rows
    if flows and width is not None:
        rows = _flowed(header, rows, width)
    right = right.ljust(len(header), "l")
    widths = [max(map(text_width, column)) for column in zip(header, *rows, strict=True)]
    if width is None or not rows or _sum(widths) <= width:
        return Fitted("\n".join(_lines(header, rows, right)))
    room = [*widths]
    if shortens:
        room[0] = min(room[0], max(width // 2, text_width(header[0])))
    kept = _kept(room, spare, follows, width)
    others = _sum([widths[n] for n in kept[1:]]) + 2
    least = min(widths[0], _LEAST_ROOM) if shortens else widths[0]
    if others + least <= width:
        few = [[cut(row[0], width - others), *(row[n] for n in kept[1:])] for row in rows]
        lines = _lines([header[n] for n in kept], few, "".join(right[n] for n in kept))
        return Fitted("\n".join(lines), [n for n in range(len(header)) if n not in kept])
    if hangs and (lines := _hanging(header, rows, right, width)):
        return Fitted("\n".join(lines))
    return Fitted(_blocks(header, whole, width), blocks=True)


def _kept(
    widths: Sequence[int], spare: Sequence[int], follows: Sequence[int], width: int
) -> list[int]:
    """Return the columns that are left if those of ``spare`` go, the first ones first.

    A narrow one stays if there is room for it without wider ones that stand for more.
    """
    kept = set(range(len(widths)))
    for column in spare:
        if _sum([widths[n] for n in kept]) > width:
            kept.discard(column)
    for column in reversed(spare):
        alone = column in follows and column - 1 not in kept
        if not alone and _sum([widths[n] for n in kept | {column}]) <= width:
            kept.add(column)
    return sorted(kept)


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _hanging(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: str, width: int
) -> list[str]:
    """Return lines with long texts of the first column above their rows; empty if too wide."""
    columns = [*zip(header, *rows, strict=True)][1:]
    room = width - sum(max(map(text_width, column)) + 2 for column in columns)
    if room < _LEAST_ROOM:
        return []
    long = {n: row[0] for n, row in enumerate(rows, 1) if text_width(row[0]) > room}
    short = [["" if n in long else row[0], *row[1:]] for n, row in enumerate(rows, 1)]
    lines = _lines(header, short, right)
    pairs = ((long.get(n, ""), line) for n, line in enumerate(lines))
    return [text for pair in pairs for text in pair if text]


def _flowed(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Sequence[Sequence[str]]:
    """Return the rows with the texts of the last column broken, each part in a row of its own."""
    columns = [*zip(header, *rows, strict=True)][:-1]
    room = width - sum(max(map(text_width, column)) + 2 for column in columns)
    if room < _LEAST_ROOM:
        return rows
    found: list[Sequence[str]] = []
    for row in rows:
        first, *others = broken(row[-1], room) or [""]
        found.append([*row[:-1], first])
        found += ([*[""] * len(columns), part] for part in others)
    return found


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]], right: str) -> list[str]:
    widths = [max(map(text_width, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            _filled(cell, width, left=right[i : i + 1] == "r")
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _blocks(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """Return ``name  value`` lines, an empty line between two rows."""
    name_width = max(map(text_width, header))
    blocks = (
        "\n".join(
            _cell(name, cell, name_width, width)
            for name, cell in zip(header, row, strict=True)
            if cell
        )
        for row in rows
    )
    return "\n\n".join(blocks)


def _cell(name: str, cell: str, name_width: int, width: int) -> str:
    """Return a cell behind its name; what is too long for a line is aligned below its beginning.

    Without a name it is the title of its block.
    """
    if not name:
        return cell
    room = max(20, width - name_width - 2)
    if name_width > _NAME and text_width(cell) > width - name_width - 2:
        return "\n".join([name, *(f"  {part}" for part in broken(cell, width - 2))])
    first, *others = broken(cell, room) or [""]
    indent = " " * (name_width + 2)
    return "\n".join([f"{_filled(name, name_width)}  {first}", *(indent + o for o in others)])


def _filled(text: str, width: int, *, left: bool = False) -> str:
    """Return ``text`` padded with spaces to a width, on its left or right."""
    spaces = " " * (width - text_width(text))
    return spaces + text if left else text + spaces
