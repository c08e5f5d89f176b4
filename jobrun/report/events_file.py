"""``events.jsonl``: every event of every attempt, one JSON object a line.

A line is appended by one write.  A crash can leave a torn last line, which is cut at the next
start.  Progress within an epoch is not kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobrun.events import PASSING, Event
from jobrun.report.words import json_line

__all__ = ["EventsFile", "cut_torn_line", "read_events"]


class EventsFile:
    """Appends events to a file."""

    def __init__(self, path: Path) -> None:
        cut_torn_line(path)
        self._file = path.open("ab", buffering=0)

    def __call__(self, event: Event) -> None:
        """Append ``event`` with the time, UTC."""
        if isinstance(event, PASSING):
            return
        self._file.write(json_line(event.to_json()).encode("ascii"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def cut_torn_line(path: Path, block: int = 1 << 16) -> None:
    """Cut what follows the last line feed of a file; nothing is done where there is no file."""
    try:
        end = path.stat().st_size
    except FileNotFoundError:
        return
    with path.open("rb") as file:
        keep = end
        while keep > 0:
            start = max(0, keep - block)
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            keep = start
    if keep < end:
        os.truncate(path, keep)


def read_events(path: Path, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The events of ``kinds`` (names of classes) in a file, oldest first; torn lines are passed."""
    marks = [f'"event": "{kind}"'.encode("ascii") for kind in kinds]
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if not any(mark in line for mark in marks):
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") in kinds:
                yield event
