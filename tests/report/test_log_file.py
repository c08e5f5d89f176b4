"""``log.txt`` holds every line with its time, and what tasks print."""

from __future__ import annotations

import io
import logging
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from full_disk import FullDisk

from jobrun.core.events import GroupFinished
from jobrun.report.log_file import LogFile, Prints, Tee

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ")


def lines_of(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(TIME.match(line) for line in lines)
    return [line[21:] for line in lines]


def test_every_attempt_is_logged_with_times(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "log.txt"
    for _ in range(2):
        log = LogFile(path)
        for event in (make.started(), GroupFinished("init", 0, 1, 0.1), make.ended()):
            log(event)
        log.close()
    one = [
        "digits: starts from the beginning",
        "init: 1 task in 0.10 s",
        "finished: 3 epochs done (exit code 0)",
    ]
    assert lines_of(path) == one + one


def test_prints_go_on_and_by_lines_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Prints() as prints:
        print("before the log is open")
        prints.log = LogFile(tmp_path / "log.txt")
        print("half a line", end="")
        print(", and its end\nÄ \x1b[1mtwo\x1b[0m \x1b[2J")
        logging.warning("to stderr")
        sys.stderr.writelines(["a\n", "b\n"])
        print("10%\r20%", end="", file=sys.stderr)
        print("\r30%\r\nan end that never came", end="", file=sys.stderr)
        log = prints.log
        prints.end()
        print("after")
    log.close()
    out, err = capsys.readouterr()
    assert out == (
        "before the log is open\nhalf a line, and its end\nÄ \x1b[1mtwo\x1b[0m \x1b[2J\nafter\n"
    )
    assert err.endswith("a\nb\n10%\r20%\r30%\r\nan end that never came")
    lines = lines_of(tmp_path / "log.txt")
    lines = [line for line in lines if "to stderr" not in line]  # pytest may handle that one
    assert lines == [
        *("half a line, and its end", "Ä two \\x1b[2J"),
        *("a", "b", "30%", "an end that never came"),
    ]


def test_stdout_and_stderr_are_what_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with Prints() as prints:
        assert (sys.stdout, sys.stderr) == (prints.out, prints.err)
        assert sys.stdout.isatty() is False
        assert sys.stdout.encoding == before[0].encoding
    assert (sys.stdout, sys.stderr) == before


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.txt")
    tee = Tee(shown := io.StringIO(), log.write_lines)

    def write(name: str) -> None:
        for number in range(200):
            print(name, number, name, file=tee)
            time.sleep(0)  # to another one

    threads = [threading.Thread(target=write, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    lines = lines_of(tmp_path / "log.txt")
    assert sorted(lines) == sorted(f"{n} {i} {n}" for n in "abc" for i in range(200))
    assert sorted(shown.getvalue().splitlines()) == sorted(lines)


@pytest.mark.parametrize(
    ("texts", "at_once"),
    [
        (["a", "b\nc"], ["", "ab\n"]),
        (["a", None, "b"], ["", "a", "a"]),
        (["10%\r", "20%"], ["10%\r", "10%\r"]),
        (["x", "\r 20%", "\n"], ["", "x\r 20%", "x\r 20%\n"]),
        (["y" * 70_000], ["y" * 70_000]),
    ],
)
def test_what_is_shown_at_once_is_what_a_terminal_would_show(
    texts: list[str | None], at_once: list[str]
) -> None:
    """None is a flush."""
    tee = Tee(shown := io.StringIO(), lambda *_: None)
    for text, expected in zip(texts, at_once, strict=True):
        if text is None:
            tee.flush()
        else:
            tee.write(text)
        assert shown.getvalue() == expected
    tee.end()
    assert shown.getvalue() == "".join(text or "" for text in texts)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_prints_whatever_other_threads_held(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log.txt")
    with (tmp_path / "out").open("w") as out, (tmp_path / "out").open() as shown:
        tee = Tee(out, log.write_lines)
        print("begun by the parent", end="", file=tee)
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with tee._lock, log._lock:
                held.set()
                done.wait(30)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(30)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            print("by the child", file=tee, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        done.set()
        thread.join()
        print(file=tee, flush=True)
        assert shown.read() == "by the child\nbegun by the parent\n"
    log.close()
    assert lines_of(tmp_path / "log.txt") == ["by the child", "begun by the parent"]


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError

    flush = write  # type: ignore[assignment]


def test_a_reader_that_has_gone_does_not_hurt_who_prints() -> None:
    kept: list[str] = []
    tee = Tee(Broken(), lambda lines, doing=None: kept.extend(lines))
    print("one", file=tee, flush=True)
    print("two", file=tee)
    assert kept == ["one", "two"]


def test_a_log_that_cannot_be_written_does_not_hurt_who_prints_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = FullDisk(monkeypatch)
    with Prints() as prints:
        prints.log = LogFile(tmp_path / "log.txt")
        print("one")
        disk.room = 10
        print("two")
        print("three")
        disk.room = None
        print("four")
        prints.end()
    assert capsys.readouterr().out == "one\ntwo\nthree\nfour\n"
    assert lines_of(tmp_path / "log.txt") == [
        "one", "(2 lines could not be written here)", "four",
    ]  # fmt: skip


def test_of_progress_bars_the_last_state_is_logged_and_one_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """Two nested bars, as tqdm writes them: 100 states in 150 seconds."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Prints() as prints:
        log = prints.log = LogFile(tmp_path / "log.txt", None, prints.keep_ended)
        print("before", file=sys.stderr)
        for n in range(100):
            now += 1.5
            for text in (f"\rout: {n}%", "\n", f"\rin: {n % 10}", "\x1b[A"):
                sys.stderr.write(text)
        for text in ("\n", "\rin: 10", "\n", "\x1b[A\x1b[A", "\rout: 100%", "\n\n"):
            sys.stderr.write(text)
        log(make.epoch(1))
        print("after", file=sys.stderr)
        prints.end()
    log.close()
    lines = lines_of(tmp_path / "log.txt")
    assert lines[:5] == ["before", "out: 40%", "in: 9", "out: 80%", "in: 9"]
    assert lines[5:7] == ["out: 100%", "in: 10"]
    assert lines[7].startswith("epoch 1")
    assert lines[8:] == ["after"]


def test_of_a_bar_below_those_of_another_task_one_line_is_logged(tmp_path: Path) -> None:
    """As tqdm writes it: the cursor goes down to the bar of this task and up again."""
    log = LogFile(tmp_path / "log.txt")
    tee = Tee(io.StringIO(), log.write_lines)
    for n in range(4):
        for text in ("\n", f"\rtwo: {25 * n}%", "\x1b[A"):
            tee.write(text)
    print("printed", file=tee)
    for text in ("\n", "\rtwo: 100%", "\x1b[A", "\rtwo: 100%", "\n"):
        tee.write(text)
    print("\nafter an empty line", file=tee)
    print(file=tee)
    print(file=tee)
    tee.end()
    log.close()
    assert lines_of(tmp_path / "log.txt") == [
        *("printed", "two: 100%", "", "after an empty line", "", ""),
    ]


def test_a_bar_that_a_thread_of_its_library_refreshes_is_one_line_of_its_task(
    tmp_path: Path, current: Any
) -> None:
    log = LogFile(tmp_path / "log.txt")
    tee = Tee(io.StringIO(), log.write_lines)
    with current("fit"):
        tee.write("\rfit:   0%")
        for texts in (["\rfit:  50%"], ["\n", "\rbelow: 50%", "\x1b[A"]):
            refresh = threading.Thread(target=tee.writelines, args=[texts])
            refresh.start()
            refresh.join()
        tee.write("\rfit: 100%\n")
        print("after", file=tee)
    tee.end()
    log.close()
    assert lines_of(tmp_path / "log.txt") == [
        *("[fit, epoch 1] fit: 100%", "[fit, epoch 1] after"),
    ]
