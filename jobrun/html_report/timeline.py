"""The timeline of a run: attempts, epochs, slow tasks and saves, from its events."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from jobrun.report.attempts import PastAttempt
from jobrun.tools.run_summary import RunSummary
from jobrun.tools.run_tables import how_it_ended

__all__ = ["MOST", "Timeline"]

MOST = 300
"""The most bars of one kind, the longest."""
_TASKS = 10
"""The number of tasks that have a line of their own."""


class Timeline:
    """The bars and marks of a run, from its events; of each line the longest bars are kept."""

    kinds = ("GroupFinished", "TaskFinished", "CheckpointSaved", "CheckpointFailed")

    def __init__(self) -> None:
        self._seen = 0
        self._counts: dict[str, int] = {}
        self._longest: dict[str, list[tuple[float, int, Mapping[str, Any]]]] = {}
        self._marks: deque[list[Any]] = deque(maxlen=MOST)

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        if event["event"] == "CheckpointFailed":
            self._marks.append(_mark(event))
            return
        self._seen += 1
        for line in _lines(event):
            self._counts[line] = self._counts.get(line, 0) + 1
            bars = self._longest.setdefault(line, [])
            bar = (float(event["seconds"]), -self._seen, event)  # of equal ones the earlier
            if len(bars) < MOST:
                heapq.heappush(bars, bar)
            elif bar > bars[0]:
                heapq.heapreplace(bars, bar)

    def of(self, summary: RunSummary) -> dict[str, Any]:
        """Return ``bars`` by line, ``marks``, ``attempts`` as pairs of times, and a remark.

        Times are seconds since 1970, lengths seconds.  A task has bars where it took long enough
        to be recorded alone (a tenth of a second).
        """
        attempts, going = summary.past.attempts, summary.run.held()
        own, marks = [], [*self._marks]
        for attempt in attempts:
            running = going and attempt is attempts[-1]
            text = f"attempt {attempt.number}: {'running' if running else how_it_ended(attempt)}"
            own.append([_at(attempt.started), attempt.seconds, text])
            if not attempt.outcome and not running:
                marks.append(["attempts", _at(attempt.ended), f"{text}, no end was recorded"])
        order = _order(summary)
        bars = {line: _bars(self._longest[line]) for line in order if line in self._longest}
        left = sum(self._counts[line] - len(bars[line]) for line in bars)
        shown = {"attempts": _rounded(heapq.nlargest(MOST, own, key=lambda bar: bar[1]))} | bars
        return {
            "bars": shown if own else bars,
            "marks": marks[-MOST:],
            "attempts": [_span(attempt) for attempt in attempts],
            "left": left + max(0, len(own) - MOST),
        }


def _lines(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines of an event's bar: a task has one in a job of one node or in one of several.

    Only one of them is shown.
    """
    if event["event"] == "CheckpointSaved":
        return ("saves",)
    if event["event"] == "GroupFinished":
        return ("epochs" if event["group"] == "epoch" else str(event["group"]),)
    return f"task {event['task']}", f"task {event['node']}:{event['task']}"


def _order(summary: RunSummary) -> list[str]:
    """Return the lines of bars from top to bottom: of the tasks only the slowest have one."""
    slow = dict.fromkeys(t.task for t in summary.past.tasks[:_TASKS])
    first = ["setup", "init", "epochs", "saves", "download", "exit"]
    return [*first, *(f"task {task}" for task in slow)]


def _text(event: Mapping[str, Any]) -> str:
    if event["event"] == "CheckpointSaved":
        return f"checkpoint_{event['id']}, epoch {event['epoch']}"
    what = event["task"] if event["event"] == "TaskFinished" else event["group"]
    return f"{what}, epoch {event['epoch']}" if event["epoch"] else str(what)


def _mark(event: Mapping[str, Any]) -> list[Any]:
    text = f"checkpoint_{event['id']} was not saved: {event['message']}"
    return ["saves", _at(event["time"]), text]


def _bars(longest: Sequence[tuple[float, int, Mapping[str, Any]]]) -> list[Any]:
    return _rounded([[_at(e["time"]) - length, length, _text(e)] for length, _, e in longest])


def _rounded(bars: list[list[Any]]) -> list[Any]:
    return [[round(begin, 3), round(length, 4), text] for begin, length, text in sorted(bars)]


def _span(attempt: PastAttempt) -> tuple[float, float]:
    return _at(attempt.started), _at(attempt.started) + attempt.seconds


def _at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
