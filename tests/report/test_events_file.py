"""``events.jsonl`` is appended to, and a torn last line is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobrun.core.events import BatchesDone, GroupFinished, GroupStarted, TaskProgress, Warned
from jobrun.report.append_file import Appender
from jobrun.report.events_file import EventsFile, read_events, tell_events


def test_events_are_json_lines(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "events.jsonl"
    file = EventsFile(path)
    for event in (
        make.started(),
        BatchesDone("t", "main", 1, 1, 2),
        TaskProgress("t", "main", 1, 0.5),
        make.epoch(1, loss=1e400),
    ):
        file(event)
    file.close()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [e["event"] for e in events] == ["RunStarted", "EpochFinished"]
    assert events[1]["metrics"] == {"loss": "Infinity"}
    assert all(e["time"].endswith("Z") for e in events)


def test_a_second_attempt_appends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for text in ("one", "two"):
        file = EventsFile(path)
        file(Warned(text))
        file.close()
    assert [e["message"] for e in read_events(path, ("Warned",))] == ["one", "two"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"one\n", b"one\n"),
        (b"one\ntw", b"one\n"),
        (b"torn at once", b""),
        (b"one\n" + b"x" * 40, b"one\n"),
        (b"\n", b"\n"),
    ],
)
def test_a_torn_line_is_cut(
    tmp_path: Path, before: bytes, after: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobrun.report.append_file._BLOCK", 8)
    path = tmp_path / "file"
    path.write_bytes(before)
    Appender(path).close()
    assert path.read_bytes() == after


def test_no_file_is_no_error(tmp_path: Path) -> None:
    assert list(read_events(tmp_path / "none", ("Warned",))) == []
    assert not (tmp_path / "none").exists()


def test_reading_passes_over_what_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('x "event": "Warned"\n["event", 1]\n{"event": "Warned", "message": "m"}\n{"a')
    assert list(read_events(path, ("Warned",))) == [{"event": "Warned", "message": "m"}]


@pytest.mark.parametrize(
    "torn", ['{"time": "x", "event": "Warned", "mess', '"event": "Warned"}, {', ""]
)
@pytest.mark.parametrize("place", [0, 700, 1199])
def test_a_torn_line_among_many_loses_only_itself(tmp_path: Path, torn: str, place: int) -> None:
    lines = [json.dumps({"event": "Warned", "message": str(n)}) for n in range(1200)]
    lines[place] = torn
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    found = [event["message"] for event in read_events(path, ("Warned",))]
    assert found == [str(n) for n in range(1200) if n != place]


def test_two_lines_that_are_one_value_together_are_none(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = [
        '{"event": "Warned", "message": "a"}',
        '{"event": "Warned", "x": [1',
        '"event": "Warned"]}',
    ]
    path.write_text("\n".join(lines) + "\n")
    assert [event["message"] for event in read_events(path, ("Warned",))] == ["a"]


def test_readers_get_the_events_of_their_kinds(tmp_path: Path, make: Any) -> None:
    class Seen:
        def __init__(self, *kinds: str) -> None:
            self.kinds = kinds
            self.events: list[str] = []

        def see(self, event: Any) -> None:
            self.events.append(event["event"])

    events = EventsFile(tmp_path / "events.jsonl")
    for event in (make.started(), make.epoch(1, loss=1.0), Warned("x"), make.epoch(2, loss=1.0)):
        events(event)
    events.close()
    readers = [Seen("Warned", "EpochFinished"), Seen("RunStarted", "Warned"), Seen()]
    tell_events(tmp_path / "events.jsonl", readers)
    assert [reader.events for reader in readers] == [
        ["EpochFinished", "Warned", "EpochFinished"], ["RunStarted", "Warned"], [],
    ]  # fmt: skip


def test_the_start_of_a_group_is_read_unless_its_end_is_next(tmp_path: Path) -> None:
    events = EventsFile(tmp_path / "events.jsonl")
    for epoch in (1, 2, 3):
        events(GroupStarted("epoch", epoch, 1))
        if epoch == 2:
            events(Warned("x"))
        if epoch < 3:
            events(GroupFinished("epoch", epoch, 1, 0.5))
    events.close()

    def kinds(*wanted: str) -> list[str]:
        return [e["event"] for e in read_events(tmp_path / "events.jsonl", wanted)]

    assert kinds("GroupStarted") == ["GroupStarted"] * 3
    assert kinds("GroupStarted", "GroupFinished") == ["GroupFinished"] * 2 + ["GroupStarted"]
    assert kinds("GroupStarted", "GroupFinished", "Warned") == [
        "GroupFinished", "GroupStarted", "Warned", "GroupFinished", "GroupStarted",
    ]  # fmt: skip
