"""A row per run: the vars in which they differ, their metrics, epochs and times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jobrun.report.formatting import number, value_text
from jobrun.tools.run_summary import RunSummary

__all__ = ["runs_table"]


def runs_table(names: Sequence[str], summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """Return ``columns`` with name, kind and direction, and ``rows`` with values and texts.

    The kinds are ``fact``, ``var`` (the seed and vars that are not the same in all runs) and
    ``metric``: of a metric with a direction the best value, else the last.
    """
    settings = [_settings(summary) for summary in summaries]
    vars = _different(settings)
    directions = _directions(summaries)
    columns = [
        {"name": "run", "kind": "fact"},
        {"name": "state", "kind": "fact"},
        *({"name": name, "kind": "var"} for name in vars),
        *(
            {"name": f"best {name}" if way else name, "kind": "metric", "direction": way}
            for name, way in directions.items()
        ),
        {"name": "epochs", "kind": "fact"},
        {"name": "seconds", "kind": "fact"},
    ]
    rows = []
    for name, summary, own in zip(names, summaries, settings, strict=True):
        view = summary.view
        values = [name, view.state, *(own.get(var) for var in vars)]
        values += [_metric(summary, metric, way) for metric, way in directions.items()]
        rows.append([_cell(v) for v in [*values, view.epoch, round(view.elapsed, 3)]])
    return {"columns": columns, "rows": rows}


def _settings(summary: RunSummary) -> dict[str, Any]:
    """Return the seed and the vars of a run."""
    facts = summary.facts
    return {"seed": facts.get("seed"), **facts.get("vars", {})}


def _different(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of those that are not the same in all runs."""
    names = dict.fromkeys(name for own in settings for name in own)
    missing, first = object(), settings[0] if settings else {}
    return [
        n for n in names if any(own.get(n, missing) != first.get(n, missing) for own in settings)
    ]


def _directions(summaries: Sequence[RunSummary]) -> dict[str, str | None]:
    """Return all metrics, each with the direction that is better."""
    found: dict[str, str | None] = {}
    for summary in summaries:
        for name, direction in summary.view.directions.items():
            found[name] = found.get(name) or direction
    return found


def _metric(summary: RunSummary, name: str, direction: str | None) -> Any:
    best = summary.view.best.get(name)
    return best[0] if direction and best else summary.view.metrics.get(name)


def _cell(value: Any) -> dict[str, Any]:
    """Return the text of a value, and the number that it is sorted and drawn by, if it is one."""
    cell: dict[str, Any] = {"text": value if isinstance(value, str) else _text(value)}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value):
        cell["value"] = value
    return cell


def _text(value: Any) -> str:
    return number(value) if value is None or isinstance(value, float) else value_text(value)
