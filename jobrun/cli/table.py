"""Tables as plain text: columns as wide as what they hold, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table"]


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """``header`` and ``rows`` as lines; ``right`` holds an ``r`` for each column set to the right.

    ``right="lr"``: the first column to the left, the second to the right, the others to the left.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
