"""Names that cannot be are said with task, blob and place, in ``init`` before the first epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STEPS = """\
from pathlib import Path

def one(): return 1
def twins(): return {"W": 1, "w": 2}
def large(): return {"W": 1}
def epoch(): Path("an epoch was run").touch()
"""


def spec(init: str, epoch: str = "", nodes: str = "") -> str:
    return f"""\
{nodes}
init:
  {init}
epoch:
  - call: "steps:epoch"
  {epoch}
stop: {{epochs: 1}}
"""


@pytest.fixture
def said(call: Callable[..., Any], folder: Path) -> Callable[[str], tuple[int, str]]:
    """The exit code of ``train`` with a spec, and the first two lines of what it says."""
    (folder / "steps.py").write_text(STEPS)

    def train(text: str) -> tuple[int, str]:
        (folder / "a.yaml").write_text(text)
        result = call("train", "a.yaml", "-q")
        start = result.err.find("a.yaml:")
        return result.code, result.err[start:].partition("\n")[0]

    return train


@pytest.mark.parametrize(
    ("tasks", "place", "text"),
    [
        (
            '- {call: "steps:twins", out: a}',
            "3:32",
            "task 'twins' of group 'init': blob 'a' persists, but cannot be saved: "
            "its keys 'W' and 'w' differ in case only",
        ),
        (
            '- {call: "steps:large", out: a}\n  - {call: "steps:one", out: a/w}',
            "4:30",
            "task 'one' of group 'init': blob 'a/w' persists, but cannot be saved: "
            "it and 'a/W' differ in case only",
        ),
        (
            '- {call: "steps:one", out: a}\n  - {call: "steps:one", out: a/b, name: second}',
            "4:30",
            "task 'second' of group 'init': blob a/b cannot be put under 'a', which is not a tree",
        ),
    ],
)
def test_in_init_before_the_first_epoch(
    tasks: str, place: str, text: str, said: Callable[[str], tuple[int, str]], folder: Path
) -> None:
    assert said(spec(tasks)) == (1, f"a.yaml:{place}: {text}")
    assert not (folder / "an epoch was run").exists()


def test_by_a_step_of_a_pipe(said: Callable[[str], tuple[int, str]], folder: Path) -> None:
    (folder / "x.csv").write_text("x\n1\n")
    step = '{call: "steps:twins", out: a}'
    pipe = f"- {{pipe: {{file: x.csv, batch: 1}}, name: p, do: [{step}]}}"
    code, text = said(spec('- {call: "steps:large", out: a}', pipe))
    assert code == 1
    assert text.startswith("a.yaml:6:78: task 'p' of group 'epoch': blob 'a' persists, but")


def test_what_is_scratch_may_hold_both(said: Callable[[str], tuple[int, str]]) -> None:
    both = '- {call: "steps:twins", out: scratch}'
    assert said(spec('- {call: "steps:one", out: w}', both))[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            spec('- {call: "steps:one", out: [Ab/w, aB/v]}'),
            "a.yaml:3:37: error: blobs 'Ab' and 'aB' differ in case only",
        ),
        (
            spec("[]", nodes="nodes: [A, b, a]"),
            "a.yaml:1:15: error: nodes 'A' and 'a' differ in case only",
        ),
        (
            spec("[]", nodes="nodes: {A: {x: 1}, a: {x: 2}}"),
            "a.yaml:1:20: error: nodes 'A' and 'a' differ in case only",
        ),
    ],
)
def test_in_the_spec(
    text: str, message: str, said: Callable[[str], tuple[int, str]], folder: Path
) -> None:
    code, found = said(text)
    assert (code, found.partition(";")[0]) == (3, message)
    assert not (folder / "runs").exists()
