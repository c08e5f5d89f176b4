"""A terminal in memory, for the tests of what is painted on one."""

from __future__ import annotations

import io

import pyte


class Terminal(io.StringIO):
    """A stream that is a terminal of a size: ``screen`` is what it shows, ``history`` all lines."""

    def __init__(self, columns: int = 80, rows: int = 24, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding
        self._screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.Stream(self._screen)
        self.writes = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True

    def size(self) -> tuple[int, int]:
        return self._screen.columns, self._screen.lines

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    def write(self, text: str) -> int:
        self.writes += 1
        self._stream.feed(text.replace("\n", "\r\n"))  # as the line discipline of a terminal does
        return super().write(text)

    @property
    def screen(self) -> list[str]:
        """The lines that are seen, without empty ones at the end."""
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def history(self) -> list[str]:
        """The lines that were scrolled away, and those that are seen."""
        gone = [
            "".join(line[x].data for x in range(self._screen.columns)).rstrip()
            for line in self._screen.history.top
        ]
        return gone + self.screen

    @property
    def cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)
