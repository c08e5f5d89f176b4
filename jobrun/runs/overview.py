"""A run in one line: what it is, how far it came, its metrics; cheap, for a thousand of them.

It is put together from run.json, the record of the newest checkpoint, and the end of
``metrics.csv``: the record knows the best of all epochs up to it, and the rows those after it.
Nothing is proven here, and numpy is not imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobrun.checkpoint.record import Record
from jobrun.core.ranking import Best, Extremes, best_values, extremes_of, last_scalars, with_epoch
from jobrun.errors import JobrunError, NotFoundError
from jobrun.runs.labels import Labels, read_labels
from jobrun.runs.metrics_csv import EpochRow, read_rows, tail
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir

__all__ = ["BROKEN", "UNREADABLE", "Overview", "direction_of", "kept_best", "overview", "rows_of"]

BROKEN = "broken"
"""The state shown of a run whose run.json is not what was written."""
UNREADABLE = "unreadable"
"""The state shown where the machine does not let us look."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of a line about a run.

    ``state`` is one of ``run_state.STATES``, ``BROKEN`` or ``UNREADABLE``, ``reason`` why it ended,
    or what is wrong.
    ``epoch`` epochs are completed in ``elapsed`` seconds over all attempts, of at most ``limit``
    (0: no such condition).  ``metrics`` are those of the last epoch, ``directions`` those of all
    metrics that had a value, in the order of the job, ``best`` is of those that have one,
    ``best_by`` the one that the best checkpoint goes by.  ``checkpoints`` counts what
    is named like one; ``head`` is the id of the newest (None: none), ``bytes`` its size and
    ``versions`` its libraries.  ``labels`` are the tags and the note.  ``created`` and ``updated``
    are UTC, ISO 8601.  ``vars`` are those of the spec that was run.
    """

    name: str
    path: Path
    state: str
    reason: str = ""
    job: str = ""
    spec: str | None = None
    epoch: int = 0
    limit: int = 0
    elapsed: float = 0.0
    attempts: int = 0
    created: str = ""
    updated: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    directions: Mapping[str, str | None] = field(default_factory=dict)
    best: Mapping[str, Best] = field(default_factory=dict)
    best_by: str | None = None
    checkpoints: int = 0
    head: int | None = None
    bytes: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)
    vars: Mapping[str, Any] = field(default_factory=dict)


def overview(run: RunDir, declared: Mapping[str, str | None] | None = None) -> Overview:
    """Return the overview of a run; what is wrong with the run is part of it, never raised.

    ``declared`` are the metrics of the job as it is now, with their directions, where that is not
    the one that was run last.
    """
    name = run.name
    try:
        state = run.state()
        if state is None:
            reason = "run.json cannot be read, and there is no checkpoint"
            return Overview(name, run.path, BROKEN, reason)
        if declared is None:
            declared = state.facts.get("metrics") or {}
        return _overview(run, state, name, declared)
    except (JobrunError, OSError) as error:
        message = error.message if isinstance(error, JobrunError) else str(error)
        refused = isinstance(error, NotFoundError | OSError)
        return Overview(name, run.path, UNREADABLE if refused else BROKEN, message)


def _overview(
    run: RunDir, state: RunState, name: str, declared: Mapping[str, str | None]
) -> Overview:
    ids = [id for id in run.catalog.ids() if state.rewind is None or not state.rewind.leaves(id)]
    head = _newest(run, ids)
    rows = tail(run.path / "metrics.csv", head.epoch if head else -1)
    last = rows[-1] if rows else None
    metrics = _last_metrics(declared, head, last)
    extremes = _extremes(head, rows)
    names = dict.fromkeys((*metrics, *(n for n in extremes if _is_declared(declared, n))))
    directions = {n: direction_of(declared, n) for n in _in_order(names, declared)}
    best = best_values(extremes, directions)
    return Overview(
        name=name,
        path=run.path,
        state=state.state,
        reason=state.reason,
        job=state.job,
        spec=state.spec,
        epoch=last.epoch if last else head.epoch if head else state.epoch,
        limit=_limit(state.facts),
        elapsed=_elapsed(state, head, last),
        attempts=state.attempts,
        created=state.created,
        updated=max(state.updated, head.time if head else ""),
        metrics=metrics,
        directions=directions,
        best=best,
        best_by=kept_best(state.facts) or next(iter(best), None),
        checkpoints=len(ids),
        head=head.id if head else None,
        bytes=head.bytes if head else None,
        versions=head.versions if head else {},
        labels=read_labels(run),
        vars=state.facts.get("vars") or {},
    )


def _newest(run: RunDir, ids: Iterable[int]) -> Record | None:
    """Return the newest checkpoint whose record can be read."""
    for id in sorted(ids, reverse=True):
        with suppress(JobrunError):
            return run.catalog.record(id)
    return None


def _last_metrics(
    declared: Mapping[str, str | None], head: Record | None, last: EpochRow | None
) -> dict[str, Any]:
    """Return the metrics of the last epoch.

    A record holds other scalars too, those of the stop conditions.
    """
    if last is not None and (head is None or last.epoch >= head.epoch):
        return {n: last.metrics[n] for n in _in_order(last.metrics, declared)}
    seen = last_scalars(head) if head else {}
    names = [n for n in seen if _is_declared(declared, n)] if declared else seen
    return {n: seen[n] for n in _in_order(names, declared)}


def _in_order(names: Iterable[str], declared: Mapping[str, str | None]) -> list[str]:
    """Return metrics in the order of the job, whatever epoch had a value of them first."""
    places = {name: place for place, name in enumerate(declared)}
    return sorted(names, key=lambda n: places.get(n, places.get(n.partition(":")[2], len(places))))


def _is_declared(declared: Mapping[str, str | None], name: str) -> bool:
    """Return whether a scalar is a metric, by its own name or by that without the node."""
    return name in declared or name.partition(":")[2] in declared


def direction_of(declared: Mapping[str, str | None], name: str) -> str | None:
    """Return ``min`` or ``max``: of a metric by its own name, or by that without the node."""
    return declared.get(name) or declared.get(name.partition(":")[2])


def kept_best(facts: Mapping[str, Any]) -> str | None:
    """Return the metric of ``checkpoint.keep.best`` in the facts of a job."""
    found: Any = facts.get("checkpoint")
    for key in ("keep", "best", "metric"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else None


def _extremes(head: Record | None, rows: Iterable[EpochRow]) -> Extremes:
    """Return the extremes of all epochs: the record of the head holds those up to it."""
    extremes = extremes_of(head) if head else {}
    for row in rows:
        if head is None or row.epoch > head.epoch:
            extremes = with_epoch(extremes, row.epoch, row.metrics)
    return extremes


def _limit(facts: Mapping[str, Any]) -> int:
    """Return the limit of epochs, if there is one."""
    stop = facts.get("stop") or {}
    limits = [v for k, v in stop.items() if k.split(" ")[0] == "epochs" and isinstance(v, int)]
    return min(limits, default=0)


def _elapsed(state: RunState, head: Record | None, last: EpochRow | None) -> float:
    """Return the seconds of all attempts; while one runs, run.json has those before it."""
    if state.over:
        return state.elapsed
    recorded = 0.0 if state.state == "running" else state.elapsed
    known = (recorded, (last.elapsed if last else None) or 0.0, head.run_seconds if head else 0.0)
    return max(known)


def rows_of(run: RunDir) -> list[EpochRow]:
    """Return the epochs of a run with their metrics.

    Epochs without a row in ``metrics.csv``, such as those that a script has run before it was
    there, have those of their checkpoints.
    """
    rows = {row.epoch: row for row in read_rows(run.path / "metrics.csv")}
    if not rows or len(rows) < max(rows):
        for record in run.records():
            if record.at_boundary and record.metrics and record.epoch not in rows:
                seconds = record.run_seconds
                rows[record.epoch] = EpochRow(record.epoch, None, seconds, dict(record.metrics))
    return [rows[epoch] for epoch in sorted(rows)]
