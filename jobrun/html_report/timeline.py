"""The timeline of a run: attempts, epochs, slow tasks and saves, from its events."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jobrun.report.attempts import PastAttempt
from jobrun.report.events_file import read_events
from jobrun.tools.run_summary import RunSummary, ending

__all__ = ["MOST", "timeline"]

MOST = 300
"""The most bars of one kind, the longest."""
_TASKS = 10
"""The number of tasks that have a line of their own."""
_KINDS = ("GroupFinished", "TaskFinished", "CheckpointSaved", "CheckpointFailed")


def timeline(summary: RunSummary) -> dict[str, Any]:
    """Return ``bars`` by line, ``marks``, ``attempts`` as pairs of times, and a remark.

    Times are seconds since 1970, lengths seconds.  A task has bars where it took long enough to be
    recorded alone (a tenth of a second).
    """
    bars: dict[str, list[Any]] = {}
    marks = []
    slow = [t.task for t in summary.past.tasks[:_TASKS]]
    for event in read_events(summary.run.path / "events.jsonl", _KINDS):
        if event["event"] == "CheckpointFailed":
            marks.append(_mark(event))
        elif (line := _line(event, slow)) is not None:
            end, length = _at(event["time"]), float(event["seconds"])
            bars.setdefault(line, []).append([end - length, length, _text(event)])
    going = summary.run.held()
    attempts = summary.past.attempts
    for attempt in attempts:
        running = going and attempt is attempts[-1]
        text = f"attempt {attempt.number}: {'running' if running else ending(attempt)}"
        bars.setdefault("attempts", []).append([_at(attempt.started), attempt.seconds, text])
        if not attempt.outcome and not running:
            marks.append(["attempts", _at(attempt.ended), f"{text}, no end was recorded"])
    left = sum(max(0, len(found) - MOST) for found in bars.values())
    return {
        "bars": {line: _longest(bars[line]) for line in _order(bars, slow)},
        "marks": marks[-MOST:],
        "attempts": [_span(attempt) for attempt in attempts],
        "left": left,
    }


def _line(event: Mapping[str, Any], slow: list[str]) -> str | None:
    """Return the line of an event's bar; None for a task that is not one of the slowest."""
    if event["event"] == "CheckpointSaved":
        return "saves"
    if event["event"] == "GroupFinished":
        return "epochs" if event["group"] == "epoch" else str(event["group"])
    task = str(event["task"])
    name = task if task in slow else f"{event['node']}:{task}"
    return f"task {name}" if name in slow else None


def _order(bars: Mapping[str, Any], slow: list[str]) -> list[str]:
    """Return the lines from top to bottom."""
    first = ["attempts", "setup", "init", "epochs", "saves", "download", "exit"]
    lines = [*first, *(f"task {task}" for task in slow)]
    return [line for line in lines if line in bars]


def _text(event: Mapping[str, Any]) -> str:
    if event["event"] == "CheckpointSaved":
        return f"checkpoint_{event['id']}, epoch {event['epoch']}"
    what = event["task"] if event["event"] == "TaskFinished" else event["group"]
    return f"{what}, epoch {event['epoch']}" if event["epoch"] else str(what)


def _mark(event: Mapping[str, Any]) -> list[Any]:
    text = f"checkpoint_{event['id']} was not saved: {event['message']}"
    return ["saves", _at(event["time"]), text]


def _longest(bars: list[Any]) -> list[Any]:
    kept = heapq.nlargest(MOST, bars, key=lambda bar: bar[1])
    return [[round(begin, 3), round(length, 4), text] for begin, length, text in sorted(kept)]


def _span(attempt: PastAttempt) -> tuple[float, float]:
    return _at(attempt.started), _at(attempt.started) + attempt.seconds


def _at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
