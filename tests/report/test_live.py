"""The live view, on a terminal of a known size kept in memory."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from jobrun.events import BatchesDone, Event, GroupStarted, TaskProgress, Warned
from jobrun.report.live import LiveView, Screen
from jobrun.report.log_file import Prints

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def shown(*events: Event, width: int = 80) -> tuple[str, str]:
    """What was written, and its last screen without colours."""
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=True, width=width, markup=False, highlight=False, emoji=False
    )
    view = LiveView(console)
    for event in events:
        view(event)
    view.close()
    written = stream.getvalue()
    above = ("starts from the beginning", "goes on after", "warning")
    lines = ESCAPE.sub("", written.rpartition("\x1b[2K")[2]).splitlines()
    return written, "\n".join(x for x in lines if not any(a in x for a in above))


def test_the_last_state_stays(make: Any) -> None:
    written, screen = shown(
        make.started(),
        GroupStarted("epoch", 1, 2),
        BatchesDone("train", "main", 1, 2, 5),
        make.epoch(1, ("loss",), loss=0.5, **{"acc[val]": 0.25}),
        make.epoch(2, ("acc[val]",), loss=0.75, **{"acc[val]": 0.5}),
        make.saved(2, 2),
        make.ended(),
    )
    lines = [line.rstrip() for line in screen.splitlines()]
    assert lines[0].startswith("digits  epoch 2/3 ━")
    assert lines[1:] == [
        "  loss 0.75 (best 0.5, epoch 1)   acc[val] 0.5*",
        "  epochs 2/3",
        "  saved checkpoint_2 (epoch 2, 1.23 MB, 0.30 s)",
    ]
    assert written.endswith("\x1b[?25h")


def test_the_progress_inside_an_epoch_is_shown(make: Any) -> None:
    view = LiveView(Console(file=io.StringIO(), force_terminal=True, width=80))
    view(make.started())
    view(BatchesDone("train", "main", 1, 2, 5))
    view(TaskProgress("solve", "main", 1, 0.416))
    console = Console(file=io.StringIO(), width=80)
    console.print(view._render())
    assert "  train batch 2/5   solve 42%" in console.file.getvalue()  # type: ignore[attr-defined]
    view(make.epoch(1))
    assert not view._screen.fractions
    view.close()


def test_no_limit_no_bar(make: Any) -> None:
    _, screen = shown(make.started(epochs=None, epoch=4, checkpoint=4), make.epoch(5))
    assert screen.splitlines()[0].rstrip() == "digits  epoch 5"


def test_warnings_stay_above(make: Any) -> None:
    written, screen = shown(make.started(), Warned("look [bold]here"), make.ended())
    lines = ESCAPE.sub("", written).splitlines()
    assert lines.count("warning: look [bold]here") == 1
    assert lines.index("warning: look [bold]here") < len(lines) - 1
    assert screen.startswith("digits")


@pytest.mark.parametrize("name", ["[bold]", "[/x]", "acc[val]", ":smile:"])
def test_text_of_the_user_is_literal(make: Any, name: str) -> None:
    _, screen = shown(make.started(job=name), make.epoch(1, **{name: 1.0}), make.ended())
    assert screen.count(name) == 2


def test_a_narrow_terminal_cuts_and_never_wraps(make: Any) -> None:
    metrics = {f"metric_{i}": float(i) for i in range(20)}
    _, screen = shown(make.started(), make.epoch(1, **metrics), make.ended(), width=40)
    assert all(len(line) <= 40 for line in screen.splitlines())
    assert len(screen.splitlines()) == 3


class Terminal(io.StringIO):
    """A stream in memory that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_prints_appear_above_and_the_streams_are_given_back(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    console = Console(
        file=stream, force_terminal=True, width=80, markup=False, highlight=False, emoji=False
    )
    with Prints() as prints:
        assert not prints.err.stream.isatty()
        view = LiveView(console, prints)
        print("before")
        view(make.started())
        print("[bold]one")
        print("begun", end="")
        view(make.ended())
        assert prints.out.stream is stream
        print("after")
    written = ESCAPE.sub("", stream.getvalue())
    last = written.rindex("digits  epoch")
    assert written.startswith("before\n")
    assert -1 < written.index("[bold]one\n") < written.index("begun\n") < last
    assert written.endswith("after\n")


def test_time_left_is_the_mean_of_this_attempt_times_what_is_left() -> None:
    screen = Screen(epochs=10, first=2, epoch=4, loop_started=100.0, last_epoch_at=104.0)
    assert screen.left(104.0) == pytest.approx(12.0)
    assert screen.left(105.0) == pytest.approx(11.0)
    assert screen.left(999.0) == 0.0
    assert Screen(epochs=10, first=2, epoch=2).left(1.0) is None
    assert Screen(epochs=None, epoch=3).left(1.0) is None
