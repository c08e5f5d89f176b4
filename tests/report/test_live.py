"""The live view, on a terminal kept in memory."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import Any

import pytest
from screens import Terminal

from jobrun.core.events import BatchesDone, Event, GroupStarted, Warned
from jobrun.report.live import LiveView
from jobrun.report.log_file import Prints
from jobrun.report.terminal import Painter


class Driven:
    """A view whose clock and paintings are the test's: its own thread never gets to paint."""

    def __init__(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jobrun.report.live._SECONDS", 3600.0)
        self.terminal = terminal
        self.now = 0.0
        self.view = LiveView(Painter(terminal, False, terminal.size), clock=lambda: self.now)

    def __call__(self, *events: Event, seconds: float = 1.0) -> None:
        for event in events:
            self.view(event)
            self.now += seconds
        self.view.draw()


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *size: Driven(Terminal(*size), monkeypatch)


def test_what_a_run_shows_and_what_stays_of_it(make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run(make.started(), GroupStarted("epoch", 1, 2), BatchesDone("train", "main", 1, 2, 5, 128))
    run(make.epoch(1, ("loss",), loss=0.5, **{"acc[val]": 0.25}), GroupStarted("epoch", 2, 2))
    run(make.epoch(2, ("acc[val]",), loss=0.75, **{"acc[val]": 0.5}), make.saved(2, 2))
    assert run.terminal.screen == [
        "digits: starts from the beginning",
        "epoch 1/3  loss 0.5*  acc[val] 0.25  0.25 s",
        "epoch 2/3  loss 0.75  acc[val] 0.5*  0.25 s",
        "",
        "digits  epoch 2/3  ━━━━━━━━━━━━━━━━━━━━──────────  67%  0 s left",
        "  train      ────────────────  batch 0/5",
        "  metrics    loss 0.75 ▲ best 0.5 (epoch 1)   acc[val] 0.5",
        "  stop       epochs 2/3",
        "  saved      checkpoint_2 (epoch 2, 1.23 MB, 0.30 s)",
    ]
    assert run.terminal.cursor_hidden
    run.view(make.ended())
    assert run.terminal.screen == [
        "digits: starts from the beginning",
        "epoch 1/3  loss 0.5*  acc[val] 0.25  0.25 s",
        "epoch 2/3  loss 0.75  acc[val] 0.5*  0.25 s",
    ]
    assert not run.terminal.cursor_hidden


def test_one_thread_paints_and_ends_with_the_run(make: Any) -> None:
    terminal = Terminal()
    before = set(threading.enumerate())
    view = LiveView(Painter(terminal, True, terminal.size))
    view(make.started())
    deadline = time.monotonic() + 120
    while "digits  " not in "\n".join(terminal.screen) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "digits  " in "\n".join(terminal.screen)
    assert [t.name for t in set(threading.enumerate()) - before] == ["jobrun-view"]
    view(make.ended())
    assert set(threading.enumerate()) <= before
    view(make.started(job="again"))  # it may show another run
    view.draw()
    assert any(line.startswith("again  ") for line in terminal.screen)
    view(make.ended())


def epoch_lines(run: Driven) -> list[str]:
    return [line for line in run.terminal.history if line.startswith("epoch ")]


def test_fast_epochs_leave_one_line_a_second_and_the_last_one(make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run(make.started(epochs=None))
    for number in range(1, 9):
        run(make.epoch(number), seconds=0.3)
    assert epoch_lines(run) == [f"epoch {n}  0.25 s" for n in (1, 5)]
    run.view(make.ended())
    assert epoch_lines(run) == [f"epoch {n}  0.25 s" for n in (1, 5, 8)]


def test_epochs_leave_no_lines_where_they_would_only_scroll_away(make: Any, driven: Any) -> None:
    run = driven(80, 5)
    run(make.started(), BatchesDone("train", "main", 1, 2, 5))
    for number in range(1, 9):
        run(make.epoch(number, loss=0.5))
    assert epoch_lines(run) == []
    run.view(make.ended())
    assert epoch_lines(run) == ["epoch 8/3  loss 0.5  0.25 s"]


def test_events_alone_paint_nothing(make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run.view(make.started())
    before = run.terminal.writes
    for number in range(1, 1000):
        run.view(make.epoch(number))
    assert run.terminal.writes == before


def test_what_has_not_changed_is_not_painted_again(make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run(make.started(), make.epoch(1))
    before = run.terminal.writes
    run.view.draw()
    assert run.terminal.writes == before


def test_warnings_and_prints_stand_above_in_order(make: Any, driven: Any) -> None:
    run = driven(60, 8)
    run(make.started())
    for number in range(40):
        run(Warned(f"[bold]number {number}"))
    warnings = [line for line in run.terminal.history if line.startswith("warning")]
    assert warnings == [f"warning: [bold]number {n}" for n in range(40)]
    run.view(make.ended())
    assert len([line for line in run.terminal.history if line]) == 41


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (20, 5), (8, 2), (1, 1)])
def test_it_fits_every_terminal(size: tuple[int, int], make: Any, driven: Any) -> None:
    run = driven(*size)
    run(make.started(), GroupStarted("epoch", 1, 2), BatchesDone("train", "main", 1, 2, 5))
    before = len(run.terminal.history)
    metrics = {f"metric_{i}": float(i) for i in range(20)}
    for number in range(1, 20):
        run(make.epoch(number, **metrics), make.saved(number, number), seconds=0.01)
    # Nothing was scrolled away by painting the same lines again and again.
    assert len(run.terminal.history) <= max(before, size[1]) + 8


def test_a_resize_leaves_no_rests(make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run(make.started(), make.epoch(1, loss=0.5, **{"acc[val]": 0.25}), make.saved(1, 1))
    for columns, rows in ((40, 10), (100, 30), (20, 24), (80, 24)):
        run.terminal.resize(columns, rows)
        run(make.epoch(2, loss=0.5))
        heads = [line for line in run.terminal.screen if line.startswith("digits  e")]
        assert len(heads) == 1, (columns, rows)
    run.view(make.ended())
    assert [line for line in run.terminal.screen if line][-1] == "epoch 2/3  loss 0.5  0.25 s"


@pytest.mark.parametrize("name", ["[bold]", "[/x]", "acc[val]", ":smile:", "a\x1b[31mb"])
def test_text_of_the_user_is_literal(name: str, make: Any, driven: Any) -> None:
    run = driven(80, 24)
    run(make.started(job=name), make.epoch(1, **{name: 1.0}), BatchesDone(name, "main", 2, 1, 2))
    text = "\n".join(run.terminal.screen)
    assert text.count(name.replace("\x1b", "\\x1b")) == 4  # started, head, pipe, metric


def capture(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(60, 20)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("jobrun.report.live._SECONDS", 3600.0)
    return terminal


def test_prints_and_logging_appear_above_and_the_streams_are_given_back(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = capture(monkeypatch)
    handler = logging.StreamHandler(captured)
    logger = logging.getLogger("test_live")
    logger.propagate = False
    logger.addHandler(handler)
    with Prints() as prints:
        view = LiveView(Painter(captured, False, captured.size), prints)
        print("before")
        view(make.started())
        print("[bold]one")
        print("10%\r100%\x1b[2J \x1b[1mthick\x1b[0m", file=sys.stderr)
        logger.warning("logged")
        print("begun", end="")
        view.draw()
        assert captured.screen[:5] == [
            *("before", "digits: starts from the beginning", "[bold]one", "100% thick", "logged"),
        ]
        view(make.ended())
        assert prints.out.stream is captured
        print("after")
    assert handler.stream is captured
    logger.removeHandler(handler)
    assert captured.screen[-3:] == ["logged", "begun", "after"]


def test_prints_of_many_threads_stay_whole(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = capture(monkeypatch)
    with Prints() as prints:
        view = LiveView(Painter(captured, False, captured.size), prints)
        view(make.started())

        def say(name: str) -> None:
            for number in range(100):
                print(name, number, name)

        threads = [threading.Thread(target=say, args=(n,)) for n in "abc"]
        for thread in threads:
            thread.start()
        while any(t.is_alive() for t in threads):
            view.draw()
        view(make.ended())
    lines = captured.history
    for name in "abc":
        own = [line for line in lines if line.startswith(f"{name} ")]
        assert own == [f"{name} {i} {name}" for i in range(100)]


def test_a_forked_child_prints_by_itself(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    captured = capture(monkeypatch)
    with Prints() as prints:
        view = LiveView(Painter(captured, False, captured.size), prints)
        view(make.started())
        lines = prints.out.stream
        before = os.getpid()
        lines._process = before + 1  # type: ignore[attr-defined]
        lines.write("of a child\n")
        assert captured.getvalue().endswith("of a child\n")
        lines._process = before  # type: ignore[attr-defined]
        view(make.ended())


def test_a_terminal_that_has_gone_hurts_nobody(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    view = LiveView(Painter(terminal, False, terminal.size))
    view(make.started())

    def gone(text: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(terminal, "write", gone)
    view.draw()
    view(make.epoch(1))
    view.draw()
    view(make.ended())


def test_progress_bars_of_tasks_are_rows_of_the_view_until_they_end(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = capture(monkeypatch)
    with Prints() as prints:
        view = LiveView(Painter(captured, False, captured.size), prints)
        view(make.started())
        print("before")
        for state in ("  0%|     |", " 50%|##   |"):
            sys.stderr.write(f"\rfit:{state}")  # as tqdm does
            view.draw()
            assert captured.screen[:3] == ["digits: starts from the beginning", "before", ""]
            assert captured.screen[3].startswith("digits  starting")
            assert captured.screen[4] == f"fit:{state}"
        sys.stderr.write("\rfit: 100%|#####|")
        sys.stderr.write("\n")
        view(make.epoch(1, loss=0.5))
        view(Warned("after"))
        view.draw()
        assert captured.screen[1:4] == ["before", "fit: 100%|#####|", "warning: after"]
        view(make.ended())
    assert captured.history.count("fit: 100%|#####|") == 1


def test_tabs_leave_nothing_of_the_view_between_columns(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = capture(monkeypatch)
    with Prints() as prints:
        view = LiveView(Painter(captured, False, captured.size), prints)
        view(make.started(job="a_name_of_some_length"))
        view.draw()
        print("a\tb\t\x1b[1mc\x1b[0m\td")
        view(Warned("x\ty"))
        view.draw()
        view(make.ended())
    assert captured.screen[1:3] == ["a       b       c       d", "warning: x      y"]
