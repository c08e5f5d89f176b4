"""What the runs of a sweep say: lines for a person, each with the run's name, and their ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobrun.process import Ended
from jobrun.report.words import plain
from jobrun.sweep_rows import Row, row_of_end

__all__ = ["Board"]

_WIDEST = 40
"""Names up to this width are set to one width."""


class Board:
    """Writes what is heard to stderr, whole lines only, and keeps how each run stands.

    ``codes`` are the exit codes of the processes that have ended.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.codes: dict[int, int] = {}
        self._told: set[int] = set()
        self._width = min(_WIDEST, max((len(row.directory) for row in rows), default=0))
        self._lock = threading.Lock()

    def say(self, *lines: str) -> None:
        """Write lines about the sweep; from any thread."""
        with self._lock:
            try:
                sys.stderr.write("".join(plain(line) + "\n" for line in lines))
                sys.stderr.flush()
            except BrokenPipeError:  # nobody reads it: that stops no run
                pass

    def started(self, number: int) -> None:
        """Its own words say it."""

    def told(self, number: int, event: Mapping[str, Any]) -> None:
        """Show an event, and keep how the run has ended."""
        self._say(number, event.get("lines", ()))
        if event.get("event") == "RunEnded" and event["outcome"] != "nothing":
            self._told.add(number)
            self.rows[number] = row_of_end(self.rows[number], event)
        elif "error" in event:
            reason = str(event["error"]["message"])
            row = replace(self.rows[number], state="error", reason=reason)
            self.rows[number] = replace(row, exit_code=event["exit_code"])
            self._told.add(number)

    def printed(self, number: int, line: str) -> None:
        """Show a line that a task printed, or an error."""
        self._say(number, [line])

    def ended(self, number: int, code: int) -> None:
        """Keep the exit code; a process that was killed has told nothing."""
        self.codes[number] = code
        if code < 0:
            self._say(number, [f"the process {Ended(code)}"])
            self._told.discard(number)

    def knows(self, number: int) -> bool:
        """Whether a run has told how it ended."""
        return number in self._told

    def _say(self, number: int, lines: Sequence[str]) -> None:
        name = self.rows[number].directory.ljust(self._width)
        self.say(*(f"{name} | {line}" for line in lines))
