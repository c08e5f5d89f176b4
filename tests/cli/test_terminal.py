"""On a terminal there is a live view; in a pipe there are plain lines."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from screens import Terminal

from tests.cli.conftest import COMMAND, environment

Call = Callable[..., Any]
PRINTS = ("return total + step", "print('[bold] in epoch'); return total + step")


def test_the_live_view_leaves_one_line(terminal: Call, write: Call, normalised: Call) -> None:
    write(PRINTS)
    screen = terminal("train", "sum.yaml")
    assert screen.code == 0
    shown = Terminal(80, 24)
    shown.write(screen.text)
    assert not shown.cursor_hidden
    lines = normalised("\n".join(shown.history)).splitlines()
    assert lines[:6] == [
        "sum in runs/sum: starts from the beginning",
        *["[bold] in epoch"] * 3,
        "epoch 3/3  loss 0.009434*  TIME",
        "sum: finished after 3 epochs: 3 epochs done",
    ]
    assert lines[-1] == "jobrun load-blobs runs/sum"


SLOW = (
    "return total + step",
    "import time; time.sleep(0.4); print('[/x] said'); return total + step",
)


@pytest.mark.parametrize("size", [(80, 24), (40, 10)])
def test_what_is_seen_while_it_runs(size: tuple[int, int], terminal: Call, write: Call) -> None:
    write(SLOW)
    screen = terminal("train", "sum.yaml", size=size)
    # Every painting of the view, as the terminal showed it after it.
    shown, seen = Terminal(*size), []
    for part in re.split(r"(?<=\x1b\[\?7h)", screen.text):
        shown.write(part)
        seen.append("\n".join(shown.screen))
    one = [text for text in seen if "\nsum  epoch 1/3" in text]
    assert one
    if size == (80, 24):
        assert any("━━━" in text and "s left" in text and "loss 0.0098039" in text for text in one)
        assert any("  running    add " in text for text in one)
        assert any("  stop       epochs 1/3" in text for text in one)
    assert all(text.count("sum  epoch") <= 1 for text in seen)
    assert "\n".join(shown.history).count("[/x] said") == 3


def test_a_resize_in_the_middle(write: Call, folder: Path) -> None:
    write(SLOW)
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, "train", "sum.yaml"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=folder,
        env=environment(),
        start_new_session=True,
    )
    os.close(follower)
    shown, resized, narrow = Terminal(80, 24), False, []
    with suppress(OSError):  # the last process has closed its end
        while part := os.read(leader, 1 << 16):
            shown.write(part.decode().replace("\r\n", "\n"))
            if not resized and "sum  epoch 1/3" in "\n".join(shown.screen):
                shown.resize(40, 10)
                fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
                resized = True
            elif resized:
                narrow.append("\n".join(shown.screen))
    os.close(leader)
    assert process.wait(timeout=60) == 0
    assert resized
    assert all(text.count("sum  epoch") <= 1 for text in narrow)
    assert any("\nsum  epoch 2/3" in text for text in narrow)
    assert "sum  epoch" not in narrow[-1]


def test_ascii_where_the_locale_has_no_more(terminal: Call, write: Call) -> None:
    write(SLOW)
    screen = terminal("train", "sum.yaml", LC_ALL="C", LANG="C")
    assert screen.code == 0
    assert screen.text.isascii()
    assert "sum  epoch 1/3  ###" in screen.plain


@pytest.mark.parametrize(
    ("more", "escapes"),
    [({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, True), ({}, True)],
)
def test_what_the_environment_says_of_the_terminal(
    more: dict[str, str], escapes: bool, terminal: Call, write: Call
) -> None:
    write(SLOW)
    screen = terminal("train", "sum.yaml", **more)
    assert screen.code == 0
    assert ("\x1b" in screen.text) is escapes
    colours = re.search(r"\x1b\[[0-9;]+m", screen.text) is not None
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
