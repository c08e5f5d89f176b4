r"""Progress bars among prints: which lines they leave, and what is seen of them meanwhile.

The texts are those that tqdm 4.70 and rich 14 write on a terminal, write by write.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from jobrun.report.printed_rows import PrintedRows, ThreadRows

UP = "\x1b[A"
BLANK = "\r            "
NESTED = ["\rout:   0%", "\n", "\rin:   0%", UP, "\n", "\rin:  50%", UP]
CLOSED_INSIDE = ["\n", "\rin: 100%", UP, "", "\rin: 100%", "\n", "\rout: 100%", "\n"]
CLEARED_INSIDE = ["\n", BLANK, UP, "\rout: 100%", "\n"]
LOWER = ["\n", "\rtwo:   0%", UP, "\n", "\rtwo:  50%", UP]
AT_ONCE = ["\rone:   0%", "\n", "\rtwo:   0%", UP, "\rone:  50%", "\n", "\rtwo:  50%", UP]
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
UP_TWO = "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K"


def lines_of(writes: Sequence[str]) -> list[str]:
    rows = PrintedRows()
    return [line for text in writes for line in rows.feed(text)] + rows.rest()


@pytest.mark.parametrize(
    ("writes", "lines"),
    [
        (["one", "\n", "two\nth", "ree\n", "\n", "end"], ["one", "two", "three", "", "end"]),
        (["windows\r\n", "lines\r", "\n"], ["windows", "lines"]),
        (["\r  0%", "\r 50%", "\r100%", "\n", "after\n"], ["100%", "after"]),
        (["\r  0%", "\r 50%", BLANK, "\r", "after\n"], ["after"]),
        (["\r  0%", BLANK, "\r", "", "written", "\n", "\r 50%", "\n"], ["written", " 50%"]),
        (["\r 50%", "printed into it\n", "\r100%\n"], [" 50%printed into it", "100%"]),
        ([*NESTED, *CLOSED_INSIDE], ["in: 100%", "out: 100%"]),
        ([*NESTED, *CLEARED_INSIDE], ["out: 100%"]),
        (["\r\x1b[2Kone", "\r\x1b[2Ktwo", "\x1b[K", "\n"], ["two"]),
        (["\r50% done", "\r\x1b[Knext\n"], ["next"]),
        (["\n", "\n", "x", "\n", "\n"], ["", "", "x", ""]),
        ([*LOWER, "two prints\n", "\n", "\rtwo: 100%", UP], ["two prints", "two: 100%"]),
        ([*LOWER, "\rtwo: 100%", "\n", "after\n"], ["two: 100%", "after"]),
        ([*LOWER, "\rtwo: 100%", "\n", *LOWER, "\rtwo: 100%", "\n"], ["two: 100%"] * 2),
        ([*LOWER, "\n", BLANK, "\r", UP, "hello", "\n", *LOWER], ["hello", "two:  50%"]),
        ([*LOWER, "\n", BLANK, UP, "after\n"], ["after"]),
        ([text * 2 if text in ("\n", UP) else text for text in LOWER], ["two:  50%"]),
        ([*AT_ONCE, "\rone: 100%", "\n", "\rtwo: 100%", "\n"], ["one: 100%", "two: 100%"]),
        ([*AT_ONCE, BLANK, "\r", "\n", BLANK, UP], []),
        (
            [*AT_ONCE, "\rtwo: 100%", "\n", BLANK, "\r", "hi", "\n", "\rone: 100%", "\n"],
            ["two: 100%", "hi", "one: 100%"],
        ),
        (
            [*AT_ONCE, "\rone: 100%", "\n", *LOWER, "\rtwo: 100%", "\n", "after\n"],
            ["one: 100%", "two: 100%", "after"],
        ),
        (
            [
                HIDE,
                "\r\x1b[2Ka 0\nb 0\nc 0",
                f"{UP_TWO}a 1\nb 1\nc 1",
                f"{UP_TWO}a 2\nb 2\nc 2\n{SHOW}",
                "after\n",
            ],
            ["a 2", "b 2", "c 2", "after"],
        ),
        (
            [
                HIDE,
                "\r\x1b[2Ka 0\nb 0\nc 0",
                f"{UP_TWO}hello\na 1\nb 1\nc 1",
                f"{UP_TWO}a 2\nb 2\nc 2\n{SHOW}",
            ],
            ["hello", "a 2", "b 2", "c 2"],
        ),
        (
            [
                HIDE,
                "\r\x1b[2Ka 0",
                "\r\x1b[2Ka 1",
                f"\r\x1b[2Ka 2\n{SHOW}\r\x1b[1A\x1b[2K",
                "after\n",
            ],
            ["after"],
        ),
    ],
)
def test_lines_that_are_left(writes: list[str], lines: list[str]) -> None:
    assert lines_of(writes) == lines


def test_lines_that_do_not_change_come_at_once() -> None:
    rows = PrintedRows()
    assert rows.feed("one\ntwo") == ["one"]
    assert rows.feed("\n") == ["two"]


def test_nested_bars_are_seen_and_no_state_of_them_is_a_line() -> None:
    rows = PrintedRows()
    assert [line for text in NESTED for line in rows.feed(text)] == []
    assert rows.bars() == ["out:   0%", "in:  50%"]
    rows.settled()
    assert rows.settled() == []


def test_a_bar_that_has_ended_is_a_line_once_nothing_follows() -> None:
    rows = PrintedRows()
    assert rows.feed("\r100%\n") == []
    assert (rows.settled(), rows.bars()) == ([], ["100%"])
    assert (rows.settled(), rows.bars()) == (["100%"], [])
    assert rows.settled() == rows.rest() == []


@pytest.mark.parametrize("closed", [CLOSED_INSIDE, CLEARED_INSIDE])
def test_nested_bars_that_have_ended_stand_above_what_follows(closed: list[str]) -> None:
    rows = PrintedRows()
    assert [line for text in [*NESTED, *closed] for line in rows.feed(text)] == []
    assert rows.ended()[-1] == "out: 100%"
    assert rows.rest() == []


@pytest.mark.parametrize("before", [LOWER, AT_ONCE, [*LOWER, "two prints\n"]])
def test_a_bar_below_others_is_seen_until_it_has_ended(before: list[str]) -> None:
    rows = PrintedRows()
    for text in before:
        rows.feed(text)
    assert rows.bars()[-1] == "two:  50%"
    assert rows.ended() == []
    for text in ("\rtwo: 100%", "\n"):
        rows.feed(text)
    assert rows.settled() == []
    assert rows.settled() == ["two: 100%"]
    assert rows.bars() == []


def test_of_many_bars_the_first_become_lines() -> None:
    rows = PrintedRows()
    lines = rows.feed("".join(f"\rbar {n}\n" for n in range(20)))
    assert lines == [f"bar {n}" for n in range(len(lines))]
    assert len(lines) > 10
    assert [*lines, *rows.rest()] == [f"bar {n}" for n in range(20)]


def test_what_a_thread_prints_stays_in_order_over_both_streams() -> None:
    lines: list[str] = []
    rows = ThreadRows([io.StringIO(), io.StringIO()], lines.extend)
    out, err = rows.fronts
    err.write("\rfit: 100%")
    out.write("meanwhile\n")
    err.write("\n")
    out.write("after\n")
    assert lines == ["meanwhile", "fit: 100%", "after"]
    out.write("begun")
    rows.end()
    assert lines[3:] == ["begun"]


def test_a_thread_of_a_library_refreshes_the_bars_of_the_task(current: Any) -> None:
    lines: list[str] = []
    rows = ThreadRows([io.StringIO()], lines.extend)
    (front,) = rows.fronts
    with current("fit"):
        front.write(f"{HIDE}\r\x1b[2Kfit 0")
        other = threading.Thread(target=lambda: front.write("\r\x1b[2Kfit 1"))
        other.start()
        other.join()
        assert rows.bars() == ["fit 1"]
        front.write(f"\r\x1b[2Kfit 2\n{SHOW}")
    rows.end()
    assert lines == ["fit 2"]


def test_bars_of_threads_do_not_mix() -> None:
    lines: list[str] = []
    rows = ThreadRows([io.StringIO()], lines.extend)
    (front,) = rows.fronts
    front.write("\rhere:  50%")
    other = threading.Thread(target=lambda: front.write("\rthere: 100%\n"))
    other.start()
    other.join()
    assert rows.bars() == ["here:  50%", "there: 100%"]
    rows.pass_on_ended()
    assert lines == ["there: 100%"]
    assert rows.bars() == ["here:  50%"]
