r"""Prints that change rows of the terminal, as progress bars do: which rows may still change.

A bar as tqdm draws it sends ``\r`` and its new state; one below another moves down with ``\n``
and back up with ``\x1b[A``.  rich hides the cursor and draws all rows again.  Passed on as lines,
each state of such bars would be a line.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TextIO

from jobrun.core.current_task import here
from jobrun.report.whole_lines import StandIn

__all__ = ["PrintedRows", "ThreadRows", "writer_of"]

_MOVES = re.compile(r"(\n|\r|\x1b\[\d*A|\x1b\[[012]?K|\x1b\[\?25[hl])")
_MOST = 8
"""Rows of one thread that are held back at most."""


@dataclass
class _Row:
    """The text of a row; whether it is a progress bar, or an empty line that may be meant."""

    text: str = ""
    bar: bool = False
    empty_line: bool = False

    @property
    def blank(self) -> bool:
        return not self.text.strip()

    @property
    def is_bar(self) -> bool:
        return self.bar and not self.blank


class PrintedRows:
    """The rows that one thread has printed and may still change.

    The cursor rests on the first row of the bars.  One further down is drawn from there and back;
    so a line feed without a carriage return or a way up after it has ended what stands above.
    """

    def __init__(self) -> None:
        self.of_task = here() is not None
        self._rows = [_Row()]
        self._at = 0
        self._returned = False
        self._fed = False  # the cursor came down to its row, and nothing was printed since
        self._rose = False
        self._hidden = False
        self._settled = False

    def feed(self, text: str) -> list[str]:
        """Print ``text``; return the lines that have ended and do not change any more."""
        if not text:
            return []
        self._settled = False
        done = self._end_above() if self._fed and text[0] not in "\r\x1b" else []
        for part in filter(None, _MOVES.split(text)):
            if part == "\n":
                done += self._line_feed()
            elif part == "\r":
                self._returned = True
            elif part.startswith("\x1b[?25"):
                self._hidden = part.endswith("l")
            elif part.endswith("A") and part.startswith("\x1b["):
                self._rise(int(part[2:-1] or 1))
            elif part.endswith("K") and part.startswith("\x1b["):
                self._erase(part)
            else:
                done += self._print(part)
        row = self._rows[self._at]
        if self._returned and row.text and row.blank:  # a bar that was cleared with spaces
            self._rows[self._at], self._returned = _Row(), False
        return done

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held back, and no bars are announced."""
        return not (self._hidden or any(not r.blank or r.empty_line for r in self._rows))

    def bars(self) -> list[str]:
        """Return the state of each progress bar."""
        return [row.text for row in self._rows if row.is_bar]

    def ended(self) -> list[str]:
        """Return the lines above the cursor, if it stands below the bars."""
        if self._fed:
            return self._end_above()
        below = all(row.blank for row in self._rows[self._at :])
        return self._take(self._at) if below else []

    def settled(self) -> list[str]:
        """Return what has ended, if nothing was printed since the last call.

        From the row of a bar below another one the cursor goes back up at once.
        """
        settled, self._settled = self._settled, True
        return self.ended() if settled else []

    def rest(self) -> list[str]:
        """Return all rows that are left, the last one even if its line has not ended."""
        return self.ended() + self._take(len(self._rows))

    def _line_feed(self) -> list[str]:
        row = self._rows[self._at]
        self._returned = self._rose = False
        self._at += 1
        if not row.bar and not row.blank:
            return self._plain_line()
        self._fed = True
        if row.blank:
            self._rows[self._at - 1] = _Row(empty_line=True)
        if self._at == len(self._rows):
            self._rows.append(_Row())
        return self._take(1) if len(self._rows) > _MOST else []

    def _plain_line(self) -> list[str]:
        """End the line above the cursor; bars below it stay below what is printed next."""
        lines = self._take(self._at)
        if any(row.is_bar for row in self._rows):
            self._rows.insert(0, _Row())
        else:
            self._rows = [_Row()]
        self._fed = False
        return lines

    def _end_above(self) -> list[str]:
        """End all above the cursor.

        The rows below are out of date: a library draws a bar that continues again, below those that
        have ended.
        """
        lines = self._take(self._at)
        self._rows, self._fed = [_Row()], False
        return lines

    def _rise(self, count: int) -> None:
        """Move the cursor up; above the rows that are held back, bars of others may stand."""
        missing = max(0, count - self._at)
        self._rows[:0] = [_Row() for _ in range(missing)]
        before = self._at + missing
        self._at = before - count
        for row in self._rows[self._at : before]:
            row.empty_line = False
        self._fed, self._rose = False, True

    def _erase(self, part: str) -> None:
        if part == "\x1b[2K" or self._returned:
            self._rows[self._at].text = ""

    def _print(self, text: str) -> list[str]:
        # Who goes up goes to the first row that changes.
        lines = self._take(self._at) if self._rose else []
        row = self._rows[self._at]
        if self._returned or self._fed or not row.text:
            row.bar = self._returned or self._hidden
            row.text = text
        else:
            row.bar = self._hidden
            row.text += text
        row.empty_line = self._returned = self._fed = self._rose = False
        return lines

    def _take(self, count: int) -> list[str]:
        """Take the first rows away; cleared bars, and rows that were only passed, are no lines."""
        taken, self._rows = self._rows[:count], self._rows[count:] or [_Row()]
        self._at = max(0, self._at - count)
        return [row.text for row in taken if row.empty_line or not row.blank]


def writer_of(text: str, rows: Mapping[int, PrintedRows]) -> int:
    """Return the thread whose ``rows`` ``text`` changes: this one, or one whose bars it refreshes.

    Libraries refresh bars from threads of their own, which run no task.
    """
    thread = threading.get_ident()
    if text[:1] not in ("\r", "\n", "\x1b") or here() is not None:
        return thread
    if thread in rows and not rows[thread].is_empty:
        return thread
    return next((t for t, those in rows.items() if those.of_task and those.bars()), thread)


class ThreadRows:
    """The rows of all threads on ``streams``; ``put`` gets the lines that do not change any more.

    The lines of a thread come in their order; a progress bar comes once it has ended.
    """

    def __init__(self, streams: Sequence[TextIO], put: Callable[[list[str]], None]) -> None:
        self.fronts = [StandIn(stream, partial(self._print, n)) for n, stream in enumerate(streams)]
        self._put = put
        self._rows: list[dict[int, PrintedRows]] = [{} for _ in streams]  # by thread
        self._lock = threading.Lock()

    def bars(self) -> list[str]:
        """Return the state of each progress bar; those that have ended are passed on."""
        with self._lock:
            self._pass_on([line for rows in self._all() for line in rows.settled()])
            return [bar for rows in self._all() for bar in rows.bars()]

    def pass_on_ended(self) -> None:
        """Pass on the progress bars that have ended, so that what follows stands below them."""
        with self._lock:
            self._pass_on([line for rows in self._all() for line in rows.ended()])

    def end(self) -> None:
        """Pass on all that is left."""
        with self._lock:
            self._pass_on([line for rows in self._all() for line in rows.rest()])
            for threads in self._rows:
                threads.clear()

    def _all(self) -> list[PrintedRows]:
        return [rows for threads in self._rows for rows in threads.values()]

    def _print(self, stream: int, text: str) -> None:
        with self._lock:
            threads = self._rows[stream]
            thread = writer_of(text, threads)
            lines = threads.setdefault(thread, PrintedRows()).feed(text)
            if lines:
                others = [t[thread] for t in self._rows if t is not threads and thread in t]
                self._pass_on([*(line for rows in others for line in rows.ended()), *lines])

    def _pass_on(self, lines: list[str]) -> None:
        if lines:
            self._put(lines)
