"""The rule for "the best", one for retention, ``best:``, every command, patience, the live view.

- Only a finite number can be the best: NaN and the infinities of either sign never are.
- An improvement is strict, so of equal values the earlier epoch is the best.
- Only a checkpoint at the boundary of an epoch has metrics (see ``Record``), so one inside an epoch
  is never the best.
- For a condition under ``fail``, retention keeps, and a resume loads, the newest checkpoint at a
  boundary from before it came true (see ``before_failure``).
- The current direction of a metric decides.  A checkpoint therefore keeps, of every scalar, both
  the smallest and the largest value of the history up to it.

Neither numpy nor zarr is imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobrun.checkpoint.record import Record

__all__ = [
    "EXTREMES",
    "FAILS",
    "LAST_SCALARS",
    "Best",
    "Extremes",
    "before_failure",
    "best_record",
    "best_values",
    "better",
    "extremes_of",
    "finite",
    "first_best",
    "kept_names",
    "last_scalars",
    "ranked",
    "ranked_records",
    "with_epoch",
]

T = TypeVar("T")

Best = tuple[Any, int]
"""The best value of a metric, and its epoch."""

Extremes = Mapping[str, Mapping[str, Best]]
"""For each scalar its best value under either direction, ``{"loss": {"min": …, "max": …}}``."""

EXTREMES = "extremes"
"""The key of the extremes in ``extra`` of a record."""

FAILS = "fails"
"""The key in ``extra`` of a record of the scalars that the conditions under ``fail`` look at; a job
without such conditions has none."""

LAST_SCALARS = "last_scalars"
"""The key in ``extra`` of a record inside an epoch, which has no metrics of its own, of the scalars
at the end of the epoch before."""


def finite(value: Any) -> Any:
    """Return ``value`` as a Python number if it is a finite one, else None."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, int):  # bool included; one beyond the range of floats is finite too
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def better(value: Any, best: Any, direction: str, min_delta: float = 0.0) -> bool:
    """Return whether ``value`` improves on ``best``, by more than ``min_delta``.

    Any finite value improves on a ``best`` that is not finite, or None.
    """
    value, best = finite(value), finite(best)
    if value is None:
        return False
    if best is None:
        return True
    lower = direction == "min"
    if isinstance(value, int) and isinstance(best, int):  # not rounded to floats
        return (best - value if lower else value - best) > min_delta
    try:
        bound = best - (min_delta or 0) if lower else best + (min_delta or 0)
    except OverflowError:  # an integer beyond all floats, beside which a delta is nothing
        bound = best
    return bool(value < bound if lower else value > bound)


def ranked(items: Iterable[T], value: Callable[[T], Any], direction: str) -> list[T]:
    """Return the items whose value is finite, the best first, equal ones in their order."""
    known = [(number, item) for item in items if (number := finite(value(item))) is not None]
    known.sort(key=lambda pair: pair[0] if direction == "min" else -pair[0])
    return [item for _, item in known]


def first_best(items: Iterable[T], value: Callable[[T], Any], direction: str) -> T | None:
    """Return the first of the best items, or None if no value is finite."""
    return next(iter(ranked(items, value, direction)), None)


# Checkpoints.


def ranked_records(records: Iterable[Record], metric: str, direction: str) -> list[Record]:
    """Return the checkpoints with a finite value of ``metric``, the best first.

    Of equal values the earlier epoch comes first, and of one epoch the newest checkpoint.
    """
    in_order = sorted(records, key=lambda record: (record.epoch, -record.id))
    return ranked(in_order, lambda record: record.metrics.get(metric), direction)


def best_record(records: Iterable[Record], metric: str, direction: str) -> Record | None:
    """Return the checkpoint with the best value of ``metric``, or None if none is finite."""
    return next(iter(ranked_records(records, metric, direction)), None)


def before_failure(records: Iterable[Record], names: Iterable[str] | None = None) -> Record | None:
    """Return the newest checkpoint from before a condition under ``fail`` came true.

    It lies at a boundary, and the scalars that those conditions look at are finite in it; if there
    is no such checkpoint, the newest one at a boundary.  Those scalars are ``names``, by default
    those of the newest record.  Returns None for a job without such conditions, and where
    nothing from before is left.
    """
    newest_first = sorted(records, key=lambda record: -record.id)
    if names is None and newest_first:
        names = kept_names(newest_first[0], FAILS, () if _failed(newest_first[0]) else None)
    if names is None:
        return None
    earlier = [r for r in newest_first if r.at_boundary and not _failed(r)]
    wanted = tuple(names)
    return next((r for r in earlier if _all_finite(r, wanted)), next(iter(earlier), None))


def _failed(record: Record) -> bool:
    return isinstance(record.decision, Mapping) and record.decision.get("outcome") == "fail"


def _all_finite(record: Record, names: Iterable[str]) -> bool:
    values = (record.metrics.get(name) for name in names)
    return all(value is None or finite(value) is not None for value in values)


# Epochs.


def with_epoch(extremes: Extremes, epoch: int, scalars: Mapping[str, Any]) -> Extremes:
    """Return the extremes once ``epoch``, which comes after all of theirs, is over too."""
    found = {name: dict(of_name) for name, of_name in extremes.items()}
    for name, value in scalars.items():
        for direction in ("min", "max"):
            old = found.get(name, {}).get(direction)
            if better(value, old[0] if old else None, direction):
                found.setdefault(name, {})[direction] = (finite(value), epoch)
    return found


def extremes_of(record: Record) -> Extremes:
    """Return the extremes of the history up to a checkpoint."""
    known = _kept(record, EXTREMES, _are_extremes)
    return {
        name: {direction: (value, epoch) for direction, (value, epoch) in of_name.items()}
        for name, of_name in known.items()
    }


def best_values(extremes: Extremes, directions: Mapping[str, str | None]) -> dict[str, Best]:
    """Return the best of each metric that has a direction, by these directions."""
    return {
        name: extremes[name][direction]
        for name, direction in directions.items()
        if direction is not None and name in extremes
    }


def last_scalars(record: Record) -> dict[str, Any]:
    """Return the scalars at the end of the epoch that was finished last before a checkpoint."""
    return dict(record.metrics if record.at_boundary else _kept(record, LAST_SCALARS, _are_scalars))


def kept_names(record: Record, key: str, default: T) -> tuple[str, ...] | T:
    """Return names that a run has kept under ``key`` in ``extra`` of a record, or ``default``."""
    names = record.extra.get(key)
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return tuple(names)
    return default


# ``extra`` may be anybody's JSON: what is not of the form that a run writes is not the run's.


def _kept(record: Record, key: str, fits: Callable[[Any], bool]) -> Mapping[str, Any]:
    value = record.extra.get(key)
    return value if value is not None and fits(value) else {}


def _are_scalars(value: Any) -> bool:
    known = isinstance(value, Mapping)
    return known and all(
        v is None or isinstance(v, bool | int | float | str) for v in value.values()
    )


def _are_extremes(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(of, Mapping) and set(of) <= {"min", "max"} and all(map(_is_best, of.values()))
        for of in value.values()
    )


def _is_best(pair: Any) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    return finite(pair[0]) is not None and type(pair[1]) is int
