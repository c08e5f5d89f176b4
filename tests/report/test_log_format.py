"""A line of the log can be taken apart again, whatever the names and texts are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobrun.report.log_format import LogLine, attempt_stamp, escaped, parse, stamp
from jobrun.report.log_reader import last_lines

TIME = "2026-11-28T10:00:00Z"
NAMES = st.text(min_size=1).filter(lambda name: "\n" not in name) | st.sampled_from(
    ["train", "my task [x]", "a, epoch 3] b", '"quoted"', "\\", "attempt", "é", "a on b"]
)
TEXTS = st.text(alphabet=st.characters(exclude_characters="\n")) | st.sampled_from(
    ["", "[train, epoch 3] x", "[attempt 2] x", "[] x", " x "]
)


@dataclass
class Task:
    group: str
    epoch: int
    task: str
    node: str


@settings(max_examples=200, deadline=None)
@given(NAMES, NAMES, st.sampled_from(["setup", "epoch", "exit"]), st.integers(0, 10**6), TEXTS)
def test_a_line_of_a_task(task: str, node: str, group: str, epoch: int, text: str) -> None:
    line = f"{TIME} {stamp(Task(group, epoch, task, node))}{text}"
    assert parse(line) == LogLine(
        TIME,
        text,
        task,
        None if node == "main" else node,
        group,
        epoch if group == "epoch" else None,
    )


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.integers(1, 10**6))
def test_a_line_of_our_own(text: str, attempt: int) -> None:
    assert parse(f"{TIME} {escaped(text)}") == LogLine(TIME, text)
    assert parse(f"{TIME} {attempt_stamp(attempt)}{text}") == LogLine(TIME, text, attempt=attempt)


def test_how_it_looks() -> None:
    assert stamp(Task("epoch", 3, "train", "main")) == "[train, epoch 3] "
    assert stamp(Task("setup", 0, "load", "main")) == "[load, setup] "
    assert stamp(Task("epoch", 3, "my [x]", "a_1")) == '["my [x]" on a_1, epoch 3] '


@pytest.mark.parametrize("line", ["", "2026-11-28T10:00", "torn", " x", "2026-11-28 10:00:00Z x"])
def test_a_torn_line_is_none(line: str) -> None:
    assert parse(line) is None


def test_the_last_lines_of_a_log_and_how_many_are_before(tmp_path: Path) -> None:
    lines = [f"2026-11-28T10:00:{n:02}Z epoch {n}" for n in range(20)]
    path = tmp_path / "log.txt"
    path.write_text("".join(f"{line}\n" for line in lines[:19]) + "torn\n" + lines[19] + "\n")
    assert last_lines(path, 3) == ([lines[18], lines[19]], 18)
    assert last_lines(path, 50) == (lines, 0)
