"""Tables as plain text: columns as wide as their content, numbers aligned right.

``rich.table`` draws no better table without lines and colours, and costs more: 14 ms of CPU for its
import, where ``jobrun runs`` takes 119 ms in all, and 22 ms for a table of 100 rows, which takes
0.25 ms here.  For the same reason the width of characters is not that of ``rich.cells`` (1.4 ms).
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["labelled", "table", "text_width"]

_LEAST_ROOM = 15
"""The columns into which a text is broken at least."""


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: str = "",
    *,
    width: int | None = None,
    spare: Sequence[int] = (),
    flows: bool = False,
) -> str:
    """Return ``header`` and ``rows`` as lines; ``right`` has an ``r`` per right-aligned column.

    ``right="lr"``: the first column to the left, the second to the right, the others to the left.
    If a line would be longer than ``width``, columns of the numbers ``spare`` are left out, one
    after another; if the last column ``flows``, its texts are broken into lines; if that is not
    enough, each row becomes its own block, one line per column, without those that are empty.
    """
    if flows and width is not None:
        rows = _flowed(header, rows, width)
    lines = _lines(header, rows, right)
    out: set[int] = set()
    for column in spare:
        if width is None or max(map(text_width, lines)) <= width:
            break
        out.add(column)
        right = right.ljust(len(header), "l")
        kept = [n for n in range(len(header)) if n not in out]
        lines = _lines(
            [header[n] for n in kept],
            [[row[n] for n in kept] for row in rows],
            "".join(right[n] for n in kept),
        )
    if width is not None and rows and max(map(text_width, lines)) > width:
        return _blocks(header, rows, width)
    return "\n".join(lines)


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
        first, *others = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        found.append([*row[:-1], first])
        found += ([*[""] * len(columns), part] for part in others)
    return found


def labelled(
    facts: Iterable[tuple[str, str]], label_width: int, *, width: int | None = None
) -> list[str]:
    """Return ``  label  text`` lines of the facts that have a text.

    A text longer than ``width`` is broken at its spaces; the rest is aligned below its
    beginning.
    """
    indent = label_width + 3
    lines = []
    for label, text in facts:
        parts = [text] if width is None else _broken(text, max(20, width - indent)) or [text]
        heads = [f"  {label:<{label_width}} ", *[" " * indent] * (len(parts) - 1)]
        lines += [head + part for head, part in zip(heads, parts, strict=True) if text]
    return lines


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


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
    """Return a cell behind its name; what is too long for a line is aligned below its beginning."""
    first, *others = _broken(cell, max(20, width - name_width - 2)) or [""]
    indent = " " * (name_width + 2)
    return "\n".join([f"{_filled(name, name_width)}  {first}", *(indent + o for o in others)])


def _filled(text: str, width: int, *, left: bool = False) -> str:
    """Return ``text`` padded with spaces to a width, on its left or right."""
    spaces = " " * (width - text_width(text))
    return spaces + text if left else text + spaces


def text_width(text: str) -> int:
    """Return the columns of a text on a terminal: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
        for c in text
    )
