r"""Progress bars among prints: which lines they leave, and what is seen of them meanwhile.

The texts are those that tqdm 4.70 writes on a terminal, write by write.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence

import pytest

from jobrun.report.printed_rows import PrintedRows, ThreadRows

UP = "\x1b[A"
BLANK = "\r            "
NESTED = ["\rout:   0%", "\n", "\rin:   0%", UP, "\n", "\rin:  50%", UP]
CLOSED_INSIDE = ["\n", "\rin: 100%", UP, "", "\rin: 100%", "\n", "\rout: 100%", "\n"]
CLEARED_INSIDE = ["\n", BLANK, UP, "\rout: 100%", "\n"]


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
