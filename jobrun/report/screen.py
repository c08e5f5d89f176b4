"""The state of a run that the live view shows: events and times go in.

``jobrun.report.layout`` makes rows of it, ``jobrun.report.terminal`` puts them on a terminal.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod
from typing import Any

from jobrun.core.events import (
    BatchesDone,
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    EpochFinished,
    Event,
    GroupFinished,
    GroupStarted,
    RunStarted,
    RunWentBack,
    SaveStarted,
    Stopping,
    TaskProgress,
    TasksRunning,
)
from jobrun.core.ranking import better, finite
from jobrun.core.text import span

__all__ = ["Metric", "PipeProgress", "Screen"]

_RECENT_EPOCHS = 20
_RECENT_SECONDS = 5.0
_ENOUGH = 0.05
"""The share of the first epoch from which on its length is estimated."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's value after the last epoch, and the best one before it.

    ``change`` is ``better``, ``worse`` or ``equal`` (empty: nothing to compare with); ``sign`` is 1
    if the value is above the best, -1 if it is below it, else 0.
    """

    name: str
    value: Any
    best: Any = None
    best_epoch: int = 0
    change: str = ""
    sign: int = 0


@dataclass
class PipeProgress:
    """The position of a pipe in its epoch, and its rate in the last seconds.

    ``moments`` are times with the batches and rows so far, counted over epochs.
    """

    done: int = 0
    total: int | None = None
    rows: int = 0
    moments: deque[tuple[float, int, int]] = field(default_factory=deque)

    def take(self, event: BatchesDone, now: float) -> None:
        """Update the state from ``event``: some more batches are done."""
        batches, rows = self.moments[-1][1:] if self.moments else (0, 0)
        if self.moments:
            batches, rows = batches + event.done - self.done, rows + event.rows - self.rows
        self.moments.append((now, batches, rows))
        while now - self.moments[0][0] > _RECENT_SECONDS and len(self.moments) > 2:
            self.moments.popleft()
        self.done, self.total, self.rows = event.done, event.total, event.rows

    def begin(self, new: bool) -> None:
        """Start the group of the pipe: a ``new`` epoch, or one that continues after a cut."""
        self.rows = 0
        if new:
            self.done = 0

    @property
    def rates(self) -> tuple[float, float]:
        """Batches and rows per second; zeros while they are unknown."""
        if len(self.moments) < 2:
            return 0.0, 0.0
        (t0, b0, r0), (t1, b1, r1) = self.moments[0], self.moments[-1]
        seconds = max(t1 - t0, 1e-9)
        return (b1 - b0) / seconds, (r1 - r0) / seconds

    @property
    def fraction(self) -> float | None:
        """The finished share of the epoch, if its length is known."""
        return min(1.0, self.done / self.total) if self.total else None


@dataclass
class Screen:
    """The state of the run; times are those of one monotonic clock, in seconds."""

    job: str = ""
    epochs: int | None = None
    walltime: float | None = None
    may_end_earlier: bool = False
    started: float = 0.0
    elapsed_before: float = 0.0
    checkpoint: int | None = None
    loaded: bool = False
    stopping: str = ""
    epoch: int = 0
    group: str = ""
    group_started: float = 0.0
    started_epoch: int = 0
    inside_epoch: bool = False
    epoch_started: float = 0.0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_EPOCHS + 1))
    directions: Mapping[str, str | None] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    best: dict[str, tuple[Any, int]] = field(default_factory=dict)
    progress_texts: tuple[str, ...] = ()
    pipes: dict[tuple[str, str], PipeProgress] = field(default_factory=dict)
    fractions: dict[str, float] = field(default_factory=dict)
    running: tuple[tuple[str, float], ...] = ()
    count: int = 0
    running_at: float = 0.0
    running_shown: float = -math.inf
    saved: CheckpointSaved | None = None
    saving: SaveStarted | None = None
    saving_since: float = 0.0
    waited: float = 0.0

    def take(self, event: Event, now: float) -> None:
        """Update the state from ``event``."""
        _method_of(type(event))(self, event, now)

    @singledispatchmethod
    def _take(self, event: Event, now: float) -> None:
        """Do nothing: an event that is not shown."""

    @_take.register
    def _(self, event: RunStarted, now: float) -> None:
        self.job, self.epochs, self.epoch = event.job, event.epochs, event.epoch
        self.walltime, self.may_end_earlier = event.walltime, event.may_end_earlier
        self.started, self.elapsed_before = now, event.elapsed
        self.checkpoint = event.checkpoint
        self.directions, self.best = event.metrics, dict(event.best)

    @_take.register
    def _(self, event: RunWentBack, now: float) -> None:
        self.epoch, self.checkpoint = event.epoch, event.checkpoint
        self.ends.clear()
        self.pipes.clear()
        self.fractions.clear()
        self.saving = None

    @_take.register
    def _(self, event: GroupStarted, now: float) -> None:
        self.group, self.group_started = event.group, now
        self.inside_epoch = event.group == "epoch"
        if self.inside_epoch:
            new = event.epoch != self.started_epoch
            if new:
                self.started_epoch, self.epoch_started = event.epoch, now
            if not self.ends:
                self.ends.append(now)
            for pipe in self.pipes.values():
                pipe.begin(new)
        else:
            self.pipes.clear()
        self.fractions.clear()

    @_take.register
    def _(self, event: GroupFinished, now: float) -> None:
        self.running, self.count = (), 0
        if event.group != "epoch":
            self.group = ""

    @_take.register
    def _(self, event: TasksRunning, now: float) -> None:
        self.running, self.count, self.running_at = event.tasks, event.count, now
        if self.running_now(now):
            self.running_shown = now

    @_take.register
    def _(self, event: BatchesDone, now: float) -> None:
        self.pipes.setdefault((event.task, event.node), PipeProgress()).take(event, now)

    @_take.register
    def _(self, event: TaskProgress, now: float) -> None:
        self.fractions[_key(event.task, event.node)] = event.fraction

    @_take.register
    def _(self, event: EpochFinished, now: float) -> None:
        self.fractions.clear()
        self.inside_epoch = False
        self.epoch = event.epoch
        self.ends.append(now)
        self.progress_texts = tuple(t for t in event.progress_texts if t)
        self.metrics = [self._metric(n, v) for n, v in event.metrics.items()]
        self.best |= {n: (event.metrics.get(n), event.epoch) for n in event.best}

    def _metric(self, name: str, value: Any) -> Metric:
        direction = self.directions.get(name)
        if direction is None or name not in self.best:
            return Metric(name, value)
        best, epoch = self.best[name]
        try:
            sign = (value > best) - (value < best)
        except TypeError:
            return Metric(name, value)
        if finite(value) is None:
            return Metric(name, value, best, epoch, "worse")
        improves = better(value, best, direction)
        change = "better" if improves else "worse" if sign else "equal"
        return Metric(name, value, best, epoch, change, sign)

    @_take.register
    def _(self, event: SaveStarted, now: float) -> None:
        self.saving, self.saving_since = event, now

    @_take.register
    def _(self, event: CheckpointSaved, now: float) -> None:
        self.saved, self.saving = event, None
        self.waited += event.stall

    @_take.register
    def _(self, event: CheckpointFailed, now: float) -> None:
        self.saving = None

    @_take.register
    def _(self, event: CheckpointLoaded, now: float) -> None:
        self.loaded, self.epoch = True, event.epoch

    @_take.register
    def _(self, event: Stopping, now: float) -> None:
        self.stopping = event.signal

    # Derived values.

    def phase(self) -> str:
        """Return the current phase in a word or two; empty inside the loop."""
        if self.group == "epoch":
            return ""
        if self.group:
            return self.group
        if self.checkpoint is not None and not self.loaded:
            return f"loading checkpoint_{self.checkpoint}"
        return "starting" if not self.ends else ""

    def phase_seconds(self, now: float) -> float:
        """Return the seconds since the phase began."""
        return now - (self.group_started or self.started)

    def elapsed(self, now: float) -> float:
        """Return the seconds of the run, over all attempts."""
        return self.elapsed_before + now - self.started

    def per_epoch(self, now: float) -> float | None:
        """Return the seconds of an epoch: of the last ones, or estimated within the first."""
        if len(self.ends) > 1:
            return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)
        parts = [f for p in self.pipes.values() if (f := p.fraction) is not None]
        if self.group == "epoch" and parts and sum(parts) / len(parts) > _ENOUGH:
            return (now - self.epoch_started) * len(parts) / sum(parts)
        return None

    def left(self, now: float) -> float | None:
        """Return the seconds until the limit of epochs or of time, whichever is nearer."""
        limits = []
        per_epoch = self.per_epoch(now)
        if self.epochs is not None and per_epoch is not None and self.ends:
            limits.append((self.epochs - self.epoch) * per_epoch - (now - self.ends[-1]))
        if self.walltime is not None:
            limits.append(self.walltime - self.elapsed(now))
        return max(0.0, min(limits)) if limits else None

    def fraction(self, now: float) -> float | None:
        """Return the finished share of the run, by the nearer limit; None if there is none."""
        parts = []
        if self.epochs is not None:
            parts.append((self.epoch + self._inside(now)) / self.epochs)
        if self.walltime is not None:
            parts.append(self.elapsed(now) / self.walltime)
        return min(1.0, max(parts)) if parts else None

    def _inside(self, now: float) -> float:
        """Return about which share of the current epoch is done."""
        per_epoch = self.per_epoch(now)
        if not self.inside_epoch or not per_epoch or not self.ends:
            return 0.0
        return min(0.95, (now - self.ends[-1]) / per_epoch)

    def progress_texts_now(self, now: float) -> tuple[str, ...]:
        """Return the progress of each stop condition: of time now, of others at the last epoch."""
        if self.walltime is None:
            return self.progress_texts
        time = f"walltime {span(self.elapsed(now))}/{span(self.walltime)}"
        others = tuple(g for g in self.progress_texts if not g.startswith("walltime "))
        return (*others, time)

    def running_now(self, now: float) -> list[tuple[str, float]]:
        """Return the running tasks that are no pipes, and the seconds so far."""
        shown = {_key(task, node) for task, node in self.pipes} | {t for t, _ in self.pipes}
        since = now - self.running_at
        return [(task, s + since) for task, s in self.running if task not in shown]


_method_of = vars(Screen)["_take"].dispatcher.dispatch
"""The method for a type of event: singledispatchmethod takes 2 µs to find it for each call."""


def _key(task: str, node: str) -> str:
    """Return the name of a task in ``TasksRunning``."""
    return task if node == "main" else f"{node}:{task}"
