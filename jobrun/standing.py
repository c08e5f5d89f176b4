"""Where a run stands: its position, what the stop conditions have seen, time, metrics, the best."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobrun.access import key_of
from jobrun.checkpoint.record import Record, RecordFields
from jobrun.frequency import Frequency
from jobrun.graph import unit_key
from jobrun.job import Job
from jobrun.metrics import metric_names
from jobrun.position import Position
from jobrun.stop import (
    Condition,
    Decision,
    Seen,
    Walltime,
    decide_stop,
    match_states,
    observe_all,
    saved_states,
)

__all__ = ["Standing", "best_of", "last_seen"]


class Standing:
    """What a run has come to; saved in every checkpoint and restored from one."""

    def __init__(self, job: Job, conditions: Sequence[tuple[Condition, bool]]) -> None:
        self._job = job
        self.position = Position()
        self.scalars: dict[str, Any] = {}
        self.best: dict[str, tuple[Any, int]] = {}
        self.decision: Decision | None = None
        self._conditions = conditions
        self._watched = match_states(conditions, [])
        self._directions = {n: d for n, d in metric_names(job).items() if d is not None}
        self._metrics = tuple(metric_names(job))
        self._frequency = Frequency(job)
        self._elapsed_before = 0.0
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds of the run, over all its attempts."""
        return self._elapsed_before + time.monotonic() - self._started

    @property
    def names(self) -> tuple[str, ...]:
        """The scalar blobs to be looked at after each epoch."""
        wanted = [*self._metrics, *(n for c, _ in self._conditions for n in c.names)]
        return tuple(dict.fromkeys(wanted))

    @property
    def watched_paths(self) -> dict[str, list[str]]:
        """The same blobs as paths, per node."""
        paths: dict[str, list[str]] = {}
        for name in self.names:
            node, path = key_of(self._job, name)
            paths.setdefault(node, []).append(path)
        return paths

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the epoch that was finished last; those without a value are absent."""
        return {n: self.scalars[n] for n in self._metrics if n in self.scalars}

    @property
    def without_value(self) -> tuple[str, ...]:
        """The metrics that were due in the epoch that was finished last, and have no value."""
        epoch = self.position.epochs
        missing = (n for n in self._metrics if n not in self.scalars)
        return tuple(n for n in missing if self._frequency.has_value(n, epoch))

    @property
    def gauges(self) -> tuple[str, ...]:
        """How near each stop condition is."""
        texts = (w.condition.gauge(w.state) for w in self._watched)
        return tuple(t for t in texts if t)

    def finish_epoch(self, position: Position, scalars: Mapping[str, Any]) -> tuple[str, ...]:
        """The epoch is done at ``position``: let every condition observe, and decide.

        Gives the metrics whose value is now better than any before; of equal ones the newer epoch
        is the best, as it is for ``best:…`` and for retention.
        """
        self.position = position.next_epoch(position.readers)
        epoch = self.position.epochs
        self.scalars = {n: v for n, v in scalars.items() if self._frequency.has_value(n, epoch)}
        seen = Seen(epoch, self.elapsed, self.scalars, _passes(self._job, self.position))
        self._watched = observe_all(self._watched, seen)
        self.decision = decide_stop(self._watched)
        improved = tuple(n for n in self._directions if self._improves(n))
        equal = [n for n, (best, _) in self.best.items() if self.scalars.get(n) == best]
        self.best.update({n: (self.scalars[n], epoch) for n in (*improved, *equal)})
        return improved

    def cut(self, position: Position) -> None:
        """The epoch was cut at ``position``: of the conditions, only the walltime looks."""
        self.position = position
        self._watched = tuple(
            replace(w, state={"elapsed": self.elapsed}) if isinstance(w.condition, Walltime) else w
            for w in self._watched
        )
        self.decision = decide_stop(w for w in self._watched if isinstance(w.condition, Walltime))

    def _improves(self, name: str) -> bool:
        value = self.scalars.get(name)
        if value is None or not math.isfinite(value):
            return False
        if name not in self.best:
            return True
        best = self.best[name][0]
        return bool(value < best if self._directions[name] == "min" else value > best)

    def verdict(self) -> Decision | None:
        """What the conditions of now say of what was seen so far."""
        return decide_stop(self._watched)

    def fields(self, job: str, digest: str, versions: Mapping[str, str]) -> RecordFields:
        """What a checkpoint of now says about it."""
        return RecordFields(
            position=self.position,
            run_seconds=self.elapsed,
            metrics=dict(self.scalars),
            stops=saved_states(self._watched),
            decision=self.decision.to_json() if self.decision else None,
            versions=versions,
            job=job,
            digest=digest,
            extra={"best": {n: list(b) for n, b in self.best.items()}},
        )

    def restore(self, record: Record) -> None:
        """Stand where the checkpoint stands."""
        self.position = record.position
        self.scalars = dict(record.metrics)
        self.best = {n: best for n, best in best_of(record).items() if n in self._directions}
        seen = last_seen(self._job, record)
        self._watched = match_states(self._conditions, list(record.stops), seen)
        self._elapsed_before = record.run_seconds
        self._started = time.monotonic()


def best_of(record: Record) -> dict[str, tuple[Any, int]]:
    """The best ``(value, epoch)`` of each metric, as a checkpoint has them."""
    return {n: (value, epoch) for n, (value, epoch) in record.extra.get("best", {}).items()}


def last_seen(job: Job, record: Record) -> Seen | None:
    """What the stop conditions saw at the end of the epoch that a checkpoint was made after."""
    if record.epoch < 1 or not record.at_boundary:
        return None
    passes = _passes(job, record.position)
    return Seen(record.epoch, record.run_seconds, record.metrics, passes)


def _passes(job: Job, position: Position) -> dict[str, int]:
    """Passes finished, per pipe: with several nodes the most, since any node's end counts."""
    passes: dict[str, int] = {}
    for group, pipe in job.pipes():
        for node in job.nodes_of(pipe) if group.name == "epoch" else ():
            reader = position.readers.get(unit_key(job, pipe, node))
            if reader is not None:
                passes[pipe.name] = max(passes.get(pipe.name, 0), reader.passes)
    return passes
