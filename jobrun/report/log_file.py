"""``log.txt``: what was said in every attempt, with the time (UTC) before each line."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from jobrun.events import Event, RunEnded
from jobrun.report.events_file import cut_torn_line
from jobrun.report.lines import Describer
from jobrun.report.words import plain

__all__ = ["LogFile", "Tee"]


class LogFile:
    """Appends the lines of all events to a file, more of them than a terminal shows."""

    def __init__(self, path: Path) -> None:
        cut_torn_line(path)
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._describe = Describer(verbosity=1)

    def __call__(self, event: Event) -> None:
        """Append the lines of ``event``."""
        lines = self._describe(event)
        if isinstance(event, RunEnded):
            lines = [f"{event.outcome}: {plain(event.reason)} (exit code {event.exit_code})"]
        self.write_lines(lines)

    def write_lines(self, lines: list[str]) -> None:
        """Append lines with the time before each."""
        if lines:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._file.write("".join(f"{now} {line}\n" for line in lines))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Tee:
    """Stands in for ``sys.stdout``: what tasks print goes to another stream and to a log.

    ``write_lines`` of the log may be set later; what came before it is not logged.
    """

    def __init__(self, stream: TextIO) -> None:
        self.log: LogFile | None = None
        self._stream = stream
        self._line = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Pass ``text`` on, and log the lines that it completes."""
        with self._lock:
            self._stream.write(text)
            *lines, self._line = (self._line + text).split("\n")
            if lines and self.log is not None:
                self.log.write_lines([plain(line) for line in lines])
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
