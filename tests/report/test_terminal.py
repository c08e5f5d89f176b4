"""What is left of others' text, and whether a terminal has more than ASCII."""

from __future__ import annotations

import pytest
from screens import Terminal

from jobrun.report.formatting import uncoloured, uses_unicode, visible
from jobrun.report.terminal import Painter


@pytest.mark.parametrize(
    ("line", "seen", "kept"),
    [
        ("plain [bold] text", "plain [bold] text", "plain [bold] text"),
        ("10%\r20%\r", "20%", "20%"),
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m", "red"),
        ("a\x1b[2Jb\x1b[10Ac", "abc\x1b[0m", "a\\x1b[2Jb\\x1b[10Ac"),
        ("\x1b]0;title\x07text", "text\x1b[0m", "\\x1b]0;title\\x07text"),
        ("a\tb\tc", "a       b       c", "a\tb\tc"),
        ("\x1b[1ma\x1b[0mb\tc", "\x1b[1ma\x1b[0mb      c\x1b[0m", "ab\tc"),
        ("bell\x07", "bell\\x07", "bell\\x07"),
        ("\x1b[?25lhidden", "hidden\x1b[0m", "\\x1b[?25lhidden"),
    ],
)
def test_text_of_others_moves_no_cursor(line: str, seen: str, kept: str) -> None:
    assert visible(line) == seen
    assert uncoloured(line) == kept


@pytest.mark.parametrize(
    ("environment", "encoding", "answer"),
    [
        ({}, "utf-8", True),
        ({"LANG": "de_DE.UTF-8"}, "utf-8", True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, "utf-8", False),
        ({"LANG": "POSIX"}, "utf-8", False),
        ({"LANG": "C.UTF-8"}, "utf-8", True),
        ({}, "ascii", False),
        ({}, "iso-8859-1", False),
        ({}, "none-such", False),
    ],
)
def test_unicode(
    environment: dict[str, str], encoding: str, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert uses_unicode(Terminal(encoding=encoding)) is answer


def test_colours_only_where_they_are_wanted() -> None:
    for color in (True, False):
        terminal = Terminal()
        painter = Painter(terminal, color, terminal.size)
        painter.paint([painter.styled("above", "bad")], [(("one", "bold"), ("two", ""))])
        assert ("\x1b[33m" in terminal.getvalue()) is color
        assert ("\x1b[1m" in terminal.getvalue()) is color
        assert terminal.screen == ["above", "onetwo"]


def test_output_past_us_lands_on_the_empty_line_and_stays() -> None:
    terminal = Terminal(40, 8)
    painter = Painter(terminal, False, terminal.size)
    for number in range(12):
        painter.paint([], [(), ((f"frame {number}", ""),), (("second", ""),)])
        terminal.write(f"native {number}\n")  # a C library, or a child process
    painter.end([])
    assert [line for line in terminal.history if line] == [f"native {n}" for n in range(12)]


def test_the_end_clears_nothing_below_the_first_line_from_the_corner() -> None:
    """tmux takes that for a cleared screen, and keeps a copy of it in its history."""
    terminal = Terminal(40, 8)
    painter = Painter(terminal, False, terminal.size)
    painter.paint([], [(), (("one", ""),), (("two", ""),)])
    before = len(terminal.getvalue())
    painter.end(["last"])
    written = terminal.getvalue()[before:]
    assert "\x1b[J" in written
    assert written.index("\n") < written.index("\x1b[J")
    assert [line for line in terminal.screen if line] == ["last"]
