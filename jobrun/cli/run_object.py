"""A run as a JSON object: what ``runs`` and ``show`` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.runs.overview import Overview

__all__ = ["run_object"]


def run_object(view: Overview) -> dict[str, Any]:
    """Return the facts of an overview by name; numbers that are not finite are strings."""
    from jobrun.report.formatting import json_values

    return {
        "name": view.name,
        "path": typed(view.path),
        "state": view.state,
        "reason": view.reason,
        "tags": list(view.labels.tags),
        "note": view.labels.note,
        "job": view.job,
        "spec": view.spec,
        "vars": json_values(view.vars),
        "created": view.created,
        "updated": view.updated,
        "seconds": view.elapsed,
        "epochs": view.epoch,
        "limit": view.limit or None,
        "metrics": json_values(view.metrics),
        "best": {
            name: {"value": json_values(value), "epoch": epoch, "direction": view.directions[name]}
            for name, (value, epoch) in view.best.items()
        },
    }
