"""Progress as JSON: every line is an object, also where tasks print."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from jobrun.core.current_task import enter
from jobrun.report.json_lines import JsonLines
from jobrun.report.log_file import Prints


class Runs:
    """Runs one task."""

    group, epoch, task, node = "epoch", 3, "my [task]", "main"

    def running(self, number: int) -> Runs:
        return self


def test_events_and_prints_are_lines_of_json(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with Prints() as prints:
        reporter = JsonLines(prints.err.stream, prints.err)
        reporter(make.started())
        print("50%\r100% \x1b[1mdone\x1b[0m", file=sys.stderr)
        enter((Runs(), 0))
        print("é", file=sys.stderr)
        print("begun", end="", file=sys.stderr)
        reporter(make.epoch(1, loss=float("nan")))
        enter(None)
        reporter.close()
        assert prints.err.stream is stream
    assert stream.getvalue().isascii()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == [
        *("RunStarted", "Printed", "Printed", "EpochFinished", "Printed"),
    ]
    assert all(line["time"].endswith("Z") for line in lines)
    assert (lines[1]["text"], lines[1]["task"]) == ("100% done", None)
    assert (lines[2]["text"], lines[2]["task"], lines[2]["epoch"]) == ("é", "my [task]", 3)
    assert lines[3]["metrics"] == {"loss": "NaN"}
    assert lines[4]["text"] == "begun"
