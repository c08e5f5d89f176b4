"""The differences of runs from the first of them: spec, metrics, code, libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobrun.analysis.identity import compare
from jobrun.core.ranking import Best, finite, first_best
from jobrun.runs.overview import Overview
from jobrun.runs.run_state import RunState

__all__ = ["Difference", "MetricRow", "RunComparison", "compare_runs"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between runs; an empty string if a run has none."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric in all runs: the last values, the best, and the numbers of the best runs."""

    name: str
    direction: str | None
    last: tuple[Any, ...]
    best: tuple[Best | None, ...]
    winners: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The differences; ``unknown`` are the numbers of runs whose spec is not known."""

    spec: tuple[Difference, ...]
    metrics: tuple[MetricRow, ...]
    code: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    unknown: tuple[int, ...] = ()


def compare_runs(views: Sequence[Overview], states: Sequence[RunState]) -> RunComparison:
    """Compare two runs or more."""
    names = dict.fromkeys(name for view in views for name in view.directions)
    return RunComparison(
        spec=_spec([state.facts for state in states]),
        metrics=tuple(_metric(name, views) for name in names),
        code=_differences([state.code for state in states]),
        versions=_differences([view.versions for view in views]),
        unknown=tuple(n for n, state in enumerate(states) if not state.facts),
    )


def _spec(facts: Sequence[Mapping[str, Any]]) -> tuple[Difference, ...]:
    """Return the parts of the spec in which a run differs from the first, in the spec's order."""
    found: dict[str, tuple[str, dict[int, str]]] = {}
    for number, other in enumerate(facts):
        if not (facts[0] and other):
            continue
        for change in compare(facts[0], other).changes:
            found.setdefault(change.path, (change.old, {}))[1][number] = change.new
    order = list(dict.fromkeys(key for other in facts for key in other))
    paths = sorted(found, key=lambda path: order.index(path.split(".")[0]))
    return tuple(
        Difference(path, tuple(found[path][1].get(n, found[path][0]) for n in range(len(facts))))
        for path in paths
    )


def _metric(name: str, views: Sequence[Overview]) -> MetricRow:
    direction = next((d for v in views if (d := v.directions.get(name))), None)
    best = tuple(view.best.get(name) for view in views)
    last = tuple(view.metrics.get(name) for view in views)
    known = [pair[0] for pair in best if pair is not None]
    winners: tuple[int, ...] = ()
    if direction is not None and len(set(known)) > 1:
        top = first_best(known, finite, direction)
        winners = tuple(n for n, pair in enumerate(best) if pair is not None and pair[0] == top)
    return MetricRow(name, direction, last, best, winners)


def _differences(maps: Sequence[Mapping[str, str]]) -> tuple[Difference, ...]:
    """Return the keys whose values are not the same in all mappings that have any."""
    names = dict.fromkeys(name for values in maps for name in values)
    rows = (Difference(name, tuple(v.get(name, "") for v in maps)) for name in names)
    known = [number for number, values in enumerate(maps) if values]
    return tuple(row for row in rows if len({row.values[n] for n in known}) > 1)
