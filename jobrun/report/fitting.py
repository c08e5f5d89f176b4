"""Texts on terminals of any width: where lines are broken, and what is cut.

A line is broken between values, not between a name and its value, and never inside a word: one that
is longer than a line, such as a path, stays whole, so that it can be copied.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["broken", "cut", "few", "labelled", "text_width"]

_VALUES = re.compile(r"  +")
_ITEMS = re.compile(r"(?<=,) ")
_CLAUSES = re.compile(r"(?<=;) ")
_REMARK = re.compile(r" (?=\()")
_WORDS = re.compile(r" +")
_ITEM = 40
"""The columns of the parts between commas up to which a text is a list, and no prose."""
_LEAST = 20
"""The columns into which a text is broken at least."""


def text_width(text: str) -> int:
    """Return the columns of a text on a terminal: wide characters take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.east_asian_width(character) in "WF":
        return 2
    return 0 if unicodedata.combining(character) else 1


def broken(text: str, width: int | None, indent: str = "") -> list[str]:
    """Return a text as lines of at most ``width`` columns; empty for a text without words.

    ``indent`` stands before all lines but the first.
    """
    text = text.strip()
    if width is None or text_width(text) <= width:
        return [text] if text else []
    first, *others = _broken(text, width - len(indent))
    return [first, *(indent + line for line in others)]


def _broken(text: str, width: int) -> list[str]:
    """Break values from each other, before the remarks behind them, else the words of prose.

    Clauses stay whole where each of them fits on a line.
    """
    if _VALUES.search(text):
        return _packed(text, width, [_VALUES, _REMARK, _WORDS])
    if all(text_width(item) <= _ITEM for item in _ITEMS.split(text)):
        return _packed(text, width, [_ITEMS, _WORDS])
    if all(text_width(clause) <= width for clause in _CLAUSES.split(text)):
        return _packed(text, width, [_CLAUSES])
    return _packed(text, width, [_WORDS])


def _packed(text: str, width: int, breaks: Sequence[re.Pattern[str]]) -> list[str]:
    """Return as few lines as there are with breaks at the first of ``breaks``, and where needed."""
    if text_width(text) <= width:
        return [text]
    if not breaks:
        return _wide_parts(text, width)
    apart = "  " if breaks[0] is _VALUES else " "
    lines: list[str] = []
    whole = False
    for part in breaks[0].split(text):
        if whole and text_width(lines[-1] + apart + part) <= width:
            lines[-1] += apart + part
        else:
            parts = _packed(part, width, breaks[1:])
            lines += parts
            whole = len(parts) == 1
    return lines


def _wide_parts(word: str, width: int) -> list[str]:
    """Return a word that is too long; in scripts of wide characters it may be broken anywhere."""
    lines = [""]
    for before, character in pairwise(" " + word):
        if _width(before) == 2 == _width(character) and text_width(lines[-1]) + 2 > width:
            lines.append("")
        lines[-1] += character
    return lines


def labelled(
    facts: Iterable[tuple[str, str]], label_width: int, *, width: int | None = None
) -> list[str]:
    """Return ``  label  text`` lines of the facts that have a text.

    What is too long for ``width`` is aligned below its beginning.
    """
    indent = label_width + 3
    lines = []
    for label, text in facts:
        parts = broken(text, width and max(_LEAST, width - indent))
        heads = [f"  {label:<{label_width}} ", *[" " * indent] * (len(parts) - 1)]
        lines += [head + part for head, part in zip(heads, parts, strict=bool(parts))]
    return lines


def cut(text: str, width: int) -> str:
    """Return a text of at most ``width`` columns: of a longer one, its beginning and its end."""
    if text_width(text) <= width:
        return text
    head, tail = text, text
    while head and text_width(head) > (width - 1) // 2:
        head = head[:-1]
    while tail and text_width(tail) > width - 1 - text_width(head):
        tail = tail[1:]
    return f"{head}…{tail}"


def few(items: Sequence[str], width: int | None) -> tuple[str, int]:
    """Return as many items as a line has room for, ``a 1  b 2  +3``, and how many are left out."""
    for count in range(len(items), -1, -1):
        left = len(items) - count
        text = "  ".join([*items[:count], *([f"+{left}"] if left else [])])
        if width is None or text_width(text) <= width:
            return text, left
    return f"+{len(items)}", len(items)
