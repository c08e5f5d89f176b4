"""Reporters never hurt the run; the files of a run are opened when it starts."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from full_disk import FullDisk

from jobrun.core.events import Event, LeftoversCleaned, Warned
from jobrun.report import Broadcast, RunFiles


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
    fan = Broadcast(broken, seen.append)
    for number in (1, 2, 3):
        fan(make.epoch(number))
    assert broken.calls == 1
    assert [type(e).__name__ for e in seen] == ["Warned", *["EpochFinished"] * 3]
    warning = seen[0]
    assert isinstance(warning, Warned)
    assert warning.message == "the reporter Broken failed and is left out from now on: no"


def test_two_failing_reporters_end_neither_the_run_nor_in_a_loop(make: Any) -> None:
    seen: list[Event] = []
    fan = Broadcast(Broken(ValueError("a")), Broken(OSError("b")), seen.append)
    fan(make.epoch(1))
    fan(make.epoch(2))
    assert [type(e).__name__ for e in seen].count("Warned") == 2


def test_one_that_is_refused_is_warned_about_once_and_goes_on(make: Any) -> None:
    seen: list[Event] = []
    kept: list[Event] = []
    refusing = [False]

    def disk(event: Event) -> None:
        if refusing[0]:
            raise OSError(28, "No space left on device")
        kept.append(event)

    fan = Broadcast(disk, seen.append)
    for number, refusing[0] in enumerate((False, True, True, False, True, False), 1):
        fan(make.epoch(number))
    assert [e.epoch for e in kept] == [1, 4, 6]
    warnings = [e.message for e in seen if isinstance(e, Warned)]
    assert warnings == [
        "function continues once it can be written again: [Errno 28] No space left on device",
    ]


def test_a_full_disk_leaves_gaps_that_are_said_and_no_epoch_without_its_row(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(monkeypatch)
    seen: list[Event] = []
    fan = Broadcast(seen.append)
    fan.add("files", lambda: RunFiles(fan))
    fan(make.started(run_dir=str(tmp_path)))
    for number in range(1, 7):
        disk.room = 5 * (number - 2) if number in (2, 3, 4) else None
        fan(make.epoch(number, loss=number))
    fan.close()
    warnings = [e.message for e in seen if isinstance(e, Warned)]
    assert sorted(warning.partition(" continues once")[0] for warning in warnings) == [
        *("events.jsonl", "log.txt", "metrics.csv"),
    ]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [e.get("epoch") for e in events if e["event"] == "EpochFinished"] == [1, 5, 6]
    assert "events could not be written here" in next(
        e["message"] for e in events if "message" in e
    )
    rows = (tmp_path / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["epoch", "1", "2", "3", "4", "5", "6"]
    log = (tmp_path / "log.txt").read_text()
    assert "lines could not be written here)" in log
    assert "epoch 5" in log
    assert "epoch 3" not in log


@pytest.mark.parametrize("name", ["events.jsonl", "metrics.csv", "log.txt"])
def test_what_is_missing_at_the_end_is_said_at_the_end(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    disk = FullDisk(monkeypatch)
    fan = Broadcast()
    fan.add("files", lambda: RunFiles(fan))
    fan(make.started(run_dir=str(tmp_path)))
    disk.room = 0
    fan(make.epoch(1, loss=1))
    disk.room = None
    fan.close()
    last = (tmp_path / name).read_text().splitlines()[-1]
    assert last.startswith("1,") if name == "metrics.csv" else "could not be written here" in last


def test_a_broken_pipe_is_quiet(make: Any) -> None:
    seen: list[Event] = []
    Broadcast(Broken(BrokenPipeError()), seen.append)(make.epoch(1))
    assert [type(e).__name__ for e in seen] == ["EpochFinished"]


def test_closing_never_fails() -> None:
    fan = Broadcast(Broken(OSError("x")))
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

    fan = Broadcast(reporter)
    threads = [
        threading.Thread(target=lambda: [fan(Warned("x")) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []


def test_files_are_opened_at_the_start_and_told_what_came_before(tmp_path: Path, make: Any) -> None:
    fan = Broadcast()
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
    fan = Broadcast(seen.append)
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
    fan = Broadcast()
    fan.add("files", lambda: RunFiles(fan))
    fan(make.started(run_dir=None))
    fan(make.epoch(1))
    assert list(tmp_path.iterdir()) == []
