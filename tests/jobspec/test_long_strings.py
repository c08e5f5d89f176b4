"""Long strings of a spec that someone else wrote: each is looked at in steps that grow with it.

Each of these took minutes before, or hours.  Nothing is timed here: the tests end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import warnings
from jobrun.errors import SpecError
from jobrun.jobspec.validate import validate_spec

LONG = 400_000
VARS = "vars: {x: 1}\n"
TASKS = "init: [{call: m:f, out: a}]\nepoch: [{call: m:g, in: {a}, out: a}]\n"
STOP = "stop: {epochs: 2}\n"


def messages(folder: Path, text: str) -> list[str]:
    """The problems of a spec, or its warnings if it is valid."""
    path = folder / "a.yaml"
    path.write_text(text)
    try:
        found = list(warnings(JobAnalysis(validate_spec(path))))
    except SpecError as error:
        found = list(error.problems)
    return [problem.message[:200] for problem in found]


def test_a_string_like_a_tuple(tmp_path: Path) -> None:
    spec = f"vars:\n  x: ({',' * LONG}\n" + TASKS + STOP
    assert messages(tmp_path, spec) == []


def test_a_string_like_a_number(tmp_path: Path) -> None:
    (found,) = messages(tmp_path, f"{TASKS}stop: {{epochs: '{'1' * LONG}x'}}\n")
    assert "there is no var '1111" in found


@pytest.mark.parametrize(
    "line",
    [
        "call:a" + " " * LONG + "!",
        "a: }" + "{" * LONG,
        "a: " + "[" * LONG,
        "a: {b: }: " + '\\"' * LONG,
    ],
    ids=["spaces", "braces", "brackets", "quotes"],
)
def test_a_line_that_is_not_yaml(tmp_path: Path, line: str) -> None:
    assert messages(tmp_path, f"{line}\n{TASKS}{STOP}")


@pytest.mark.parametrize(
    "key",
    [
        "checkpoint: {{include: ['{}']}}",
        "checkpoint: {{compress: {{'{}': zstd}}}}",
        "nodes: [n]\ndownload: [{{call: m:f, node: '{}'}}]",
        "nodes: [n]\ndownload: [{{call: m:f, node: n, in: ['{}:a']}}]",
    ],
    ids=["include", "compress", "node", "blob"],
)
def test_a_pattern(tmp_path: Path, key: str) -> None:
    found = messages(tmp_path, f"{TASKS}{STOP}{key.format('[a' * 400)}\n")
    assert any("a pattern of more than 500 characters" in message for message in found)
    assert not any("500" in m for m in messages(tmp_path, f"{TASKS}{STOP}{key.format('[a' * 250)}"))
