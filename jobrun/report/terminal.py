r"""A few lines at the bottom of a terminal that are painted again and again, and text above them.

The cursor rests, hidden, at the start of the painted lines: however the terminal is resized, all
below the cursor is the view's.  Lines are painted over, never cleared first, and each painting is
one write, so that nothing flickers.  Text of others above them is kept as it is, except for what
moves the cursor.

``rich.live.Live`` was tried in this place.  It erases each line before it draws it, and with that
what C libraries and child processes have written (12 of 12 lines in
``test_output_past_us_lands_on_the_empty_line_and_stays``); a painting took 580 us of CPU instead of
9 us, and 1178 bytes instead of 579; its import takes 14 ms more than that of ``rich.cells``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TextIO

from jobrun.report.formatting import uses_unicode
from jobrun.report.layout import ASCII, UNICODE, Line

__all__ = ["Painter"]

_CODES = {"bold": "1", "dim": "2", "good": "32", "bad": "33", "bar": "36"}
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_CLEAR_LINE, _CLEAR_BELOW, _UP = "\x1b[K", "\x1b[J", "\x1b[A"
# From the second line on: cleared from the top left corner, tmux keeps a screen in its history.
_TAKE_AWAY = f"\r{_CLEAR_LINE}\n{_CLEAR_BELOW}{_UP}"


class Painter:
    """Paints lines on ``stream``, a terminal; not for several threads at once.

    ``size`` returns its columns and rows.  Errors of a terminal that was closed are ignored.
    """

    scrolls = True

    def __init__(
        self,
        stream: TextIO,
        color: bool,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.glyphs = UNICODE if uses_unicode(stream) else ASCII
        self._stream = stream
        self._color = color
        self._size = size or (lambda: _size_of(stream))
        self._last: list[str] | None = None
        self._last_size = (0, 0)
        self._gone = False

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and rows."""
        return self._size()

    def paint(self, above: Sequence[str], lines: Sequence[Line]) -> None:
        """Put whole lines of text ``above``, and replace the painted lines below with ``lines``."""
        texts = [self._text(line) for line in lines]
        size = self._size()
        if not above and texts == self._last and size == self._last_size:
            return
        parts = [_HIDE if self._last is None else "", "\r"]
        parts += [f"{text}{_CLEAR_LINE}\n" for text in above]
        parts += [_NO_WRAP, f"{_CLEAR_LINE}\n".join(texts), _CLEAR_BELOW, _WRAP]
        if len(texts) > 1:
            parts.append(f"\x1b[{len(texts) - 1}A")
        parts.append("\r")
        self._last, self._last_size = texts, size
        self._write("".join(parts))

    def end(self, above: Sequence[str]) -> None:
        """Replace the painted lines with ``above``, and show the cursor again."""
        begin = "" if self._last is None else _TAKE_AWAY
        end = "" if self._last is None else _SHOW
        self._last = None
        self._write("".join([begin, *(f"{text}\n" for text in above), end]))

    def styled(self, text: str, style: str) -> str:
        """Return a text in a style, where there are colours."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and self._color else text

    def _text(self, line: Line) -> str:
        return "".join(self.styled(text, style) for text, style in line)

    def _write(self, text: str) -> None:
        if self._gone or not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has gone, or the stream is closed
            self._gone = True


def _size_of(stream: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
