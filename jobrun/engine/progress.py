"""The progress of a run: position, states of the stop conditions, time, metrics, the best."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import unit_key
from jobrun.analysis.metrics import metric_names
from jobrun.analysis.names import key_of
from jobrun.analysis.schedule import Frequency
from jobrun.checkpoint.record import Record, RecordFields
from jobrun.conditions.base import Condition, EpochSummary
from jobrun.conditions.decision import (
    ConditionState,
    Decision,
    decide_stop,
    match_states,
    observe_all,
    saved_states,
)
from jobrun.core.position import Position
from jobrun.core.ranking import (
    EXTREMES,
    FAILS,
    LAST_SCALARS,
    Best,
    Extremes,
    best_values,
    extremes_of,
    kept_names,
    last_scalars,
    with_epoch,
)
from jobrun.model.job import Job

__all__ = ["RunProgress", "last_seen"]

_WRITTEN = "written"
"""The key in ``extra`` of a record inside an epoch for the scalars already written in it;
a record without it, of an earlier version, is taken to have all."""


class RunProgress:
    """The progress of a run; saved in every checkpoint and restored from one."""

    def __init__(self, analysis: JobAnalysis, conditions: Sequence[tuple[Condition, bool]]) -> None:
        self._job = analysis.job
        self._conditions = conditions
        metrics = metric_names(analysis)
        self._directions = {n: d for n, d in metrics.items() if d is not None}
        self._metrics = tuple(metrics)
        self._frequency = Frequency(analysis)
        self.reset()

    def reset(self) -> None:
        """Set the progress to that of a run that has not begun."""
        self.position = Position()
        self.scalars: dict[str, Any] = {}
        self.written: tuple[str, ...] = ()
        """The scalars written in the epoch before it was cut."""
        self._extremes: Extremes = {}
        self.decision: Decision | None = None
        self._watched = match_states(self._conditions, [])
        self._elapsed_before = 0.0
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """The seconds of the run, over all its attempts."""
        return self._elapsed_before + time.monotonic() - self._started

    @property
    def names(self) -> tuple[str, ...]:
        """The scalar blobs to read after each epoch."""
        wanted = [*self._metrics, *(n for c, _ in self._conditions for n in c.names)]
        return tuple(dict.fromkeys(wanted))

    @property
    def fail_names(self) -> tuple[str, ...]:
        """The scalar blobs that the conditions under ``fail`` read."""
        return tuple(dict.fromkeys(n for c, fails in self._conditions if fails for n in c.names))

    @property
    def watched_paths(self) -> dict[str, list[str]]:
        """The same blobs as paths, per node."""
        paths: dict[str, list[str]] = {}
        for name in self.names:
            node, path = key_of(self._job, name)
            paths.setdefault(node, []).append(path)
        return paths

    @property
    def watched(self) -> tuple[ConditionState, ...]:
        """The stop conditions with their states."""
        return self._watched

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the last finished epoch; those without a value are absent."""
        return {n: self.scalars[n] for n in self._metrics if n in self.scalars}

    @property
    def without_value(self) -> tuple[str, ...]:
        """The metrics that were due in the last finished epoch and have no value."""
        epoch = self.position.epochs
        missing = (n for n in self._metrics if n not in self.scalars)
        return tuple(n for n in missing if self._frequency.is_due(n, epoch))

    @property
    def best(self) -> dict[str, Best]:
        """The best ``(value, epoch)`` so far of each metric that has a direction."""
        return best_values(self._extremes, self._directions)

    def best_at(self, record: Record) -> dict[str, Best]:
        """Return the best ``(value, epoch)`` of each metric up to a checkpoint."""
        return best_values(extremes_of(record), self._directions)

    @property
    def texts(self) -> tuple[str, ...]:
        """The progress towards each stop condition, as text."""
        texts = (w.condition.progress_text(w.state) for w in self._watched)
        return tuple(t for t in texts if t)

    def finish_epoch(self, position: Position, scalars: Mapping[str, Any]) -> tuple[str, ...]:
        """Finish the epoch at ``position``: every condition observes and decides.

        Returns the metrics whose value is now better than any before.
        """
        self.position = position.next_epoch(position.readers)
        epoch = self.position.epochs
        self.scalars = {n: v for n, v in scalars.items() if v is not None}
        passes, ahead = _passes(self._job, self.position)
        none = frozenset(n for n, v in scalars.items() if v is None)
        seen = EpochSummary(epoch, self.elapsed, self.scalars, passes, none, ahead)
        self._watched = observe_all(self._watched, seen)
        self.decision = decide_stop(self._watched)
        self._extremes = with_epoch(self._extremes, epoch, self.scalars)
        return tuple(n for n, (_, of) in self.best.items() if of == epoch)

    def cut(self, position: Position) -> None:
        """Cut the epoch at ``position``: of the conditions, only the walltime observes."""
        self.position = position
        seen = EpochSummary(position.epochs, self.elapsed)
        self._watched = tuple(
            w if w.condition.time_limit is None else w.observe(seen) for w in self._watched
        )
        self.decision = decide_stop(w for w in self._watched if w.condition.time_limit is not None)

    def verdict(self) -> Decision | None:
        """Return the verdict of the current conditions on their states so far."""
        return decide_stop(self._watched)

    def fields(self, job: str, digest: str, versions: Mapping[str, str]) -> RecordFields:
        """Return the progress as fields of a checkpoint's record."""
        extra: dict[str, Any] = {EXTREMES: self._extremes}
        if any(fails for _, fails in self._conditions):
            extra[FAILS] = list(self.fail_names)
        if not self.position.at_boundary:
            extra[LAST_SCALARS] = dict(self.scalars)
            extra[_WRITTEN] = list(self.written)
        return RecordFields(
            position=self.position,
            run_seconds=self.elapsed,
            metrics=dict(self.scalars) if self.position.at_boundary else {},
            stops=saved_states(self._watched),
            decision=self.decision.to_json() if self.decision else None,
            versions=versions,
            job=job,
            digest=digest,
            extra=extra,
        )

    def restore(self, record: Record) -> None:
        """Restore the progress from a checkpoint."""
        self.position = record.position
        self.scalars = last_scalars(record)
        self.written = () if record.at_boundary else kept_names(record, _WRITTEN, self.names)
        self._extremes = extremes_of(record)
        seen = last_seen(self._job, record)
        self._watched = match_states(self._conditions, list(record.stops), seen)
        self._elapsed_before = record.run_seconds
        self._started = time.monotonic()


def last_seen(job: Job, record: Record) -> EpochSummary | None:
    """Return the stop conditions' states at the end of the epoch before a checkpoint."""
    if record.epoch < 1 or not record.at_boundary:
        return None
    passes, ahead = _passes(job, record.position)
    return EpochSummary(record.epoch, record.run_seconds, record.metrics, passes, ahead=ahead)


def _passes(job: Job, position: Position) -> tuple[dict[str, int], dict[str, str]]:
    """Return the passes finished per pipe: of several nodes the most, as any end counts.

    Also the nodes that have finished them, of pipes of which others have not.
    """
    passes: dict[str, int] = {}
    ahead: dict[str, str] = {}
    for group, pipe in job.pipes():
        found: dict[str, int] = {}
        for node in job.nodes_of(pipe) if group.name == "epoch" else ():
            reader = position.readers.get(unit_key(job, pipe, node))
            if reader is not None:
                found[node] = reader.passes
        if found:
            most = passes[pipe.name] = max(found.values())
            first = [node for node, count in found.items() if count == most]
            if len(first) < len(found):
                ahead[pipe.name] = ", ".join(first)
    return passes, ahead
