"""The rows of the live view: they fit, and what matters less goes first."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_events import Make
from rich.cells import cell_len

from jobrun.core.events import BatchesDone, GroupStarted, SaveStarted, Stopping, TasksRunning
from jobrun.report.layout import ASCII, UNICODE, layout
from jobrun.report.screen import PipeProgress, Screen


def busy(name: str = "digits", **started: Any) -> Screen:
    """A screen on which everything is to be seen."""
    make, screen = Make(), Screen()
    screen.take(
        make.started(job=name, epochs=40, walltime=900.0, may_end_earlier=True, **started), 0.0
    )
    screen.take(GroupStarted("epoch", 1, 3), 0.0)
    screen.take(make.epoch(1, ("loss",), loss=0.5, **{"acc[val]": 0.25}), 10.0)
    screen.take(GroupStarted("epoch", 2, 3), 10.0)
    screen.take(make.saved(1, 1), 11.0)
    for second in range(3):
        screen.take(
            BatchesDone("train", "main", 2, 400 * second, 900, 51_200 * second), 12.0 + second
        )
    screen.take(TasksRunning("epoch", 2, (("evaluate", 4.0),), 3), 14.0)
    screen.take(SaveStarted(2, 2), 10.0)
    return screen


def texts(screen: Screen, columns: int, rows: int, glyphs: Any = UNICODE) -> list[str]:
    return [
        "".join(t for t, _ in line).rstrip() for line in layout(screen, 14.0, columns, rows, glyphs)
    ]


def test_everything_on_a_usual_terminal() -> None:
    assert texts(busy(), 80, 23) == [
        "",
        "digits  epoch 1/40  ━─────────────────────────────   3%  at most 6m26s left",
        "  train      ━━━━━━━━━━━━━━──  batch 800/900  400/s  51.2k rows/s",
        "  running    evaluate 4 s · and 2 more",
        "  metrics    loss 0.5   acc[val] 0.25",
        "  stop       epochs 1/3 · walltime 14s/15m",
        "  saved      saving checkpoint_2 4 s · checkpoint_1 (epoch 1, 1.23 MB, 0.30 s)",
    ]


def test_a_narrow_one_has_no_labels_and_no_bar() -> None:
    found = texts(busy(), 40, 9)
    assert found[1:5] == [
        "digits  epoch 1/40  at most 6m26s left",
        " train  batch 800/900  400/s  51.2k ro…",
        " evaluate 4 s · and 2 more",
        " loss 0.5   acc[val] 0.25",
    ]


def test_what_matters_less_goes_first() -> None:
    kept = [set(texts(busy(), 80, rows)) for rows in range(1, 10)]
    assert all(few <= more for few, more in pairwise(kept))
    heads = [[line.split()[0] for line in texts(busy(), 80, rows) if line] for rows in (1, 2, 3, 4)]
    assert heads == [
        ["digits"],
        ["digits", "metrics"],
        ["digits", "train", "metrics"],
        ["digits", "train", "running", "metrics"],
    ]


def test_progress_bars_of_tasks_are_rows() -> None:
    bars = [f"bar {n}:  50%|##\t|" for n in range(6)]
    found = ["".join(t for t, _ in line) for line in layout(busy(), 14.0, 40, 23, ASCII, bars)]
    assert [line for line in found if line.startswith("bar")] == [
        f"bar {n}:  50%|## |" for n in range(2, 6)
    ]
    assert len(layout(busy(), 14.0, 40, 4, ASCII, bars)) == 4


def test_ascii_alone() -> None:
    assert "\n".join(texts(busy(), 40, 20, ASCII)).isascii()
    assert "\n".join(texts(busy(), 80, 20, ASCII)).isascii()


def test_a_stop_is_said_instead_of_the_bar() -> None:
    screen = busy()
    screen.take(Stopping("SIGINT"), 14.0)
    assert texts(screen, 80, 20)[1].startswith("digits  epoch 1/40  SIGINT: stopping")


@settings(max_examples=60, deadline=None)
@given(
    st.text(min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(1, 40),
    st.sampled_from([UNICODE, ASCII]),
)
def test_it_fits_whatever_the_names_are(name: str, columns: int, rows: int, glyphs: Any) -> None:
    screen = busy(name)
    screen.take(BatchesDone(name, name, 2, 5, None), 14.0)
    screen.take(Make().epoch(2, **{name: 1.0}), 14.0)
    lines = layout(screen, 14.0, columns, rows, glyphs)
    assert 1 <= len(lines) <= rows
    for line in lines:
        text = "".join(t for t, _ in line)
        assert cell_len(text) <= max(columns - 1, 1)
        assert not {"\n", "\r", "\t", "\x1b"} & set(text)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.123, "0.12/s"), (5.0, "5/s"), (99.4, "99/s"), (1240.0, "1240/s"), (51_200.0, "51.2k/s")],
)
def test_rates(rate: float, text: str) -> None:
    screen = Screen()
    pipe = PipeProgress(1, 10)
    pipe.moments.extend([(0.0, 0, 0), (1000.0, round(rate * 1000), 0)])
    screen.pipes["t", "main"] = pipe
    assert any(text in line for line in texts(screen, 80, 20))
