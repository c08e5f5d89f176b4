"""On a terminal there is a live view; in a pipe there are plain lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]
PRINTS = ("return total + step", "print('[bold] in epoch'); return total + step")


def test_the_live_view_leaves_the_last_state(terminal: Call, write: Call, normalised: Call) -> None:
    write(PRINTS)
    screen = terminal("train", "sum.yaml")
    assert screen.code == 0
    assert "\x1b[?25l" in screen.text
    assert screen.text.rindex("\x1b[?25h") > screen.text.rindex("\x1b[?25l")
    last = normalised(screen.plain).splitlines()
    end = last.index("sum: finished after 3 epochs: 3 epochs done")
    assert last[end - 4].startswith("sum  epoch 3/3 ━")
    assert [line.rstrip() for line in last[end - 3 : end]] == [
        "  loss 0.009434*",
        "  epochs 3/3",
        "  saved checkpoint_3 (epoch 3, SIZE, TIME)",
    ]
    assert last[-1] == "jobrun load-blobs runs/sum"
    assert screen.plain.count("[bold] in epoch") == 3


def test_a_narrow_terminal(terminal: Call, write: Call) -> None:
    write()
    screen = terminal("train", "sum.yaml", size=(40, 10))
    assert screen.code == 0
    assert "sum  epoch 3/3" in screen.plain


@pytest.mark.parametrize(
    ("more", "escapes"),
    [({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, True), ({}, True)],
)
def test_what_the_environment_says_of_the_terminal(
    more: dict[str, str], escapes: bool, terminal: Call, write: Call
) -> None:
    write()
    screen = terminal("train", "sum.yaml", **more)
    assert screen.code == 0
    assert ("\x1b" in screen.text) is escapes
    colours = any(f"\x1b[{c}" in screen.text for c in ("3", "1;3", "38"))
    assert colours is (escapes and "NO_COLOR" not in more)


def test_an_error_is_coloured_on_a_terminal(terminal: Call) -> None:
    assert "\x1b[31m\x1b[1merror:\x1b[0m" in terminal("train", "none.yaml").text
    assert "\x1b" not in terminal("train", "none.yaml", NO_COLOR="1").text
    assert "\x1b" not in terminal("--color", "never", "train", "none.yaml").text


def test_force_color_colours_errors_in_a_pipe_and_never_the_lines(
    jobrun: Call, write: Call
) -> None:
    write(("return 100", "raise ValueError"))
    result = jobrun("train", "sum.yaml", FORCE_COLOR="1")
    lines = result.err.splitlines()
    assert "\x1b" not in lines[0]
    assert any(line.startswith("\x1b[31m\x1b[1merror:\x1b[0m ") for line in lines)
    assert "\x1b" not in result.out


def test_a_reader_that_goes_away_changes_no_exit_code(shell: Call, write: Call) -> None:
    write()
    result = shell("jobrun train sum.yaml 2>/dev/null | true; echo ${PIPESTATUS[0]}")
    assert (result.out, result.err) == ("0\n", "")
    result = shell("(jobrun train sum.yaml --fresh >/dev/null; echo $? >&3) 3>&1 2>&1 | true")
    assert result.err == ""


def test_the_c_locale(jobrun: Call, write: Call) -> None:
    write(("return 100", "print('é'); return 100"), at="é")
    result = jobrun("train", "é/sum.yaml", LC_ALL="C", LANG="C")
    assert result.code == 0
    assert "é\n" in result.out
