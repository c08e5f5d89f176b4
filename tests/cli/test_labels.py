"""``jobrun tag`` and ``jobrun note``: what they store, and where it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.fixture
def trained(call: Call, write: Call, folder: Path, once: Call) -> Path:
    @once
    def make() -> None:
        write()
        call("train", "sum.yaml")
        call("train", "sum.yaml", "--fresh")

    return folder / "runs/sum"


@pytest.mark.usefixtures("trained")
def test_tags_are_added_shown_and_removed(call: Call) -> None:
    assert call("tag", "sum").out == "runs/sum: no tags\n"
    assert call("tag", "sum", "good", "paper-2", "good").out == "runs/sum: good, paper-2\n"
    assert call("tag", "sum", "good").out == "runs/sum: good, paper-2\n"
    assert json.loads(call("tag", "sum", "--json").out) == {
        "run": "runs/sum",
        "tags": ["good", "paper-2"],
    }
    assert call("tag", "sum", "good", "--remove").out == "runs/sum: paper-2\n"
    missing = call("tag", "sum", "good", "--remove")
    assert (missing.code, missing.out) == (2, "")
    assert "the run has no tag 'good'\n  hint: it has paper-2" in missing.err


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize("tag", ["two words", "", "-x", "a,b", "x" * 65])
def test_what_cannot_be_a_tag(call: Call, tag: str) -> None:
    result = call("tag", "sum", "--", tag)
    assert (result.code, result.out) == (2, "")
    assert "cannot be a tag" in result.err


@pytest.mark.usefixtures("trained")
def test_a_note_is_written_replaced_and_removed(call: Call) -> None:
    assert call("note", "sum").out == "runs/sum: no note\n"
    assert call("note", "sum", "first\x1b try").out == "runs/sum: first\\x1b try\n"
    assert call("note", "sum", "second try").out == "runs/sum: second try\n"
    assert call("note", "sum").out == "runs/sum: second try\n"
    assert call("note", "sum", "").out == "runs/sum: no note\n"
    assert call("note", "sum", "x" * 4001).code == 2


@pytest.mark.usefixtures("trained")
def test_they_are_shown_by_the_other_commands(call: Call) -> None:
    call("tag", "sum", "good")
    call("note", "sum", "second try")
    assert "  tags        good\n  note        second try\n" in call("show", "sum").out
    shown = json.loads(call("show", "sum", "--json").out)
    assert (shown["tags"], shown["note"]) == (["good"], "second try")
    lines = call("compare", "sum", "sum-2").out.splitlines()
    assert [line.split() for line in lines if line.startswith(("tags", "note"))] == [
        ["tags", "good"],
        ["note", "second", "try"],
    ]
    assert "tags" not in call("compare", "sum-2", "sum-2").out
    assert "good" in call("runs").out


def test_they_outlive_a_resume_and_damage_is_no_error(call: Call, trained: Path) -> None:
    call("tag", "sum", "good")
    assert call("resume", "sum", "--epochs", "5").code == 0
    assert call("tag", "sum").out == "runs/sum: good\n"
    for text in ("{", "[]", '{"tags": [1], "note": ""}', '{"tags": []}'):
        (trained / "labels.json").write_text(text)
        assert call("tag", "sum").out == "runs/sum: no tags\n"
    assert call("runs").code == 0
