"""Reporters never hurt the run; the files of a run are opened when it starts."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from jobrun.events import Event, LeftoversCleaned, Warned
from jobrun.report import Fan, RunFiles


class Broken:
    """A reporter that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, event: Event) -> None:
        self.calls += 1
        raise self.error

    def close(self) -> None:
        raise self.error


def test_a_failing_reporter_is_warned_about_once(make: Any) -> None:
    seen: list[Event] = []
    broken = Broken(ValueError("no"))
    fan = Fan(broken, seen.append)
    for number in (1, 2, 3):
        fan(make.epoch(number))
    assert broken.calls == 1
    assert [type(e).__name__ for e in seen] == ["Warned", *["EpochFinished"] * 3]
    warning = seen[0]
    assert isinstance(warning, Warned)
    assert warning.message == "the reporter Broken failed and is left out from now on: no"


def test_two_failing_reporters_end_neither_the_run_nor_in_a_loop(make: Any) -> None:
    seen: list[Event] = []
    fan = Fan(Broken(ValueError("a")), Broken(OSError("b")), seen.append)
    fan(make.epoch(1))
    fan(make.epoch(2))
    assert [type(e).__name__ for e in seen].count("Warned") == 2


def test_a_broken_pipe_is_quiet(make: Any) -> None:
    seen: list[Event] = []
    Fan(Broken(BrokenPipeError()), seen.append)(make.epoch(1))
    assert [type(e).__name__ for e in seen] == ["EpochFinished"]


def test_closing_never_fails() -> None:
    fan = Fan(Broken(OSError("x")))
    fan.close()
    fan(Warned("after the end"))


def test_events_of_many_threads_come_one_at_a_time() -> None:
    inside = threading.Lock()
    overlaps = []

    def reporter(event: Event) -> None:
        if not inside.acquire(blocking=False):
            overlaps.append(event)
            return
        inside.release()

    fan = Fan(reporter)
    threads = [
        threading.Thread(target=lambda: [fan(Warned("x")) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []


def test_files_are_opened_at_the_start_and_told_what_came_before(tmp_path: Path, make: Any) -> None:
    fan = Fan()
    fan.add("files", lambda: RunFiles(fan))
    fan(LeftoversCleaned((".checkpoint_3.partial-x",)))
    assert list(tmp_path.iterdir()) == []
    fan(make.started(run_dir=str(tmp_path)))
    fan(make.epoch(1, loss=1.0))
    fan.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.jsonl", "log.txt", "metrics.csv"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    names = ["LeftoversCleaned", "RunStarted", "EpochFinished"]
    assert [e["event"] for e in events] == names
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 2
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 3


def test_files_that_cannot_be_opened_are_a_warning(tmp_path: Path, make: Any) -> None:
    seen: list[Event] = []
    fan = Fan(seen.append)
    fan.add("files", lambda: RunFiles(fan))
    fan(make.started(run_dir=str(tmp_path / "missing")))
    fan(make.epoch(1))
    warnings = [e.message for e in seen if isinstance(e, Warned)]
    assert len(warnings) == 3
    assert all("No such file" in w for w in warnings)


def test_a_run_without_a_directory_writes_nothing(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fan = Fan()
    fan.add("files", lambda: RunFiles(fan))
    fan(make.started(run_dir=None))
    fan(make.epoch(1))
    assert list(tmp_path.iterdir()) == []
