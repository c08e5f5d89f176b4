"""The output of the runs of a sweep: lines, each with the run's name, and their results."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jobrun.core.process import Ended
from jobrun.report.formatting import json_line, plain, uncoloured

__all__ = ["Board", "JsonBoard"]

_WIDEST = 40
"""The width up to which names are padded to one width."""


class Board:
    """A listener that writes whole lines to stderr, and keeps the results of the runs.

    ``names`` are those of the runs by their numbers.  ``codes`` are the exit codes of the processes
    that have ended, ``ends`` their reports: ``RunEnded`` as JSON values, or an error.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.codes: dict[int, int] = {}
        self.ends: dict[int, Mapping[str, Any]] = {}
        self._names = names
        self._width = min(_WIDEST, max(map(len, names), default=0))
        self._lock: AbstractContextManager[Any] = threading.Lock()

    def print_lines(self, *lines: str) -> None:
        """Write lines about the sweep; from any thread."""
        self._write("".join(plain(line) + "\n" for line in lines))

    def started(self, number: int) -> None:
        """Do nothing: the run's own events report it."""

    def received(self, number: int, event: Mapping[str, Any]) -> None:
        """Show an event, and keep the result of the run."""
        self._show(number, event)
        if event.get("event") == "RunEnded" or "event" not in event:
            self.ends[number] = event

    def printed(self, number: int, line: str) -> None:
        """Show a line that a task printed, or an error."""
        self._print_lines(number, [line])

    def ended(self, number: int, code: int) -> None:
        """Keep the exit code; a killed process has sent no report."""
        self.codes[number] = code
        if code < 0:
            self._print_lines(number, [f"the process {Ended(code)}"])

    def close(self) -> None:
        """Do nothing: lines stay."""

    def _show(self, number: int, event: Mapping[str, Any]) -> None:
        self._print_lines(number, event.get("lines", ()))

    def _print_lines(self, number: int, lines: Sequence[str]) -> None:
        name = self._names[number].ljust(self._width)
        self._write("".join(plain(f"{name} | {line}") + "\n" for line in lines))

    def _write(self, text: str) -> None:
        with self._lock:
            try:
                sys.stderr.write(text)
                sys.stderr.flush()
            except BrokenPipeError:  # nobody reads it: this stops no run
                pass


class JsonBoard(Board):
    """The same as JSON: each event, and each printed line, with its run under ``run``."""

    def print_lines(self, *lines: str) -> None:
        """Do nothing: the events of the runs report it."""

    def _show(self, number: int, event: Mapping[str, Any]) -> None:
        if event.get("event") == "RunEnded" and "lines" not in event:
            return  # the result of the process, already sent as an event
        values = {"event": "Error", **event}  # without: an error before the run
        values.pop("lines", None)
        self._write(json_line({**values, "run": self._names[number]}))

    def _print_lines(self, number: int, lines: Sequence[str]) -> None:
        for line in lines:
            text = uncoloured(line)
            event = {"event": "Printed", "text": text, "run": self._names[number]}
            self._write(json_line(event))
