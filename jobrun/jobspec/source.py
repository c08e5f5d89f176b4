"""A spec's text as a tree of nodes, each with its place."""

from __future__ import annotations

import re
from typing import Any

from jobrun.errors import Where
from jobrun.jobspec.scalars import Scalar

__all__ = ["SpecNode", "SpecSource"]

_YAML_BREAK = re.compile("[\x85\u2028\u2029]")


class SpecNode:
    """A value of the spec and its place.

    ``value`` is a scalar, a list of nodes, or a dict of nodes, whose ``keys`` are nodes too.
    ``line`` and ``column`` count from 0; ``indent`` is how many characters of the source stand
    before a scalar's own text (1 for a quote), or -1 where its text is not a piece of the line.
    ``count`` and ``height`` are of the tree below, aliases expanded.
    """

    __slots__ = ("column", "count", "height", "indent", "keys", "line", "place", "value", "width")

    def __init__(self, value: Any, line: int, column: int, width: int, indent: int = 0) -> None:
        self.value = value
        self.keys: dict[Scalar, SpecNode] = {}
        self.line = line
        self.column = column
        self.width = width
        self.indent = indent
        self.count = 1
        self.height = 1
        self.place: Where | None = None

    def plain(self) -> Any:
        """Return the value without places: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {k: v.plain() for k, v in self.value.items()}
        if isinstance(self.value, list):
            return [v.plain() for v in self.value]
        return self.value

    def get(self, *path: str | int) -> SpecNode | None:
        """Return the node below, or None."""
        node: SpecNode | None = self
        for part in path:
            below = node.value if node else None
            if isinstance(below, dict):
                node = below.get(part)
            elif isinstance(below, list) and isinstance(part, int) and part < len(below):
                node = below[part]
            else:
                return None
        return node


class SpecSource:
    """A parsed spec: its file as the user named it, its lines and the root of its tree."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.lines = text.splitlines()
        self._shown = _shown_lines(text) if _YAML_BREAK.search(text) else None
        self.root = SpecNode({}, 0, 0, 1)

    def where(self, node: SpecNode, offset: int = 0, width: int = 0) -> Where:
        """Return the place of a node; ``offset`` counts within the text of a scalar."""
        if node.place is not None:
            return node.place
        column, wide = node.column, node.width
        if offset and node.indent >= 0 and offset + node.indent < node.width:
            column, wide = column + node.indent + offset, 1
        return self.at(node.line, column, width or wide)

    def at(self, line: int, column: int, width: int = 1) -> Where:
        """Return the place of a line and column, both from 0."""
        text = self.lines[line] if line < len(self.lines) else ""
        if self._shown is not None and line < len(self.lines):
            line, before, text = self._shown[line]
            column += before
        return Where(self.file, line + 1, column + 1, text, max(1, min(width, len(text) - column)))


def _shown_lines(text: str) -> list[tuple[int, int, str]]:
    """Return of each line of YAML the line of an editor that holds it, and what of that precedes.

    YAML ends lines at U+0085, U+2028 and U+2029 too, and editors do not.
    """
    found: list[tuple[int, int, str]] = []
    for number, shown in enumerate(re.split("\r\n|\r|\n", text)):
        before = 0
        for part in _YAML_BREAK.split(shown):
            found.append((number, before, shown))
            before += len(part) + 1
    return found
