"""Progress on a terminal: a few lines that are kept up to date, warnings and prints above them.

Events and prints are only remembered; a thread of its own paints, eight times a second at most.
When the run ends, one plain line stays of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO, cast

from jobrun.core.events import EpochFinished, Event, RunEnded, RunStarted
from jobrun.report.formatting import visible
from jobrun.report.layout import Glyphs, Line, layout
from jobrun.report.lines import Describer
from jobrun.report.log_file import Prints
from jobrun.report.screen import Screen
from jobrun.report.whole_lines import WholeLines

__all__ = ["LiveView", "Paints"]

_SECONDS = 1 / 8
_PATIENCE = 2.0
"""How long the end waits for a painting that hangs, since the terminal was stopped (Ctrl-S)."""


class Paints(Protocol):
    """What shows lines that change: a terminal (``Painter``) or a notebook (``Cell``)."""

    glyphs: Glyphs

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of now."""

    def paint(self, above: Sequence[str], lines: Sequence[Line]) -> None:
        """Put whole lines of text ``above``, and ``lines`` below them in place of the last ones."""

    def end(self, above: Sequence[str]) -> None:
        """Take the lines away and put ``above`` in their place."""

    def styled(self, text: str, style: str) -> str:
        """A text to be put above, in a style."""


class LiveView:
    """Shows the run with ``painter``; what ``prints`` gets for a terminal appears above it."""

    def __init__(
        self,
        painter: Paints,
        prints: Prints | None = None,
        verbosity: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._painter = painter
        self._tees = [t for t in (prints.out, prints.err) if t.stream.isatty()] if prints else []
        self._streams: list[TextIO] = []
        self._lines: list[WholeLines] = []
        self._describe = Describer(verbosity)
        self._clock = clock
        self._screen = Screen()
        self._last = ""
        self._above: list[str] = []
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._painting: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Remember what ``event`` says."""
        with self._lock:
            lines = self._describe(event)
            if isinstance(event, EpochFinished):
                self._last = "\n".join(lines)
            else:
                self._say(lines)
            self._screen.take(event, self._clock())
        if isinstance(event, RunStarted) and self._painting is None:
            self._start()
        elif isinstance(event, RunEnded):
            self.close()

    def close(self) -> None:
        """Leave the last epoch's line on the screen and stop."""
        painting, self._painting = self._painting, None
        if painting is None:
            return
        for tee, stream in zip(self._tees, self._streams, strict=True):
            tee.show_on(stream)
        for lines in self._lines:
            lines.end()
        self._over.set()
        painting.join(_PATIENCE)
        with self._lock:
            above, self._above = self._above, []
            self._painter.end([*above, self._last] if self._last else above)

    def draw(self) -> None:
        """Paint what is known now."""
        with self._lock:
            above, self._above = self._above, []
            columns, rows = self._painter.size
            lines = layout(
                self._screen, self._clock(), columns, max(rows - 1, 1), self._painter.glyphs
            )
        self._painter.paint(above, lines)

    def _start(self) -> None:
        self._screen.ends.clear()
        self._over.clear()
        self._streams = [tee.stream for tee in self._tees]
        self._lines = [WholeLines(stream, self._print) for stream in self._streams]
        for tee, lines in zip(self._tees, self._lines, strict=True):
            tee.show_on(cast("TextIO", lines))
        self._painting = threading.Thread(target=self._paint, name="jobrun-view", daemon=True)
        self._painting.start()

    def _paint(self) -> None:
        while not self._over.wait(_SECONDS):
            self.draw()

    def _print(self, lines: list[str]) -> None:
        with self._lock:
            self._above += [visible(line) for line in lines]

    def _say(self, lines: list[str]) -> None:
        """A line of our own above the painted ones, at once where there are none."""
        for line in lines:
            style = "bad" if line.startswith("warning") else ""
            self._above.append(self._painter.styled(line, style))
        if self._painting is None and self._above:
            above, self._above = self._above, []
            self._painter.end(above)
