"""Progress for runs that a script or a notebook starts."""

from __future__ import annotations

import json
import re
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest
from screens import Terminal

import jobrun
from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.core.events import Event
from jobrun.errors import BindError, TaskError
from jobrun.report.notebook import Cell, in_notebook


def make_total() -> int:
    return 0


def add_one(total: int) -> int:
    print("adding to", total)
    return total + 1


def fails(total: int) -> int:
    raise ValueError("no")


def interrupts(total: int) -> int:
    raise KeyboardInterrupt


def a_job(step: Any = add_one) -> Job:
    with Job("sum") as job:
        with job.init:
            Task(make_total, out="total")
        with job.epoch:
            Task(step, in_="total", out="total")
        job.stop(epochs=2)
    return job


def test_lines_files_and_reporters(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[Event] = []
    where = tmp_path / "run"
    told = [seen.append, f"lines:{tmp_path / 'said.txt'}"]
    report = jobrun.progress_report(reporters=told)
    before = sys.stdout, sys.stderr
    JobRunner(a_job(), CheckpointManager(where), report=report).train(LocalSession(1))
    assert (sys.stdout, sys.stderr) == before
    out, err = capfd.readouterr()
    assert out == "adding to 0\nadding to 1\n"
    lines = err.splitlines()
    assert lines[0] == f"sum in {where}: starts from the beginning"
    assert [line[:9] for line in lines[1:3]] == ["epoch 1/2", "epoch 2/2"]
    assert lines[3] == "run: finished after 2 epochs: 2 epochs done"
    assert "jobrun" not in err.partition("run: finished")[2]
    assert {p.name for p in where.iterdir()} >= {"events.jsonl", "log.txt", "metrics.csv"}
    assert "[add_one, epoch 2] adding to 1\n" in (where / "log.txt").read_text()
    assert (tmp_path / "said.txt").read_text().splitlines() == lines[:3]
    assert type(seen[0]).__name__ == "RunStarted"
    # The same report serves the next run, which has nothing to do.
    JobRunner(a_job(), CheckpointManager(where), report=report).train(LocalSession(1))
    assert "nothing is left to do" in capfd.readouterr().err


def test_without_a_manager_there_are_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    JobRunner(a_job(), report=jobrun.progress_report("none")).train(LocalSession(1))
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    JobRunner(a_job(), report=jobrun.progress_report("json")).train(LocalSession(1))
    events = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert (events[0], events[-1]) == ("RunStarted", "RunEnded")


def test_live_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    JobRunner(a_job(), report=jobrun.progress_report()).train(LocalSession(1))
    screen = terminal.screen
    assert screen[0] == "sum: starts from the beginning"
    assert screen[1:3] == ["adding to 0", "adding to 1"]
    assert screen[3].startswith("epoch 2/2")
    assert screen[4] == "sum: finished after 2 epochs: 2 epochs done"
    assert not terminal.cursor_hidden


@pytest.mark.parametrize(("step", "kind"), [(fails, TaskError), (interrupts, TaskError)])
def test_streams_are_given_back_however_it_ends(step: Any, kind: Any) -> None:
    before = sys.stdout, sys.stderr
    with pytest.raises(kind):
        JobRunner(a_job(step), report=jobrun.progress_report()).train(LocalSession(1))
    assert (sys.stdout, sys.stderr) == before


def test_an_interrupt_of_the_caller_ends_the_view(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Any, *arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("jobrun.session.scheduler.Scheduler.run", interrupted)
    before = sys.stdout, sys.stderr
    runner = JobRunner(a_job(), report=jobrun.progress_report())
    with pytest.raises(KeyboardInterrupt):
        runner.train(LocalSession(1))
    assert (sys.stdout, sys.stderr) == before
    assert runner.outcome is not None
    assert (runner.outcome.outcome, runner.outcome.exit_code) == ("interrupted", 130)
    assert "sum: interrupted after 0 epochs: KeyboardInterrupt" in capfd.readouterr().err


def test_what_cannot_be_is_said_at_once() -> None:
    with pytest.raises(
        ValueError, match="how: expected one of auto, live, lines, json, none, got 'x'"
    ):
        jobrun.progress_report("x")
    with pytest.raises(BindError, match="no reporter 'zzz'"):
        jobrun.progress_report(reporters=["zzz"])


class ZMQInteractiveShell:
    """What IPython has in a kernel."""


def test_a_notebook(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    shown: list[tuple[str, dict[str, str]]] = []
    display = types.ModuleType("IPython.display")
    display.display = lambda data, raw, display_id: shown.append((display_id, data))  # type: ignore[attr-defined]
    display.update_display = display.display  # type: ignore[attr-defined]
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert in_notebook()
    JobRunner(a_job(), report=jobrun.progress_report()).train(LocalSession(1))
    out, err = capfd.readouterr()
    assert out.startswith("adding to 0\nadding to 1\nsum: finished after 2 epochs")
    assert err == ""
    assert len({id for id, _ in shown}) == 1
    last = shown[-1][1]["text/plain"].splitlines()
    assert last[0] == "sum: starts from the beginning"
    assert last[1].startswith("epoch 2/2")
    assert len(last) == 2
    cell = Cell()
    cell.paint([], [(("<b>&", "bold"), (" [x]", ""))])
    assert "<span style=" in shown[-1][1]["text/html"]
    assert "&lt;b&gt;&amp;</span> [x]" in shown[-1][1]["text/html"]


def test_two_runs_in_two_threads_each_log_their_own_prints(tmp_path: Path) -> None:
    """Both logged those of both, lost some once the first had ended, and stdout stayed replaced."""
    before = sys.stdout, sys.stderr
    both, first_over = threading.Barrier(2), threading.Event()

    def train(name: str) -> None:
        def step(n: int) -> int:
            both.wait(60)
            print(f"stdout of {name}")
            both.wait(60)
            return n + 1

        def later(n: int) -> None:
            if name == "b":
                first_over.wait(60)
                print("stderr of b", file=sys.stderr)

        with Job(name) as job:
            with job.init:
                Task(lambda: 0, out="n", name="start")
            with job.epoch:
                Task(step, "n", out="n")
            with job.exit:
                Task(later, "n")
            job.stop(epochs=1)
        JobRunner(
            job, CheckpointManager(tmp_path / name), report=jobrun.progress_report("none")
        ).train()
        if name == "a":
            first_over.set()

    threads = [threading.Thread(target=train, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sys.stdout, sys.stderr) == before
    found = {
        name: re.findall(r"std\w+ of .", (tmp_path / name / "log.txt").read_text()) for name in "ab"
    }
    assert found == {"a": ["stdout of a"], "b": ["stdout of b", "stderr of b"]}
