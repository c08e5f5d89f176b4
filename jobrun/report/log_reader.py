"""Reading ``log.txt``: by task, attempt and time, to its end or while it grows."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from jobrun.core.text import TIMES, seconds_of
from jobrun.errors import DamagedError, UsageError
from jobrun.report.log_format import LogLine, parse
from jobrun.storage.regular_file import open_run_file, size_text

__all__ = ["Wanted", "follow", "last_lines", "printers", "read", "since_time"]

_LOOK = 0.2
_LONGEST = 16 << 20
"""Characters of a line."""
Found = tuple[str, LogLine, int]
"""A line, the same parsed, and its attempt."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of lines: by task (name or pattern), by attempt, and since a time of the log."""

    task: str | None = None
    attempt: int | None = None
    since: str | None = None

    def has(self, line: LogLine, attempt: int) -> bool:
        """Return whether a line of this attempt passes the filter."""
        if self.task is not None and not _is(line.task, self.task):
            return False
        if self.attempt is not None and attempt != self.attempt:
            return False
        return self.since is None or line.time >= self.since


def _is(task: str | None, pattern: str) -> bool:
    return task is not None and (task == pattern or fnmatchcase(task, pattern))


def read(path: Path, wanted: Wanted) -> Iterator[Found]:
    """Yield the lines that pass the filter."""
    yield from _chosen(_whole_lines(path, lambda: True), wanted)


def follow(path: Path, wanted: Wanted, over: Callable[[], bool]) -> Iterator[Found]:
    """Yield the lines that pass the filter, and those added later, until ``over`` returns True."""
    yield from _chosen(_whole_lines(path, over), wanted)


def _chosen(lines: Iterator[str], wanted: Wanted) -> Iterator[Found]:
    attempt = 1
    for line in lines:
        parsed = parse(line)
        if parsed is None:
            continue  # torn by a crash
        attempt = parsed.attempt or attempt
        if wanted.has(parsed, attempt):
            yield line, parsed, attempt


def _whole_lines(path: Path, over: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines of a file as it grows, to the end that it has once it is ``over``."""
    begun = ""
    with open_run_file(path) as binary:
        file = io.TextIOWrapper(binary, "utf-8", "backslashreplace", "\n")
        while True:
            ended = over()  # asked first, so that all that was written until then is read
            while text := file.read(1 << 16):
                *lines, begun = (begun + text).split("\n")
                yield from lines
                if len(begun) > _LONGEST:
                    what = f"a line is longer than {size_text(_LONGEST)}, the most that is read"
                    raise DamagedError(what, where=str(path))
            if ended:
                return
            time.sleep(_LOOK)


def last_lines(path: Path, most: int) -> tuple[list[str], int]:
    """Return the last lines of a log, and how many stand before them; torn ones are left out."""
    kept: deque[str] = deque(maxlen=most)
    count = 0
    for line in _whole_lines(path, lambda: True):
        kept.append(line)
        count += 1
    return [line for line in kept if parse(line) is not None], count - len(kept)


def printers(path: Path) -> list[str]:
    """Return the tasks that have printed something, in the order of their first lines."""
    found = (line.task for _, line, _ in read(path, Wanted()))
    return list(dict.fromkeys(task for task in found if task is not None))


def since_time(text: str) -> str:
    """Return a duration ago (``10m``) or a time in the form of the log; raises UsageError."""
    if (seconds := seconds_of(text)) is not None:
        moment = datetime.now(UTC) - timedelta(seconds=seconds)
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            hint = f"{TIMES} ago, or a time such as 2026-11-28T10:00"
            raise UsageError(f"--since {text!r} is not a time", hint=hint) from None
        moment = moment.astimezone(UTC)  # without a zone it is local time
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
