r"""Prints that change rows of the terminal, as progress bars do: which rows may still change.

A bar as tqdm draws it sends ``\r`` and its new state; one inside another moves down with ``\n``
and back up with ``\x1b[A``.  Passed on as lines, each state of such bars would be a line.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from jobrun.report.whole_lines import StandIn

__all__ = ["PrintedRows", "ThreadRows"]

_MOVES = re.compile(r"(\n|\r|\x1b\[\d*A|\x1b\[[012]?K)")
_MOST = 8
"""Rows of one thread that are held back at most."""


@dataclass
class _Row:
    """The text of a row, and whether it is a progress bar: text that ``\\r`` has begun."""

    text: str = ""
    bar: bool = False

    @property
    def blank(self) -> bool:
        return not self.text.strip()


class PrintedRows:
    """The rows that one thread has printed and may still change."""

    def __init__(self) -> None:
        self._rows = [_Row()]
        self._at = 0
        self._returned = False
        self._settled = False

    def feed(self, text: str) -> list[str]:
        """Print ``text``; return the lines that have ended and do not change any more."""
        self._settled = False
        done: list[str] = []
        for part in filter(None, _MOVES.split(text)):
            if part == "\n":
                done += self._line_feed()
            elif part == "\r":
                self._returned = True
            elif part.endswith("A") and part.startswith("\x1b["):
                self._at = max(0, self._at - int(part[2:-1] or 1))
            elif part.endswith("K") and part.startswith("\x1b["):
                self._erase(part)
            else:
                self._print(part)
        return done

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held back."""
        return not any(row.text for row in self._rows)

    def bars(self) -> list[str]:
        """Return the state of each progress bar."""
        return [row.text for row in self._rows if row.bar and not row.blank]

    def ended(self) -> list[str]:
        """Return the bars that have ended: the cursor stands below them, on rows without text."""
        below = all(row.blank for row in self._rows[self._at :])
        return self._take(self._at) if below else []

    def settled(self) -> list[str]:
        """Return the bars that have ended, if nothing was printed since the last call.

        From the row of a bar inside another one the cursor goes back up at once.
        """
        settled, self._settled = self._settled, True
        return self.ended() if settled else []

    def rest(self) -> list[str]:
        """Return all rows that are left, the last one even if its line has not ended."""
        return [text for text in self._take(len(self._rows)) if text]

    def _line_feed(self) -> list[str]:
        bar = self._rows[self._at].bar
        self._returned = False
        self._at += 1
        if self._at == len(self._rows):
            self._rows.append(_Row())
        if not bar:
            return self._take(self._at)
        return self._take(1) if len(self._rows) > _MOST else []

    def _erase(self, part: str) -> None:
        if part == "\x1b[2K" or self._returned:
            self._rows[self._at].text = ""

    def _print(self, text: str) -> None:
        row = self._rows[self._at]
        if self._returned or not row.text:
            # After a bar that was cleared with spaces, the row is as good as new.
            cleared = bool(row.text) and row.blank
            row.bar = self._returned and not cleared
            row.text = text
        else:
            row.bar = False
            row.text += text
        self._returned = False

    def _take(self, count: int) -> list[str]:
        """Take the first rows away; cleared bars are no lines."""
        taken, self._rows = self._rows[:count], self._rows[count:] or [_Row()]
        self._at = max(0, self._at - count)
        return [row.text for row in taken if not (row.bar and row.blank)]


class ThreadRows:
    """The rows of all threads on ``streams``; ``put`` gets the lines that do not change any more.

    The lines of a thread come in their order; a progress bar comes once it has ended.
    """

    def __init__(self, streams: Sequence[TextIO], put: Callable[[list[str]], None]) -> None:
        self.fronts = [StandIn(stream, partial(self._print, n)) for n, stream in enumerate(streams)]
        self._put = put
        self._rows: dict[tuple[int, int], PrintedRows] = {}  # by stream and thread
        self._lock = threading.Lock()

    def bars(self) -> list[str]:
        """Return the state of each progress bar; those that have ended are passed on."""
        with self._lock:
            self._pass_on([line for rows in self._rows.values() for line in rows.settled()])
            return [bar for rows in self._rows.values() for bar in rows.bars()]

    def pass_on_ended(self) -> None:
        """Pass on the progress bars that have ended, so that what follows stands below them."""
        with self._lock:
            self._pass_on([line for rows in self._rows.values() for line in rows.ended()])

    def end(self) -> None:
        """Pass on all that is left."""
        with self._lock:
            self._pass_on([line for rows in self._rows.values() for line in rows.rest()])
            self._rows.clear()

    def _print(self, stream: int, text: str) -> None:
        thread = threading.get_ident()
        with self._lock:
            lines = self._rows.setdefault((stream, thread), PrintedRows()).feed(text)
            if lines:
                others = [r for (n, t), r in self._rows.items() if t == thread and n != stream]
                self._pass_on([*(line for rows in others for line in rows.ended()), *lines])

    def _pass_on(self, lines: list[str]) -> None:
        if lines:
            self._put(lines)
