"""The live view in a notebook: one output of the cell, which is replaced while the run goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from importlib import import_module
from typing import Any
from uuid import uuid4

from jobrun.core.late_imports import importing
from jobrun.report.layout import UNICODE, Line

__all__ = ["Cell", "in_notebook"]

_STYLES = {
    "bold": "font-weight: bold",
    "dim": "opacity: 0.6",
    "good": "color: #2e8b57",
    "bad": "color: #b8860b",
    "bar": "color: #1e90ff",
}
_PRE = "white-space: pre; margin: 0; line-height: 1.3; font-family: monospace"


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


class Cell:
    """Shows lines as an output of the running cell; the lines put above them stay."""

    glyphs = UNICODE
    size = (100, 30)
    scrolls = False

    def __init__(self) -> None:
        with importing():
            self._display = import_module("IPython.display")
        self._id: str | None = None
        self._above: list[str] = []
        self._last: list[Line] | None = None

    def paint(self, above: Sequence[str], lines: Sequence[Line]) -> None:
        """Replace the output with ``lines``, below all that was put above."""
        if above or list(lines) != self._last:
            self._above += above
            self._last = list(lines)
            self._show([*(((text, ""),) for text in self._above), *lines])

    def end(self, above: Sequence[str]) -> None:
        """Replace the painted lines with ``above``, below all that was put above before."""
        if above or self._last:
            self._above += above
            self._last = None
            self._show([((text, ""),) for text in self._above])

    def styled(self, text: str, style: str) -> str:
        """Return the text unchanged: the lines above have no styles."""
        return text

    def _show(self, lines: Sequence[Line]) -> None:
        plain = "\n".join("".join(text for text, _ in line) for line in lines)
        html = "\n".join("".join(_span(*piece) for piece in line) for line in lines)
        data: dict[str, Any] = {
            "text/plain": plain,
            "text/html": f'<pre style="{_PRE}">{html}</pre>',
        }
        if self._id is None:
            self._id = uuid4().hex
            self._display.display(data, raw=True, display_id=self._id)
        else:
            self._display.update_display(data, raw=True, display_id=self._id)


def _span(text: str, style: str) -> str:
    return f'<span style="{_STYLES[style]}">{escape(text)}</span>' if style else escape(text)
