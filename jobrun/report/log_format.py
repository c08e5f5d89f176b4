"""A line of ``log.txt``: the time (UTC), the task in brackets, and the text.

::

    2026-11-28T10:00:00Z [attempt 2] digits in runs/digits: continues after epoch 2 (checkpoint_2)
    2026-11-28T10:00:01Z [load, setup] 60000 rows
    2026-11-28T10:00:03Z [train, epoch 3] loss is 0.25
    2026-11-28T10:00:03Z ["my task [x]" on trainer_1, epoch 3] a name with other characters is JSON
    2026-11-28T10:00:04Z epoch 3/40  loss 0.25*  1.2 s

Lines of jobrun itself have no brackets, except the first one of each attempt; ``[]`` precedes a
text that itself begins with a bracket.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from jobrun.core.current_task import CurrentTask
from jobrun.report.formatting import plain

__all__ = ["LogLine", "attempt_stamp", "escaped", "parse", "stamp"]

_SIMPLE = re.compile(r"[\w./:@+-]+")
_NAME = r'[\w./:@+-]+|"(?:[^"\\]|\\.)*"'
_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ) "
    rf"(?:\[(?:attempt (?P<attempt>\d+)|(?P<task>{_NAME})(?: on (?P<node>{_NAME}))?, "
    r"(?:epoch (?P<epoch>\d+)|(?P<group>\w+))|)\] )?(?P<text>.*)",
    re.S,
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A parsed line; ``task`` is None for lines of jobrun itself.

    ``epoch`` is None outside of the group ``epoch``.  ``attempt`` is set on its first line only.
    """

    time: str
    text: str
    task: str | None = None
    node: str | None = None
    group: str | None = None
    epoch: int | None = None
    attempt: int | None = None


def stamp(doing: CurrentTask) -> str:
    """Return the prefix of a line that a task has printed."""
    at = "" if doing.node == "main" else f" on {_quoted(doing.node)}"
    when = f"epoch {doing.epoch}" if doing.group == "epoch" else doing.group
    return f"[{_quoted(doing.task)}{at}, {when}] "


def attempt_stamp(number: int) -> str:
    """Return the prefix of the first line of an attempt."""
    return f"[attempt {number}] "


def escaped(line: str) -> str:
    """Return a line of jobrun, escaped so that it is not taken for that of a task."""
    return f"[] {line}" if line.startswith("[") else line


def _quoted(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else plain(json.dumps(name, ensure_ascii=False))


def _unquoted(name: str | None) -> str | None:
    if name is None or not name.startswith('"'):
        return name
    try:
        return str(json.loads(re.sub(r"\\x([0-9a-f]{2})", r"\\u00\1", name)))
    except ValueError:
        return name


def parse(line: str) -> LogLine | None:
    """Parse a line without its end; return None if it is not a line of a log (a torn one)."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    epoch, attempt = match["epoch"], match["attempt"]
    return LogLine(
        match["time"],
        match["text"],
        _unquoted(match["task"]),
        _unquoted(match["node"]),
        "epoch" if epoch else match["group"],
        int(epoch) if epoch else None,
        int(attempt) if attempt else None,
    )
