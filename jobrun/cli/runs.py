"""``jobrun runs``: the runs of a directory, one line each."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, option, runs_dir, screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.runs.overview import Overview

__all__ = ["command"]


_NOT_SHOWN = ("broken", "unreadable")
"""The states of runs of which only the reason is known."""


@click.command("runs", short_help="List runs with their states and metrics.")
@option(
    "--sort",
    metavar="METRIC|name|time",
    default="time",
    help="Order: the best, by name, or the newest on top.",
    shell_complete=completes("metric"),
)
@option(
    "--spec",
    metavar="SPEC",
    type=click.Path(),
    help="Only the runs of this spec.",
    shell_complete=completes("spec"),
)
@runs_dir
@common
def command(sort: str, spec: str | None, runs_dir: str) -> None:
    """List the runs, those of sweeps as SWEEP/COMBINATION: the newest first.

    Of each metric the last value is shown, and the best where the spec says which direction is
    better.  With --sort METRIC the run with the best value comes first.
    """
    from jobrun.runs.find import is_of, list_runs
    from jobrun.runs.overview import overview

    found = [run for run in list_runs(runs_dir) if spec is None or is_of(run, spec)]
    views = _sorted([overview(run) for run in found], sort)
    if settings().json:
        click.echo(json.dumps({"runs_dir": runs_dir, "runs": [_object(v) for v in views]}))
    elif views:
        click.echo(_text(views))
    else:
        of = f" of {spec}" if spec else ""
        hint = "jobrun train SPEC starts one; --runs-dir names another directory of runs"
        click.echo(f"no run{of} in {_plain(runs_dir)}; {hint}")


def _plain(text: str) -> str:
    from jobrun.report.formatting import plain

    return plain(text)


def _sorted(views: Sequence[Overview], by: str) -> list[Overview]:
    """Return the runs in the requested order; raises NotFoundError for an unknown metric."""
    newest = sorted(views, key=lambda v: (v.created, v.updated, v.name), reverse=True)
    if by == "time":
        return newest
    if by == "name":
        return sorted(views, key=lambda v: _natural(v.name))
    if views and not any(by in v.metrics or by in v.best for v in views):
        from jobrun.errors import NotFoundError, did_you_mean

        known = sorted({name for v in views for name in (*v.metrics, *v.best)})
        hint = did_you_mean(by, ["name", "time", *known]) or f"there are {', '.join(known)}"
        raise NotFoundError(f"no run has a metric {by!r}", hint=hint)
    return sorted(newest, key=_rank(by))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that puts ``pi-10`` after ``pi-2``."""
    return [(int(t) if t.isdecimal() else -1, t) for t in re.split(r"(\d+)", name)]


def _rank(metric: str) -> Callable[[Overview], tuple[bool, float]]:
    """Return a sort key, best first: without a direction by the largest of the last values."""

    def rank(view: Overview) -> tuple[bool, float]:
        value = view.best[metric][0] if metric in view.best else view.metrics.get(metric)
        if value is None or not math.isfinite(value):
            return True, 0.0
        return False, float(value) if view.directions.get(metric) == "min" else -float(value)

    return rank


def _text(views: Sequence[Overview]) -> str:
    from jobrun.cli.table import table

    metrics = list(dict.fromkeys(name for v in views for name in (*v.metrics, *v.best)))
    directed = {name for v in views for name in v.best}
    header = ["name", "state", "epochs"]
    for name in metrics:
        header += [_plain(name), *(["best"] if name in directed else [])]
    header += ["checkpoints", "started (UTC)", "time"]
    rows = [_row(view, metrics, directed) for view in views]
    right = "llr" + "r" * (len(header) - 6) + "rlr"
    broken = [f"{_plain(v.name)}: {_plain(v.reason)}" for v in views if v.state in _NOT_SHOWN]
    spare = (len(header) - 3, len(header) - 2)  # 'show' has checkpoints and times as well
    return "\n".join([table(header, rows, right, width=screen_width(), spare=spare), *broken])


def _row(view: Overview, metrics: Sequence[str], directed: set[str]) -> list[str]:
    from jobrun.core.text import duration
    from jobrun.report.formatting import number

    limit = f"/{view.limit}" if view.limit and view.state not in ("finished", "failed") else ""
    row = [_plain(view.name), view.state, f"{view.epoch}{limit}"]
    for name in metrics:
        row.append(number(view.metrics[name]) if name in view.metrics else "")
        if name in directed:
            row.append(number(view.best[name][0]) if name in view.best else "")
    if view.state in _NOT_SHOWN:
        return [*row[:2], *[""] * (len(row) + 1)]
    row += [str(view.checkpoints), view.created[:19].replace("T", " "), duration(view.elapsed)]
    return row


def _object(view: Overview) -> dict[str, Any]:
    from jobrun.report.formatting import json_values

    return {
        "name": view.name,
        "path": typed(view.path),
        "state": view.state,
        "reason": view.reason,
        "job": view.job,
        "spec": view.spec,
        "epochs": view.epoch,
        "limit": view.limit or None,
        "metrics": json_values(view.metrics),
        "best": {
            name: {"value": json_values(value), "epoch": epoch, "direction": view.directions[name]}
            for name, (value, epoch) in view.best.items()
        },
        "checkpoints": view.checkpoints,
        "newest_checkpoint": view.head,
        "bytes": view.bytes,
        "attempts": view.attempts,
        "created": view.created,
        "updated": view.updated,
        "seconds": view.elapsed,
    }
