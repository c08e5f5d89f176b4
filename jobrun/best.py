"""``best:…``: the blobs of the best checkpoint, for the groups after the loop."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from jobrun.check import best_metric
from jobrun.checkpoint.record import Record
from jobrun.graph import Plan
from jobrun.job import Job
from jobrun.rundir import RunDir
from jobrun.session.base import Session

__all__ = ["best_record", "load_best"]


def best_record(records: Iterable[Record], metric: str, direction: str) -> Record | None:
    """The checkpoint with the best finite value of a metric; of equals the newer."""
    best: tuple[float, int] | None = None
    found: Record | None = None
    for record in records:
        value = record.metrics.get(metric)
        if value is None or not math.isfinite(value):
            continue
        rank = (float(value) if direction == "max" else -float(value), record.id)
        if best is None or rank > best:
            best, found = rank, record
    return found


def load_best(
    job: Job, session: Session, run: RunDir | None, plans: Mapping[str, Plan]
) -> Record | None:
    """Let the session read what ``download`` and ``exit`` want of the best checkpoint.

    Gives its record, or None if nothing is wanted or no checkpoint has a finite value.  Raises
    DamagedError if it is not whole: another is never taken in its place.
    """
    wanted: dict[str, list[str]] = {}
    for group in ("download", "exit"):
        for unit in plans[group].units:
            for node, path in unit.access.best:
                wanted.setdefault(node, []).append(path)
    metric = best_metric(job)
    if not wanted or metric is None or run is None:
        return None
    record = best_record(run.records(), *metric)
    if record is not None:
        session.load_best(run.catalog.path(record.id), wanted)
    return record
