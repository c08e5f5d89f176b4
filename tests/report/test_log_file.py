"""``log.txt`` holds every line with its time, and what tasks print under ``--json``."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from jobrun.events import GroupFinished
from jobrun.report.log_file import LogFile, Tee

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


def test_prints_go_to_the_stream_and_by_lines_to_the_log(tmp_path: Path) -> None:
    stream = io.StringIO()
    tee = Tee(stream)
    print("before the log is open", file=tee)
    tee.log = LogFile(tmp_path / "log.txt")
    print("half a line", end="", file=tee)
    print(", and its end\nÄ \x1b[1mtwo", file=tee)
    tee.log.close()
    assert stream.getvalue() == ("before the log is open\nhalf a line, and its end\nÄ \x1b[1mtwo\n")
    assert lines_of(tmp_path / "log.txt") == ["half a line, and its end", "Ä \\x1b[1mtwo"]
    assert tee.isatty() is False
