"""``jobrun docs``."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from jobrun.cli.pages import page, pages
from jobrun.docs import sections


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


def test_a_section_alone(call: Callable[..., Any]) -> None:
    done = call("docs", "spec", "conditions")
    assert done.code == 0
    assert done.out.startswith("## Conditions\n")
    assert "\n## " not in done.out.removeprefix("## ")
    assert done.out == call("docs", "spec", "CONDIT").out
    assert call("docs", "spec", "at", "the", "top").out.startswith("## At the top\n")
    assert "### Objects" in call("docs", "spec", "at the top").out


def test_a_hash_in_a_code_block_is_no_heading() -> None:
    text = "# Title\n\n```bash\n# a comment\n```\n\n## Next `one`\n\nx\n"
    assert [(s.heading, s.level) for s in sections(text)] == [("Title", 1), ("Next one", 2)]


def test_an_unknown_or_ambiguous_section_names_the_headings(call: Callable[..., Any]) -> None:
    done = call("docs", "spec", "zzz")
    assert done.code == 2
    assert "no section 'zzz' in page 'spec'; it has 'Tools for specs'" in done.err
    done = call("docs", "spec", "min_delta")
    assert done.code == 2
    assert "no section 'min_delta' in page 'spec'; it is mentioned in 'Conditions'" in done.err
    done = call("docs", "spec", "n")
    assert done.code == 2
    assert "2 sections match 'n' in page 'spec'; they are 'Names', 'Nodes'" in done.err


def test_search(call: Callable[..., Any]) -> None:
    done = call("docs", "--search", "PATIENCE")
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert ["spec", "Conditions"] in [row[:2] for row in rows]
    assert {row[0] for row in rows[1:-2]} > {"spec", "checkpoints"}
    found = json.loads(call("docs", "spec", "--search", "patience", "--json").out)["found"]
    assert {row["page"] for row in found} == {"spec"}
    assert all("patience" in row["line"].lower() for row in found)


def test_search_shows_pages_made_from_the_code_last(call: Callable[..., Any]) -> None:
    found = json.loads(call("docs", "--search", "epochs", "--json").out)["found"]
    pages = list(dict.fromkeys(row["page"] for row in found))
    assert pages[-3:] == ["api", "commands", "keys"]
    assert pages[:-3] == sorted(pages[:-3])


def test_search_for_words_in_any_order(call: Callable[..., Any]) -> None:
    done = call("docs", "--search", "improved Patience", "--json")
    lines = [row["line"].lower() for row in json.loads(done.out)["found"]]
    assert lines
    assert all("patience" in line and "improved" in line for line in lines)


def test_search_without_a_hit(call: Callable[..., Any]) -> None:
    done = call("docs", "--search", "zzzq")
    assert (done.code, done.out) == (5, "")
    assert "no line of any page contains 'zzzq'" in done.err
    assert "no line of any page contains 'patience' and 'zzzq'" in (
        call("docs", "--search", "patience zzzq").err
    )
    assert call("docs", "spec", "names", "--search", "x").code == 2


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
@pytest.mark.parametrize("options", ["-F", "-F --prompt=r", "-FR"])  # -F: less ends by itself
def test_less_shows_no_escape_codes_as_text(terminal: Callable[..., Any], options: str) -> None:
    screen = terminal("docs", "ci", "smoke", "runs", PAGER="less", LESS=options, size=(100, 200))
    assert "ESC" not in screen.text
    assert "smoke" in screen.text


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_less_without_options_of_the_user_gets_those_that_git_gives_it(
    terminal: Callable[..., Any],
) -> None:
    screen = terminal("docs", "ci", "smoke", "runs", PAGER="less", LESS="", size=(100, 200))
    assert "ESC" not in screen.text
    assert "\x1b[1" in screen.text
