"""``jobrun runs``: the runs of a directory, one line each."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, option, runs_dir, screen_width, settings
from jobrun.cli.run_columns import NOT_SHOWN, NOTE_WIDTH, RunColumn, known_columns
from jobrun.cli.run_object import run_object
from jobrun.core.plain_text import plain

if TYPE_CHECKING:
    from jobrun.runs.overview import Overview
    from jobrun.runs.rundir import RunDir

__all__ = ["command"]


@click.command("runs", short_help="List runs with their states and metrics.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completes("run"))
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
@option("--state", metavar="STATE", help="Only the runs in this state: finished, running, ….")
@option("--search", metavar="WORD", help="Only with WORD as a tag, or in the note or name.")
@option("-n", "--most", type=click.IntRange(min=1), metavar="N", help="At most N runs.")
@option(
    "--columns",
    metavar="A,B",
    help="These columns: name, state, vars.lr, loss, best:loss, ….",
    shell_complete=completes("column"),
)
@runs_dir
@common
def command(
    names: tuple[str, ...],
    sort: str,
    spec: str | None,
    state: str | None,
    search: str | None,
    most: int | None,
    columns: str | None,
    runs_dir: str,
) -> None:
    """List the runs, those of sweeps as SWEEP/COMBINATION: the newest first.

    With NAMEs those whose name begins with one of them, or that a pattern means: 'pi-*'.

    Of each metric the last value is shown, and the best where the spec says which direction is
    better; vars where they differ between runs of a job.  With --sort METRIC the run with the best
    value comes first.  On a terminal the columns are those that it has room for.
    """
    from jobrun.runs.find import is_of, list_runs
    from jobrun.runs.overview import overview

    _check_state(state)
    found = [run for run in list_runs(runs_dir) if spec is None or is_of(run, spec)]
    every = _sorted([overview(run) for run in _named(found, names, runs_dir)], sort)
    views = [v for v in every if state in (None, v.state) and _has(v, search)][:most]
    if settings().json:
        click.echo(json.dumps({"runs_dir": runs_dir, "runs": [_object(v) for v in views]}))
    elif views:
        click.echo(_text(views, columns.split(",") if columns else None))
    elif found:
        click.echo(f"none of {len(found)} runs in {plain(runs_dir)} matches these options")
    else:
        of = f" of {spec}" if spec else ""
        hint = "jobrun train SPEC starts one; --runs-dir names another directory of runs"
        click.echo(f"no run{of} in {plain(runs_dir)}; {hint}")


def _named(runs: Sequence[RunDir], names: Sequence[str], runs_dir: str) -> list[RunDir]:
    """Return the runs that names, their beginnings or patterns mean; all without names."""
    wanted = [name.removeprefix(f"{runs_dir.rstrip('/')}/").rstrip("/") for name in names]
    return [
        run
        for run in runs
        if not names or any(run.name.startswith(n) or fnmatchcase(run.name, n) for n in wanted)
    ]


def _sorted(views: Sequence[Overview], by: str) -> list[Overview]:
    """Return the runs in the requested order; raises NotFoundError for an unknown metric."""
    newest = sorted(views, key=lambda v: (v.created, v.updated, v.name), reverse=True)
    if by == "time":
        return newest
    if by == "name":
        return sorted(views, key=lambda v: _natural(v.name))
    by = by.removeprefix("metric:")
    if views and not any(by in v.metrics or by in v.best for v in views):
        from jobrun.core.suggestions import did_you_mean_or_all
        from jobrun.errors import NotFoundError

        known = sorted({name for v in views for name in (*v.metrics, *v.best)})
        hint = did_you_mean_or_all(by, ["name", "time", *known])
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


def _check_state(state: str | None) -> None:
    from jobrun.core.suggestions import ALL, did_you_mean_or_all
    from jobrun.runs.run_state import STATES

    known = (*STATES, *NOT_SHOWN)
    if state is not None and state not in known:
        hint = did_you_mean_or_all(state, known, most=ALL)
        raise click.BadParameter(hint, param_hint=f"--state {state}")


def _has(view: Overview, word: str | None) -> bool:
    """Return whether a run is found by a word: a tag, or a part of its note or name."""
    return word is None or view.labels.has(word) or word.casefold() in view.name.casefold()


def _text(views: Sequence[Overview], names: Sequence[str] | None) -> str:
    """Return the table, and what is wrong with runs of which only that is known."""
    from jobrun.cli.table import fitted

    known = {column.name: column for column in known_columns(views)}
    shown = _chosen(known, names) if names else _usual(views, known)
    rows = _shortened(shown, [[column.cell(view) for column in shown] for view in views])
    made = fitted(
        [column.title for column in shown],
        rows,
        "".join("r" if column.number else "l" for column in shown),
        width=screen_width(),
        spare=() if names else _spare(shown),
        follows=[n for n, column in enumerate(shown) if column.best],
        shortens=True,
    )
    broken = [f"{plain(v.name)}: {plain(v.reason)}" for v in views if v.state in NOT_SHOWN]
    left_out = _left_out([shown[n] for n in made.left_out])
    return "\n".join([made.text, *left_out, *broken])


def _left_out(columns: Sequence[RunColumn]) -> list[str]:
    """Return a line that says which columns had no room, if any."""
    from jobrun.report.fitting import broken
    from jobrun.report.formatting import plural

    metrics = [c.metric for c in columns if c.metric is not None and not c.best]
    best = [c.metric for c in columns if c.best and c.metric not in metrics]
    parts = [f"+{plural(len(metrics), 'metric')}"] if metrics else []
    parts += [f"+{plural(len(best), 'best value')}"] if best else []
    parts += [f"+{column.name}" for column in columns if column.metric is None]
    return broken(f"{', '.join(parts)}: --columns", screen_width()) if parts else []


def _shortened(shown: Sequence[RunColumn], rows: list[list[str]]) -> list[list[str]]:
    """Return the rows with notes that are not longer than the screen has room for."""
    from jobrun.report.fitting import text_width

    width, titles = screen_width(), [column.title for column in shown]
    if width is None or "note" not in titles:
        return rows
    at = titles.index("note")
    others = [n for n in range(len(shown)) if n != at]
    used = sum(2 + max(text_width(row[n]) for row in (titles, *rows)) for n in others)
    room = max(NOTE_WIDTH, width - used)
    return [[*row[:at], _cut(row[at], room), *row[at + 1 :]] for row in rows]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1].rstrip() + "…"


def _usual(views: Sequence[Overview], known: Mapping[str, RunColumn]) -> list[RunColumn]:
    """Return the columns without --columns: tags, notes and best values where there are any.

    Vars are those that differ between runs of a job; a run of a sweep has them in its name.
    """
    left_out = {"size", "attempts", "spec"}
    values: dict[tuple[str, str], set[str]] = {}
    for view in views:
        for name, value in view.vars.items() if "/" not in view.name else ():
            values.setdefault((view.job, name), set()).add(repr(value))
    differ = {f"vars.{name}" for (_, name), found in values.items() if len(found) > 1}
    left_out |= {n for n in known if n.startswith("vars.") and n not in differ}
    left_out |= {n for n in ("tags", "note") if not any(map(known[n].cell, views))}
    directed = {f"best:{name}" for v in views for name in v.best}
    left_out |= {n for n in known if n.startswith("best:") and n not in directed}
    return [column for name, column in known.items() if name not in left_out]


def _chosen(known: Mapping[str, RunColumn], names: Sequence[str]) -> list[RunColumn]:
    """Return the columns of --columns; raises BadParameter for one that there is not."""
    from jobrun.core.suggestions import ALL, did_you_mean_or_all

    for name in names:
        if name not in known:
            hint = did_you_mean_or_all(name, list(known), most=ALL)
            raise click.BadParameter(hint, param_hint=f"--columns {name}")
    return [known[name] for name in names]


def _spare(shown: Sequence[RunColumn]) -> list[int]:
    """Return the columns that are left out where there is no room, the first to go first.

    'show' has all of them.  The name, the state and the epochs stay.
    """
    at = {column.name: number for number, column in enumerate(shown)}
    first = [at[n] for n in ("note", "checkpoints", "started") if n in at]
    metrics = [n for n, column in enumerate(shown) if column.metric is not None]
    last = [at[n] for n in ("time", "tags") if n in at]
    variables = [n for n, column in enumerate(shown) if column.name.startswith("vars.")]
    return [*first, *reversed(metrics[1:]), *reversed(variables), *last, *metrics[:1]]


def _object(view: Overview) -> dict[str, Any]:
    return {
        **run_object(view),
        "checkpoints": view.checkpoints,
        "newest_checkpoint": view.head,
        "bytes": view.bytes,
        "attempts": view.attempts,
    }
