"""The metrics of runs as columns of numbers, for the charts of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jobrun.runs.metrics_csv import EpochRow

__all__ = ["curves", "short"]

_DIGITS = 7
"""Significant digits of a number in a chart: more than any screen has pixels for."""


def short(value: Any) -> float | int | None:
    """Return a number for a chart; None if it is not a finite number, so that a curve has a gap."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else None  # of a bool too


def curves(rows: Sequence[EpochRow]) -> dict[str, Any]:
    """Return the columns of a run: ``epoch``, ``elapsed`` in seconds, and ``metrics`` by name.

    All have one entry per epoch, None where a value is missing or not finite.
    """
    names = dict.fromkeys(name for row in rows for name in row.metrics)
    return {
        "epoch": [row.epoch for row in rows],
        "elapsed": [short(row.elapsed) for row in rows],
        "metrics": {name: [short(row.metrics.get(name)) for row in rows] for name in names},
    }
