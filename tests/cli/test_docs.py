"""``jobrun docs``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jobrun.docs import page, pages


def test_lists_its_pages(jobrun: Callable[..., Any]) -> None:
    done = jobrun("docs")
    assert done.code == 0
    for name, title in pages().items():
        assert any(
            line.split("  ", 1)[0] == name and title in line for line in done.out.splitlines()
        )


def test_a_page_in_a_pipe_is_its_markdown(jobrun: Callable[..., Any]) -> None:
    done = jobrun("docs", "checkpoints")
    assert (done.code, done.out) == (0, page("checkpoints"))


def test_a_page_on_a_terminal_is_set_for_reading(terminal: Callable[..., Any]) -> None:
    screen = terminal("docs", "checkpoints", PAGER="cat")
    assert screen.code == 0
    assert "\x1b[" in screen.text
    assert "```" not in screen.plain


def test_an_unknown_page_names_the_nearest(call: Callable[..., Any]) -> None:
    done = call("docs", "checkpoint")
    assert done.code == 2
    assert "did you mean 'checkpoints'" in done.err.replace("`", "'")


def test_json(call: Callable[..., Any]) -> None:
    assert json.loads(call("docs", "--json").out) == {"pages": pages()}
    assert json.loads(call("docs", "checkpoints", "--json").out) == {"text": page("checkpoints")}
