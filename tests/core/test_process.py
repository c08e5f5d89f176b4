"""Programs run to their end, or are ended: nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from engine import within
from process_ends import has_ended

from jobrun.core.process import ChildOutput, Ended, run_process


def run(
    script: str,
    tmp_path: Path,
    stop: Callable[[], bool] = lambda: False,
    timeout: float | None = None,
) -> tuple[Ended, list[str]]:
    lines: list[str] = []
    words = ["bash", "-c", script]
    ended = within(
        30, lambda: run_process(words, tmp_path, dict(os.environ), lines.append, stop, timeout)
    )
    return ended, lines


def test_lines_of_both_streams_come_in_order(tmp_path: Path) -> None:
    ended, lines = run("echo a; echo b >&2; printf 'c\\r\\nd'; printf '\\xff\\n'; exit 3", tmp_path)
    assert (ended, str(ended)) == (Ended(3), "ended with exit code 3")
    assert lines == ["a", "b", "c", "d\ufffd"]


def test_a_line_that_was_begun_is_a_line(tmp_path: Path) -> None:
    assert run("printf 'no end'", tmp_path) == (Ended(0), ["no end"])
    assert run("true", tmp_path) == (Ended(0), [])


def test_much_output_is_not_lost(tmp_path: Path) -> None:
    ended, lines = run("seq 200000", tmp_path)
    assert ended.code == 0
    assert lines == [str(i) for i in range(1, 200001)]


def test_it_runs_in_its_folder_with_its_environment_and_without_input(tmp_path: Path) -> None:
    assert run("pwd; cat; echo $HOME", tmp_path)[1] == [str(tmp_path), os.environ["HOME"]]


def test_a_program_that_is_killed_says_by_what(tmp_path: Path) -> None:
    ended, _ = run("kill -SEGV $$", tmp_path)
    assert str(ended) == "was killed by SIGSEGV"


def test_a_program_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run_process(["./nothing"], tmp_path, {}, print, lambda: False)


TREE = """
trap '' TERM
(trap '' TERM; echo $BASHPID; while :; do sleep 0.01; done) &
echo $$
while :; do sleep 0.01; done
"""


@pytest.mark.parametrize("why", ["timeout", "stopped"])
def test_it_is_ended_with_its_children_which_ignore_sigterm(tmp_path: Path, why: str) -> None:
    lines: list[str] = []
    ended = within(
        30,
        lambda: run_process(
            ["bash", "-c", TREE],
            tmp_path,
            dict(os.environ),
            lines.append,
            lambda: why == "stopped" and len(lines) == 2,
            1.0 if why == "timeout" else None,
        ),
    )
    assert ended == Ended(-9, why)
    assert len(lines) == 2
    assert all(has_ended(int(pid)) for pid in lines)


def test_it_may_clean_up_before_it_ends(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done"
    lines: list[str] = []
    ended = within(
        30,
        lambda: run_process(
            ["bash", "-c", script], tmp_path, dict(os.environ), lines.append, lambda: bool(lines)
        ),
    )
    assert ended == Ended(7, "stopped")
    assert (lines[0], lines[-1]) == ("up", "bye")  # bash may tell of its sleep in between


def test_what_it_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    ended, lines = run("sleep 1000 & echo $!", tmp_path)
    assert ended == Ended(0)
    assert has_ended(int(lines[0]))


def test_a_program_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    ended, lines = run("exec >&- 2>&-; sleep 0.2; exit 4", tmp_path)
    assert (ended, lines) == (Ended(4), [])


def test_a_process_that_left_the_group_and_holds_the_output_is_not_waited_for(
    tmp_path: Path,
) -> None:
    ended, lines = run("setsid sleep 30 & echo started", tmp_path)
    assert (ended, lines) == (Ended(0), ["started"])


def test_programs_end_when_this_process_does(tmp_path: Path) -> None:
    """Also where it ends while a thread is in the middle of running one."""
    code = f"""
import os, sys, threading, time
from pathlib import Path
from jobrun.core.process import run_process
started = threading.Event()
def keep(line):
    print(line, flush=True)
    started.set()
words = ["bash", "-c", "echo $$; sleep 1000"]
args = (words, Path({str(tmp_path)!r}), dict(os.environ), keep, lambda: False)
threading.Thread(target=run_process, args=args, daemon=True).start()
started.wait(20)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert has_ended(int(done.stdout))


def test_the_output_of_a_process_that_was_left_behind_is_not_awaited() -> None:
    """Though it writes for ever; what the child itself wrote is passed on."""
    lines: list[str] = []
    process = subprocess.Popen(
        ["bash", "-c", "echo first; yes &"], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        process.wait(30)
        within(30, ChildOutput(process.stdout, lines.append).close)
        assert lines[0] == "first"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
