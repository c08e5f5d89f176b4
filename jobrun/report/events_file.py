"""``events.jsonl``: every event of every attempt, one JSON object a line.

A line is appended by one write.  A crash can leave a torn last line, which is cut at the next
start.  While the disk is full no line can be written; how many are missing is said in the first one
after them.  Progress within an epoch is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobrun.events import PASSING, Event, Warned
from jobrun.report.append import Appender
from jobrun.report.words import json_line, plural

__all__ = ["EventsFile", "read_events"]


class EventsFile:
    """Appends events to a file."""

    name = "events.jsonl"

    def __init__(self, path: Path) -> None:
        self._file = Appender(path)
        self._missing = 0

    def __call__(self, event: Event) -> None:
        """Append ``event`` with the time, UTC; raises OSError where it cannot be kept."""
        if isinstance(event, PASSING):
            return
        try:
            self._file.append(self._said_missing() + _line(event))
        except OSError:
            self._missing += 1
            raise
        self._missing = 0

    def _said_missing(self) -> bytes:
        """The line that says how many lines are missing before it; empty if none is."""
        if not self._missing:
            return b""
        return _line(Warned(f"{plural(self._missing, 'event')} could not be written here"))

    def close(self) -> None:
        """Make all durable, and close the file; raises OSError if that is refused."""
        with suppress(OSError):
            self._file.append(self._said_missing())
        try:
            self._file.sync()
        finally:
            self._file.close()


def _line(event: Event) -> bytes:
    return json_line(event.to_json()).encode("ascii")


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
