"""Retention: which checkpoints are kept, as a pure function of the records and the rules.

A checkpoint is kept if any rule keeps it.  The head is never dropped, nor is the checkpoint to
which a job returns after a ``fail`` condition came true.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jobrun.checkpoint.record import Record
from jobrun.core.ranking import before_failure, ranked_records
from jobrun.model.policy import Best, Keep

__all__ = ["retain"]


def retain(
    records: Sequence[Record], keep: Keep, protected: Collection[int] = ()
) -> tuple[list[Record], list[Record]]:
    """Split whole checkpoints into those to keep and those to drop, each by rising id.

    ``protected`` are ids to keep whatever the rules say, such as the one resumed from until the
    attempt's first save is durable.
    """
    ordered = sorted(records, key=lambda r: r.id)
    if keep.all or not ordered:
        return ordered, []
    kept = {ordered[-1].id, *protected}
    kept |= _last(ordered, keep.last)
    kept |= _every(ordered, keep.every)
    kept |= _best(ordered, keep.best)
    if (safe := before_failure(ordered)) is not None:
        kept.add(safe.id)
    return [r for r in ordered if r.id in kept], [r for r in ordered if r.id not in kept]


def _last(records: Sequence[Record], count: int | None) -> set[int]:
    return {r.id for r in records[-count:]} if count else set()


def _every(records: Sequence[Record], epochs: int | None) -> set[int]:
    return {r.id for r in records if epochs and r.at_boundary and r.epoch % epochs == 0}


def _best(records: Sequence[Record], best: Best | None) -> set[int]:
    """Return the ids of the best checkpoints, at most ``best.count``, with finite values."""
    if best is None:
        return set()
    direction = "min" if best.smaller else "max"
    return {r.id for r in ranked_records(records, best.metric, direction)[: best.count]}
