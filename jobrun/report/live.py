"""Progress on a terminal: a few lines that are kept up to date; epochs and prints above them.

Events and prints are only remembered; a thread of its own paints, at most eight times a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO, cast

from jobrun.core.events import EpochFinished, Event, RunEnded, RunStarted
from jobrun.report.formatting import uncoloured, visible
from jobrun.report.layout import Glyphs, Line, layout
from jobrun.report.lines import Describer
from jobrun.report.log_file import Prints
from jobrun.report.printed_rows import ThreadRows
from jobrun.report.screen import Screen

__all__ = ["LiveView", "Paints"]

_SECONDS = 1 / 8
_PATIENCE = 2.0
"""Seconds that the end waits for a painting that hangs, as on a stopped terminal (Ctrl-S)."""
_EPOCH_LINES = 1.0
"""Seconds between two lines of epochs: faster ones would push all else off the terminal."""
_ROOM = 3
"""Rows above the view without which the lines of epochs would only scroll away."""


class Paints(Protocol):
    """A place for lines that change: a terminal (``Painter``) or a notebook (``Cell``)."""

    glyphs: Glyphs
    scrolls: bool
    """Whether lines above scroll away, so that there may be many of them."""

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and rows."""

    def paint(self, above: Sequence[str], lines: Sequence[Line]) -> None:
        """Put whole lines of text ``above``, and replace the painted lines below with ``lines``."""

    def end(self, above: Sequence[str]) -> None:
        """Replace the painted lines with ``above``."""

    def styled(self, text: str, style: str) -> str:
        """Return ``text``, to be put above, in a style."""


class LiveView:
    """A reporter that shows the run with ``painter``.

    What ``prints`` gets for a terminal appears above, progress bars of tasks inside the view.  The
    lines of finished epochs stay above, at most one a second, and that of the last epoch always.
    """

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
        self._prints = ThreadRows([], self._print)
        self._describe = Describer(verbosity)
        self._clock = clock
        self._screen = Screen()
        self._last: list[str] = []
        self._last_epoch = clock()
        self._room = False
        self._above: list[str] = []
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._painting: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Remember ``event``; the view shows it at its next painting."""
        lines = self._describe(event)
        if lines:
            self._prints.pass_on_ended()
        with self._lock:
            if isinstance(event, EpochFinished):
                self._keep_epoch(lines)
            else:
                self._say(lines)
            self._screen.take(event, self._clock())
        if isinstance(event, RunStarted) and self._painting is None:
            self._start()
        elif isinstance(event, RunEnded):
            self.close()

    def close(self) -> None:
        """Leave the last epoch's line on the screen, and stop."""
        painting, self._painting = self._painting, None
        if painting is None:
            return
        for tee, stream in zip(self._tees, self._streams, strict=True):
            tee.show_on(stream)
        self._prints.end()
        self._over.set()
        painting.join(_PATIENCE)
        with self._lock:
            above, self._above = self._above, []
            self._painter.end([*above, *self._last])
            self._last = []

    def draw(self) -> None:
        """Paint the current state."""
        bars = [uncoloured(bar) for bar in self._prints.bars()]
        with self._lock:
            above, self._above = self._above, []
            columns, rows = self._painter.size
            lines = layout(
                self._screen, self._clock(), columns, max(rows - 1, 1), self._painter.glyphs, bars
            )
            self._room = self._painter.scrolls and rows - len(lines) >= _ROOM
        self._painter.paint(above, lines)

    def _start(self) -> None:
        self._screen.ends.clear()
        self._last_epoch = self._clock()
        self._over.clear()
        self._streams = [tee.stream for tee in self._tees]
        self._prints = ThreadRows(self._streams, self._print)
        for tee, front in zip(self._tees, self._prints.fronts, strict=True):
            tee.show_on(cast("TextIO", front))
        self._painting = threading.Thread(target=self._paint, name="jobrun-view", daemon=True)
        self._painting.start()

    def _paint(self) -> None:
        while not self._over.wait(_SECONDS):
            self.draw()

    def _print(self, lines: list[str]) -> None:
        with self._lock:
            self._above += [visible(line) for line in lines]

    def _keep_epoch(self, lines: list[str]) -> None:
        """Put the line of an epoch above if there is room and it is due; else hold it back."""
        now = self._clock()
        if self._room and now - self._last_epoch >= _EPOCH_LINES:
            self._last_epoch, self._last = now, []
            self._say(lines)
        else:
            self._last = lines

    def _say(self, lines: list[str]) -> None:
        """Put lines above the painted ones, at once where there are none."""
        for line in map(str.expandtabs, lines):
            style = "bad" if line.startswith("warning") else ""
            self._above.append(self._painter.styled(line, style))
        if self._painting is None and self._above:
            above, self._above = self._above, []
            self._painter.end(above)
