"""``log.txt``: what was said in every attempt, and what tasks printed, with the time (UTC)."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from jobrun.events import Event, RunEnded
from jobrun.report.events_file import cut_torn_line
from jobrun.report.lines import Describer
from jobrun.report.words import plain

_STYLES = re.compile(r"\x1b\[[0-9;]*m")

__all__ = ["LogFile", "Prints", "Tee"]


class LogFile:
    """Appends the lines of all events to a file, more of them than a terminal shows."""

    def __init__(self, path: Path) -> None:
        cut_torn_line(path)
        self._file = path.open("a", encoding="utf-8", errors="backslashreplace")
        self._describe = Describer(verbosity=1)
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Append the lines of ``event``."""
        lines = self._describe(event)
        if isinstance(event, RunEnded):
            lines = [f"{event.outcome}: {plain(event.reason)} (exit code {event.exit_code})"]
        self.write_lines(lines)

    def write_lines(self, lines: list[str]) -> None:
        """Append lines with the time before each; from any thread."""
        if lines:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            with self._lock:
                self._file.write("".join(f"{now} {line}\n" for line in lines))
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Tee:
    """Stands in for ``sys.stdout`` or ``sys.stderr``: passes all on, and whole lines to ``keep``.

    ``stream`` may be exchanged.  One whose reader has gone is written to no more, and hurts nobody.
    """

    def __init__(self, stream: TextIO, keep: Callable[[list[str]], None]) -> None:
        self.stream = stream
        self._keep = keep
        self._begun: dict[int, str] = {}  # per thread, since prints come in pieces
        self._gone = False
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Pass ``text`` on, and keep the lines that it completes."""
        with self._lock:
            self._pass_on(lambda: self.stream.write(text))
            thread = threading.get_ident()
            *lines, begun = (self._begun.pop(thread, "") + text).split("\n")
            if begun:
                self._begun[thread] = _visible(begun)
            if lines:
                self._keep([plain(_visible(line)) for line in lines])
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Pass texts on."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream."""
        self._pass_on(self.stream.flush)

    def end(self) -> None:
        """Keep the lines that were begun."""
        with self._lock:
            begun, self._begun = list(self._begun.values()), {}
            self._keep([plain(line) for line in begun])

    def _pass_on(self, call: Callable[[], object]) -> None:
        try:
            if not self._gone:
                call()
        except BrokenPipeError:
            self._gone = True

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def _visible(line: str) -> str:
    """What a terminal shows of a line: what stands after the cursor was sent back, no colours."""
    return _STYLES.sub("", line).rstrip("\r").rpartition("\r")[2]


class Prints:
    """What tasks print and log: it goes to stdout and stderr as ever, and to ``log`` with the time.

    As a context, it stands in for both.  What comes before ``log`` is set is not kept.
    """

    def __init__(self) -> None:
        self.log: LogFile | None = None
        self.out = Tee(sys.stdout, self._keep)
        self.err = Tee(sys.stderr, self._keep)

    def __enter__(self) -> Prints:
        self._before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.out, self.err
        return self

    def __exit__(self, *raised: object) -> None:
        sys.stdout, sys.stderr = self._before

    def end(self) -> None:
        """Nothing more is kept."""
        self.out.end()
        self.err.end()
        self.log = None

    def _keep(self, lines: list[str]) -> None:
        try:
            if self.log is not None:
                self.log.write_lines(lines)
        except OSError:  # a full disk is no failure of who prints; the log says so by itself
            self.log = None
