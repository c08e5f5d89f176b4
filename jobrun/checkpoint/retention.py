"""Retention: which checkpoints are kept, as a pure function of the records and the rules.

A checkpoint is kept if any rule keeps it.  The head is never dropped, nor is the checkpoint to
which a job returns after a ``fail`` condition came true.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from jobrun.checkpoint.record import Record
from jobrun.core.ranking import before_failure, ranked_records
from jobrun.model.policy import Best, Keep

__all__ = ["retain"]


def retain(
    records: Sequence[Record],
    keep: Keep,
    protected: Collection[int] = (),
    is_whole: Callable[[int], bool] = lambda id: True,
) -> tuple[list[Record], list[Record]]:
    """Split whole checkpoints into those to keep and those to drop, each by rising id.

    ``protected`` are ids to keep whatever the rules say, such as the one resumed from until the
    attempt's first save is durable.  A damaged checkpoint takes no other's place and is in neither
    list: ``is_whole`` is asked about all of which that matters, so not about those that are kept by
    ``every`` alone.
    """
    ordered = sorted(records, key=lambda r: r.id)
    if keep.all or not ordered:
        return ordered, []
    while True:
        chosen = _chosen(ordered, keep)
        kept = {*chosen, *protected, *_every(ordered, keep.every)}
        needed = [r.id for r in ordered if r.id in chosen or r.id not in kept]
        damaged = {id for id in needed if not is_whole(id)}
        if not damaged:
            return [r for r in ordered if r.id in kept], [r for r in ordered if r.id not in kept]
        ordered = [r for r in ordered if r.id not in damaged]


def _chosen(records: Sequence[Record], keep: Keep) -> set[int]:
    """Return the ids of those that are kept as the newest or the best, in place of others."""
    kept = {r.id for r in records[-(keep.last or 1) :]} | _best(records, keep.best)
    if (safe := before_failure(records)) is not None:
        kept.add(safe.id)
    return kept


def _every(records: Sequence[Record], epochs: int | None) -> set[int]:
    return {r.id for r in records if epochs and r.at_boundary and r.epoch % epochs == 0}


def _best(records: Sequence[Record], best: Best | None) -> set[int]:
    """Return the ids of the best checkpoints, at most ``best.count``, with finite values."""
    if best is None:
        return set()
    direction = "min" if best.smaller else "max"
    return {r.id for r in ranked_records(records, best.metric, direction)[: best.count]}
