"""The states of the tasks of a run, from the events of its attempts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobrun.core.text import duration
from jobrun.drawing.picture import State

__all__ = ["RunStates"]


@dataclass
class _Group:
    """A group: how often and how long it ran, and the times of its tasks.

    Saves inside an epoch cut it into pieces, each of which begins and ends as a group does;
    ``place`` is the attempt and the epoch of the newest piece, ``counted`` that of the newest one
    in ``runs``; ``earlier`` has the times of the tasks in the pieces of that epoch before it.
    """

    runs: int = 0
    seconds: float = 0.0
    open: bool = False
    place: tuple[int, int] = (0, -1)
    counted: tuple[int, int] = (0, -1)
    failed: set[str] = field(default_factory=set)
    times: dict[str, dict[int, float]] = field(default_factory=dict)
    earlier: dict[str, float] = field(default_factory=dict)

    def begin(self, attempt: int, epoch: int) -> None:
        self.open = True
        self.earlier = {}
        if self.place == (attempt, epoch):
            self.earlier = {t: of[epoch] for t, of in self.times.items() if epoch in of}
        self.place = attempt, epoch

    def end(self, seconds: float) -> None:
        self.open = False
        self.seconds += seconds
        self.runs += self.place != self.counted
        self.counted = self.place

    def note(self, task: str, epoch: int, seconds: float) -> None:
        self.times.setdefault(task, {})[epoch] = self.earlier.get(task, 0.0) + seconds


class RunStates:
    """The states of tasks, from the events of a run, oldest first, as in ``events.jsonl``.

    ``kinds`` are the events that are used.  Only tasks that were among the slowest of a group, or
    took a tenth of a second, have times.  ``alive``: a process holds the run, so an unfinished
    group is running.
    """

    kinds = ("RunStarted", "GroupStarted", "GroupFinished", "TaskFinished", "TaskFailed")

    def __init__(self, alive: bool) -> None:
        self._alive = alive
        self._attempts = 0
        self._groups: dict[str, _Group] = {}

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        kind = event["event"]
        if kind == "RunStarted":
            self._attempts += 1
            for known in self._groups.values():
                known.open = False
                known.failed.clear()
            return
        name, epoch = event["group"], event["epoch"]
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group()
        if kind == "GroupStarted":
            group.begin(self._attempts, epoch)
        elif kind == "GroupFinished":
            if not group.open:  # a start that its end follows at once is not among the events
                group.begin(self._attempts, epoch)
            group.end(event["seconds"])
            for task, seconds in event["slowest"]:
                group.note(task, epoch, seconds)
        elif kind == "TaskFinished":
            for key in _keys(event):
                group.note(key, epoch, event["seconds"])
        elif kind == "TaskFailed":
            group.failed.update(_keys(event))

    def states(self, units: Iterable[tuple[str, str]]) -> dict[tuple[str, str], State]:
        """Return the state of every unit, by group and key."""
        return {(group, key): self._state(group, key) for group, key in units}

    def _state(self, name: str, key: str) -> State:
        group = self._groups.get(name, _Group())
        times = list(group.times.get(key, {}).values())
        mean = sum(times) / len(times) if times else None
        each = group.seconds / group.runs if group.runs else 0.0
        share = min(mean / each, 1.0) if mean and each else 0.0
        return State(self._status(group, key), mean, share)

    def _status(self, group: _Group, key: str) -> str:
        if key in group.failed:
            return "failed"
        if group.open:
            return "running" if self._alive else "interrupted"
        return "done" if group.runs else "waiting"

    def notes(self, groups: Sequence[str]) -> dict[str, str]:
        """Return for each group that ran how often and how long: ``20 times, 12 ms each``."""
        found = {}
        for name in groups:
            group = self._groups.get(name)
            if group is not None and group.runs:
                time = duration(group.seconds / group.runs)
                many = group.runs > 1
                found[name] = f"{group.runs} times, {time} each" if many else time
        return found


def _keys(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return a task's key in a job of one node, and in one of several: only one is in use."""
    return str(event["task"]), f"{event['node']}:{event['task']}"
