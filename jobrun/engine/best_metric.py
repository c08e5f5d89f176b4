"""The best checkpoint of a run: for ``best:…`` in the groups after the loop, and for users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jobrun.checkpoint.record import Record
from jobrun.core.ranking import best_record
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import DamagedError, NotFoundError, UsageError
from jobrun.runs.node_map import NodeMaps
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir

if TYPE_CHECKING:
    from jobrun.analysis.analysis import JobAnalysis
    from jobrun.analysis.graph import Plan
    from jobrun.engine.history import AnyHistory
    from jobrun.session.base import Session

__all__ = ["best_by", "best_in", "best_of", "load_best", "named_now"]


def named_now(records: Iterable[Record], state: RunState | None) -> list[Record]:
    """Return the checkpoints of a run, their records with the current names of their nodes."""
    maps = NodeMaps.from_json(state.node_maps if state is not None else ())
    return [maps.mapped(record) for record in records]


def best_by(
    run: RunDir, metric: str | None = None, records: Sequence[Record] | None = None
) -> tuple[str, str]:
    """Return a metric that checkpoints can be ranked by, and its direction, min or max.

    ``metric`` may end in ``:min`` or ``:max``; else the job defines it.  Without ``metric``
    it is that of ``checkpoint.keep.best``, or the only one with a direction.  ``records`` are the
    checkpoints of the run with the current names of their nodes, if known.  Raises NotFoundError
    for one that no checkpoint has, UsageError if the choice is ambiguous.
    """
    from jobrun.runs.overview import direction_of, kept_best

    state = run.state()
    facts = state.facts if state is not None else {}
    if records is None:
        records = named_now(run.records(), state)
    seen = list(dict.fromkeys(name for record in records for name in record.metrics))
    declared = facts.get("metrics") or {}
    if not records:
        raise NotFoundError("there is no checkpoint", where=run.shown())
    if metric is None:
        metric = kept_best(facts)
    if not seen:
        text = f"no checkpoint has a metric{f' {metric!r}' if metric else ''}"
        hint = "metrics are recorded at the end of an epoch, and none has any"
        raise NotFoundError(text, where=run.shown(), hint=hint)
    if metric is None:
        directed = [name for name in seen if direction_of(declared, name)]
        if len(directed) != 1:
            hint = f"name one: {', '.join(directed or seen)}"
            raise UsageError("best by which metric?", where=run.shown(), hint=hint)
        metric = directed[0]
    name, _, given = metric.rpartition(":")
    if not name or given not in ("min", "max"):
        name, given = metric, direction_of(declared, metric) or ""
    if name not in seen:
        hint = did_you_mean_or_all(name, seen)
        raise NotFoundError(f"no checkpoint has a metric {name!r}", where=run.shown(), hint=hint)
    if not given:
        hint = f"write {name}:min or {name}:max"
        raise UsageError(f"is a smaller or a larger {name!r} better?", hint=hint)
    return name, given


def best_in(state: RunState | None, records: Sequence[Record]) -> dict[int, tuple[str, ...]]:
    """Return the ids of those of the checkpoints that are the best of them by some metric.

    With the metrics, those that have a direction, by their names in the records.
    """
    from jobrun.runs.overview import direction_of

    now = named_now(records, state)
    declared = (state.facts.get("metrics") if state is not None else None) or {}
    found: dict[int, tuple[str, ...]] = {}
    for name in dict.fromkeys(name for record in now for name in record.metrics):
        direction = direction_of(declared, name)
        if direction and (best := best_record(now, name, direction)):
            found[best.id] = (*found.get(best.id, ()), name)
    return found


def best_of(run: RunDir, metric: str | None = None) -> Path:
    """Return the path of the best checkpoint of a run; ``metric`` as for ``best_by``.

    Raises NotFoundError if no checkpoint has a finite value, DamagedError if the best is not whole.
    """
    records = named_now(run.records(), run.state())
    name, direction = best_by(run, metric, records)
    record = best_record(records, name, direction)
    if record is None:
        raise NotFoundError(f"no checkpoint has a finite value of {name!r}", where=run.shown())
    run.catalog.check(record.id)
    return run.catalog.path(record.id)


def load_best(
    analysis: JobAnalysis,
    session: Session,
    history: AnyHistory,
    plans: Mapping[str, Plan],
    newest: int | None = None,
) -> Record | None:
    """Make the session read the blobs of the best checkpoint that ``download`` and ``exit`` use.

    ``newest``: the id of the last one that counts, where the run is looked at as it was then.
    Returns its record, or None if nothing is used or no checkpoint of these nodes, under the names
    that they have now, has a finite value.  Raises DamagedError if it is not whole: another is
    never taken in its place.
    """
    from jobrun.analysis.metrics import best_metric  # the commands that rank analyse no job

    wanted: dict[str, list[str]] = {}
    for group in ("download", "exit"):
        for unit in plans[group].units:
            for node, path in unit.access.best:
                wanted.setdefault(node, []).append(path)
    metric, run = best_metric(analysis), history.run
    if not wanted or metric is None or run is None:
        return None
    own, parts = [], {}
    for record in run.records():
        if newest is None or record.id <= newest:
            with suppress(DamagedError, UsageError):  # of other nodes
                parts[record.id] = history.parts(record)
                own.append(history.mapped(record))
    best = best_record(own, *metric)
    if best is not None:
        session.load_best(run.catalog.path(best.id), wanted, parts[best.id])
    return best
