"""The attempts of a run, its slowest tasks and its warnings, read from ``events.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from jobrun.core.events import SlowestNode
from jobrun.report.events_file import EventReader, runs_ended, tell_events
from jobrun.report.formatting import why_not_saved

__all__ = ["Attempts", "PastAttempt", "TaskTime", "read_attempts"]

_KINDS = (
    "RunStarted",
    "RunWentBack",
    "EpochFinished",
    "GroupFinished",
    "CheckpointSaved",
    "CheckpointFailed",
    "CheckpointSkipped",
    "CheckpointLoaded",
    "Uploaded",
    "Warned",
    "RunEnded",
)
_WORK = ("EpochFinished", "GroupFinished", "CheckpointSaved")
"""Events of an attempt's work: none of them comes before the start of the next attempt."""
_SUMMED = ("EpochFinished", "CheckpointSaved")
"""Events whose numbers and sums the end of an attempt tells."""


@dataclass(slots=True)
class PastAttempt:
    """One start of the run.

    ``checkpoint`` is the id of the one it resumed from (None: from the beginning), ``epoch`` that
    of this checkpoint, ``last`` the last epoch that it finished.  ``outcome`` and ``slowest`` are
    as in ``RunEnded``; ``outcome`` is empty if no end was recorded, and ``ended`` is then the time
    of the last event.  ``only`` is ``exit`` for one that ran no epochs.  ``slurm_job`` and
    ``requeued`` are as in ``RunStarted``.  Times are in seconds.
    """

    number: int
    started: str
    epoch: int
    checkpoint: int | None
    only: str = ""
    session: str = ""
    last: int = 0
    epochs: int = 0
    ended: str = ""
    seconds: float = 0.0
    outcome: str = ""
    reason: str = ""
    exit_code: int | None = None
    saved: int = 0
    checkpoint_seconds: float = 0.0
    slowest: SlowestNode | None = None
    slurm_job: str = ""
    requeued: int = 0


@dataclass(slots=True)
class TaskTime:
    """The time of a task in those epochs in which it was among the slowest of its group.

    An epoch that saves cut into pieces is one of ``times``.
    """

    group: str
    task: str
    times: int = 0
    seconds: float = 0.0
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempts:
    """All attempts, oldest first; tasks, the slowest first; warnings, each once.

    ``uploaded`` are the places of the checkpoints that were uploaded, the newest last, each once.
    """

    attempts: list[PastAttempt] = field(default_factory=list)
    tasks: list[TaskTime] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    uploaded: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """The seconds of all attempts together."""
        return sum(a.seconds for a in self.attempts)

    @property
    def checkpoint_seconds(self) -> float:
        """The seconds that all attempts waited for saves."""
        return sum(a.checkpoint_seconds for a in self.attempts)

    @property
    def saved(self) -> int:
        """The number of checkpoints that all attempts wrote."""
        return sum(a.saved for a in self.attempts)


def read_attempts(events: Path, also: Sequence[EventReader] = ()) -> Attempts:
    """Read the attempts from a file of events; return empty ``Attempts`` if there is no file.

    ``also`` are others that need events of the file, so that it is read once.
    """
    brief = runs_ended(events)
    reader = _AttemptsReader(brief)
    tell_events(events, [reader, *also])
    if brief and not reader.know_all():  # an end is torn
        reader = _AttemptsReader(brief=False)
        tell_events(events, [reader])
    return reader.attempts()


class _AttemptsReader:
    """Makes ``Attempts`` of events.

    ``brief``: every attempt has its end, which tells how many epochs and saves it had.  Of a run of
    10,000 saved epochs that is half of the time.
    """

    def __init__(self, brief: bool) -> None:
        self._brief = brief
        self.kinds = tuple(kind for kind in _KINDS if not (brief and kind in _SUMMED))
        self._attempts: list[PastAttempt] = []
        self._tasks: dict[tuple[str, str], TaskTime] = {}
        self._pieces: dict[tuple[str, str], tuple[tuple[int, int], float]] = {}
        """Of each task the attempt and epoch that it ran in last, and its seconds there."""
        self._warnings: dict[str, None] = {}
        self._uploaded: dict[str, None] = {}  # in order, for there may be thousands

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        kind = event["event"]
        if kind == "RunStarted":
            self._attempts.append(_started(event))
        elif self._attempts:
            _tell(self._attempts[-1], kind, event)
            if self._brief and kind == "RunEnded":
                last = max(self._attempts[-1].last, event.get("epoch", 0))
                self._attempts[-1].last = last if "epoch" in event else -1
        if kind == "GroupFinished":
            self._add_times(event)
        elif kind == "Uploaded":
            self._uploaded.pop(event["place"], None)
            self._uploaded[event["place"]] = None
        elif kind not in _WORK and (warning := _warning(kind, event)):
            self._warnings[warning] = None

    def _add_times(self, event: Mapping[str, Any]) -> None:
        group, place = event["group"], (len(self._attempts), event["epoch"])
        for name, seconds in event["slowest"]:
            time = self._tasks.get((group, name))
            if time is None:
                time = self._tasks[group, name] = TaskTime(group, name)
            before, spent = self._pieces.get((group, name), (None, 0.0))
            further = before == place
            spent = spent + seconds if further else seconds
            self._pieces[group, name] = place, spent
            time.times += not further
            time.seconds += seconds
            time.longest = max(time.longest, spent)

    def know_all(self) -> bool:
        """Return whether the end of each attempt has been seen, with its epoch."""
        return all(attempt.outcome and attempt.last >= 0 for attempt in self._attempts)

    def attempts(self) -> Attempts:
        """Return the attempts, once all events were seen."""
        for attempt in self._attempts:
            if not attempt.outcome:
                attempt.seconds = _between(attempt.started, attempt.ended)
        return Attempts(
            attempts=self._attempts,
            tasks=sorted(self._tasks.values(), key=lambda t: -t.seconds),
            warnings=[*self._warnings],
            uploaded=[*self._uploaded],
        )


def _started(event: Mapping[str, Any]) -> PastAttempt:
    return PastAttempt(
        number=event["attempt"],
        started=event["time"],
        epoch=event["epoch"],
        checkpoint=event["checkpoint"],
        only=event.get("only", ""),
        session=event["session"],
        last=event["epoch"],
        ended=event["time"],
        slurm_job=event.get("slurm_job", ""),
        requeued=event.get("requeued", 0),
    )


def _tell(attempt: PastAttempt, kind: str, event: Mapping[str, Any]) -> None:
    """Add an event to the attempt that it belongs to."""
    if kind == "RunEnded":
        for name in ("outcome", "reason", "exit_code", "seconds", "saved", "checkpoint_seconds"):
            setattr(attempt, name, event[name])
        attempt.epochs, attempt.ended = event["ran"], event["time"]
        if slowest := event.get("slowest"):
            attempt.slowest = SlowestNode(**slowest)
    elif attempt.outcome or kind not in _WORK:
        return
    else:
        attempt.ended = event["time"]
    if kind == "EpochFinished":
        attempt.last = event["epoch"]
        attempt.epochs += 1
    elif kind == "CheckpointSaved":
        attempt.saved += 1
        attempt.checkpoint_seconds += event["stall"]


def _between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _warning(kind: str, event: Mapping[str, Any]) -> str:
    if kind == "Warned":
        return str(event["message"])
    if kind == "RunWentBack":
        return f"{event['message']}: the run went back to epoch {event['epoch']}"
    if kind == "CheckpointFailed":
        why = why_not_saved(event["id"], event["message"])
        return f"checkpoint_{event['id']} was not saved: {why}"
    if kind == "CheckpointSkipped":
        return f"checkpoint_{event['id']} was skipped: {event['reason']}"
    if kind == "CheckpointLoaded" and event["differences"]:
        return f"other libraries from epoch {event['epoch']} on: {', '.join(event['differences'])}"
    return ""
