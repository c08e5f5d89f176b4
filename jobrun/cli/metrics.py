"""``jobrun metrics``: the metrics of runs, epoch by epoch."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobrun.cli.metric_names import matching
from jobrun.cli.options import (
    common,
    completes,
    option,
    runs_dir,
    screen_width,
    settings,
    uses_color,
)
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.report.chart import Series
    from jobrun.report.steps import StepRow
    from jobrun.runs.metrics_csv import EpochRow
    from jobrun.runs.overview import Overview

__all__ = ["command"]

_WIDTH = 80
Row = TypeVar("Row", "EpochRow", "StepRow")
_EPOCHS = re.compile(r"(-?\d+)?(:)?(-?\d+)?")


@dataclass(frozen=True)
class _Run:
    """A run, and its selected epochs."""

    name: str
    view: Overview
    rows: Sequence[EpochRow]

    def best(self, metric: str) -> tuple[int, Any] | None:
        """Return the epoch and value of the best among the rows, if the metric has a direction."""
        from jobrun.core.ranking import first_best

        direction = self.view.directions.get(metric)
        if direction is None:
            return None
        row = first_best(self.rows, lambda row: row.metrics.get(metric), direction)
        return None if row is None else (row.epoch, row.metrics[metric])


@click.command("metrics", short_help="Show, draw or export metrics, epoch by epoch.")
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completes("run_or_spec"))
@option(
    "--metric",
    "wanted",
    metavar="NAME",
    multiple=True,
    help="Only this metric; a glob; repeatable.",
    shell_complete=completes("metric"),
)
@option("--range", "epochs", metavar="A:B", help="Only epochs A to B; -10: is the last ten.")
@option("--steps", is_flag=True, help="Show the numbers of jobrun.log(), step by step.")
@option("--csv", "as_csv", is_flag=True, help="Write CSV: a row per run and epoch.")
@option("--plot", is_flag=True, help="Draw in the terminal.")
@option("--log", is_flag=True, help="Draw on a logarithmic scale.")
@option("-o", "--output", type=click.Path(), metavar="FILE", help="Write .png, .svg, .pdf or .csv.")
@runs_dir
@common
def command(
    runs: tuple[str, ...],
    wanted: tuple[str, ...],
    epochs: str | None,
    steps: bool,
    as_csv: bool,
    plot: bool,
    log: bool,
    output: str | None,
    runs_dir: str,
) -> None:
    """Show the metrics of RUN for each epoch, of several runs side by side; * marks the best.

    RUN is a name or its beginning, a path, a spec (its newest run), @latest, or @best (default:
    a running one, else the newest).  A sweep stands for all its runs.  Pictures need the extra
    jobrun[plot].
    """
    if steps:
        if plot or log or output is not None or len(runs) > 1:
            raise click.UsageError("--steps shows one run, as a table, with --csv or --json")
        from jobrun.cli.metric_steps import show_steps

        run = next(iter(runs), None)
        show_steps(runs_dir, run, wanted, lambda rows: _span(rows, epochs), as_csv=as_csv)
        return
    found = _gather(runs_dir, runs or (None,), epochs)
    metrics = _chosen(found, wanted)
    if output is not None:
        _write(output, found, metrics, log=log)
    elif settings().json:
        click.echo(json.dumps({"runs": [_object(run, metrics) for run in found]}))
    elif as_csv:
        click.echo(_csv(found, metrics), nl=False)
    elif not metrics:
        names = _plain(", ".join(run.name for run in found))
        when = "yet" if epochs is None else f"in the epochs {epochs}"
        click.echo(f"{names}: no metric has a value {when}")
    elif plot:
        click.echo(_charts(found, metrics, log=log), color=True)  # only if enabled
    else:
        click.echo(_table(found, metrics, all_of_them=bool(wanted)))


def _plain(text: str) -> str:
    from jobrun.report.formatting import plain

    return plain(text)


def _gather(runs_dir: str, arguments: Sequence[str | None], epochs: str | None) -> list[_Run]:
    from jobrun.runs.find import find_runs, names_apart
    from jobrun.runs.overview import overview, rows_of

    runs = find_runs(runs_dir, arguments)
    return [
        _Run(name, overview(run), _span(rows_of(run), epochs))
        for name, run in zip(names_apart(runs), runs, strict=True)
    ]


def _span(rows: Sequence[Row], text: str | None) -> list[Row]:
    """Return the rows from epoch A to B of ``A:B``; numbers below zero count from the last."""
    match = _EPOCHS.fullmatch(text or ":")
    if match is None or not match[0]:
        raise click.UsageError(f"--range {text}: write A:B, such as 5:10, 5: or -10:")
    last = rows[-1].epoch if rows else 0
    first, end = (
        None if n is None else int(n) + (int(n) < 0) * (last + 1) for n in match.group(1, 3)
    )
    if match[2] is None:
        end = first
    return [
        row
        for row in rows
        if (first is None or row.epoch >= first) and (end is None or row.epoch <= end)
    ]


def _chosen(runs: Sequence[_Run], wanted: Sequence[str]) -> list[str]:
    """Return the selected metrics, in the order of the jobs; all by default.

    Raises NotFoundError, with the nearest names, for one that no run has.
    """
    seen = dict.fromkeys(n for run in runs for row in run.rows for n in row.metrics)
    order = dict.fromkeys(n for run in runs for n in run.view.directions if n in seen)
    return matching(list(order | seen), wanted)


# Tables.


def _table(runs: Sequence[_Run], metrics: Sequence[str], *, all_of_them: bool) -> str:
    """Return a row per epoch; a column per metric, and below it per run.

    Where they have no room the runs are numbered; without ``all_of_them``, columns that have none
    even then are left out.
    """
    from jobrun.cli.table import Fitted, fitted
    from jobrun.report.fitting import broken
    from jobrun.report.formatting import plural

    columns = [(run, metric) for metric in metrics for run in runs]
    best = [run.best(metric) for run, metric in columns]
    rows, width = _rows(columns, best), screen_width()
    names = [_plain(run.name) if len(runs) > 1 else "" for run in runs]
    spare = [] if all_of_them else range(len(columns), 1, -1)

    def made_with(names: Sequence[str], spare: Sequence[int] = ()) -> Fitted:
        titles = [f"{name} {_plain(m)}".lstrip() for m in metrics for name in names]
        marked = [title + " " if top else title for title, top in zip(titles, best, strict=True)]
        right = "r" * (1 + len(columns))
        return fitted(["epoch", *marked], rows, right, width=width, spare=spare)

    made, lines = made_with(names), []
    if made.blocks and len(runs) > 1:
        numbered = made_with([str(n) for n in range(1, len(runs) + 1)], spare)
        if not numbered.blocks:
            above = (f"{n}  {name}" for n, name in enumerate(names, 1))
            made, lines = numbered, [*(line for text in above for line in broken(text, width)), ""]
    elif made.blocks:
        made = made_with(names, spare)
    lines.append(made.text)
    if made.left_out:
        more = f"+{plural(len(made.left_out), 'column')}: --metric NAME, --csv or --plot"
        lines += broken(more, width)
    return "\n".join(lines)


def _rows(
    columns: Sequence[tuple[_Run, str]], best: Sequence[tuple[int, Any] | None]
) -> list[list[str]]:
    """Return a row per epoch; a star marks the best of a column."""
    from jobrun.report.formatting import number

    values = [{row.epoch: row.metrics for row in run.rows} for run, _ in columns]
    rows = []
    for epoch in sorted({row.epoch for run, _ in columns for row in run.rows}):
        cells = [str(epoch)]
        for (_, metric), top, of_run in zip(columns, best, values, strict=True):
            value = of_run.get(epoch, {}).get(metric)
            star = "*" if top and top[0] == epoch else " " if top else ""
            cells.append(f"{number(value)}{star}" if value is not None else "")
        rows.append(cells)
    return rows


def _csv(runs: Sequence[_Run], metrics: Sequence[str]) -> str:
    """Return a row per run and epoch, the run's name in front if there are several."""
    from jobrun.report.formatting import json_values
    from jobrun.runs.metrics_csv import FIXED, column

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    several = ["run"] if len(runs) > 1 else []
    writer.writerow([*several, *FIXED, *map(column, metrics)])
    for run in runs:
        name = [run.name] if several else []
        for row in run.rows:
            values = [json_values(row.metrics.get(metric)) for metric in metrics]
            writer.writerow([*name, row.epoch, row.seconds, row.elapsed, *values])
    return text.getvalue()


def _object(run: _Run, metrics: Sequence[str]) -> dict[str, Any]:
    from jobrun.report.formatting import json_values

    return {
        "name": run.name,
        "path": typed(run.view.path),
        "directions": {m: run.view.directions.get(m) for m in metrics},
        "best": {
            m: {"value": json_values(best[1]), "epoch": best[0]}
            for m in metrics
            if (best := run.best(m)) is not None
        },
        "epochs": [
            {
                "epoch": row.epoch,
                "seconds": row.seconds,
                "elapsed": row.elapsed,
                "metrics": {m: json_values(row.metrics[m]) for m in metrics if m in row.metrics},
            }
            for row in run.rows
        ],
    }


# Drawing.


def _series(runs: Sequence[_Run], metric: str) -> list[Series]:
    from jobrun.report.chart import Series

    found = []
    for run in runs:
        points = [(row.epoch, row.metrics[metric]) for row in run.rows if metric in row.metrics]
        found.append(Series(_plain(run.name), [(float(x), float(y)) for x, y in points]))
    return found


def _remark(runs: Sequence[_Run], metric: str) -> str:
    """Return ``best 0.21 (epoch 7)``, with the run's name if there are several."""
    from jobrun.core.ranking import first_best
    from jobrun.report.formatting import number

    known = [(best, run) for run in runs if (best := run.best(metric)) is not None]
    direction = next((d for _, run in known if (d := run.view.directions[metric])), "")
    found = first_best(known, lambda pair: pair[0][1], direction)
    if found is None:
        return ""
    (epoch, value), run = found
    whose = f"{_plain(run.name)}, " if len(runs) > 1 else ""
    return f"best {number(value)} ({whose}epoch {epoch})"


def _charts(runs: Sequence[_Run], metrics: Sequence[str], *, log: bool) -> str:
    from jobrun.report.chart import Look, chart
    from jobrun.report.formatting import uses_unicode

    look = Look(
        columns=screen_width() or _WIDTH,
        unicode=uses_unicode(sys.stdout),
        color=uses_color(sys.stdout, settings().color),
        log=log,
    )
    charts = []
    for metric in metrics:
        title = "  ".join(filter(None, [_plain(metric), _remark(runs, metric)]))
        charts.append("\n".join(chart(title, _series(runs, metric), look)))
    return "\n\n".join(charts)


def _write(output: str, runs: Sequence[_Run], metrics: Sequence[str], *, log: bool) -> None:
    """Write a file in the form of its ending."""
    from jobrun.errors import NotFoundError, UsageError
    from jobrun.report.plot import draw, formats
    from jobrun.storage.atomic_file import whole_file, write_text

    path = Path(output)
    if path.suffix == ".csv":
        write_text(path, _csv(runs, metrics))
    elif path.suffix not in formats():
        known = ", ".join([*formats(), ".csv"])
        raise UsageError(f"unknown file ending {path.suffix!r}", where=output, hint=known)
    elif not metrics:
        raise NotFoundError("no metric has a value yet, so there is nothing to draw")
    else:
        with whole_file(path) as part:
            draw([_panel(runs, metric) for metric in metrics], part, path.suffix, log=log)
    if settings().json:
        names = [run.name for run in runs]
        click.echo(json.dumps({"output": output, "runs": names, "metrics": list(metrics)}))
    elif not settings().quiet:
        click.echo(f"{_plain(', '.join(metrics))} written to {_plain(output)}")


def _panel(runs: Sequence[_Run], metric: str) -> Any:
    from jobrun.report.plot import Panel

    best = {
        _plain(run.name): (float(found[0]), float(found[1]))
        for run in runs
        if (found := run.best(metric)) is not None
    }
    return Panel(metric, _series(runs, metric), best, _remark(runs, metric))
