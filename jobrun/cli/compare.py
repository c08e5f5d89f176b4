"""``jobrun compare``: the differences between runs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, runs_dir, screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.runs.overview import Overview
    from jobrun.tools.compare_runs import Difference, MetricRow, RunComparison

__all__ = ["command"]

_LABEL = 24
"""The columns of labels, on a terminal that is too narrow for all."""
_LEAST = 12
"""The columns to which values are cut there at least; else they stand below each other."""
_DIGEST = 8
"""The number of characters of a digest that are shown."""


@click.command("compare", short_help="Show how runs differ: spec, metrics, code, libraries.")
@click.argument(
    "runs", nargs=-1, required=True, metavar="RUN RUN...", shell_complete=completes("run_or_spec")
)
@runs_dir
@common
def command(runs: tuple[str, ...], runs_dir: str) -> None:
    """Compare runs: what was changed in the spec, metrics, times, code and libraries.

    An arrow says whether a number is above or below that of the first run; * marks the best run.
    RUN is a name or its beginning, a path, a spec (its newest run), @latest, or @best.  A
    sweep stands for all its runs.
    """
    from jobrun.errors import DamagedError
    from jobrun.report.formatting import plain
    from jobrun.runs.find import find_runs, names_apart
    from jobrun.runs.overview import overview
    from jobrun.tools.compare_runs import compare_runs

    found = find_runs(runs_dir, runs)
    if len(found) < 2:
        raise click.UsageError("expected two runs or more, or a sweep")
    states = [run.state() for run in found]
    views = [overview(run) for run in found]
    for view, state in zip(views, states, strict=True):
        if state is None:
            raise DamagedError(view.reason, where=str(view.path))
    compared = compare_runs(views, [state for state in states if state is not None])
    if settings().json:
        click.echo(json.dumps(_object(views, compared)))
    else:
        names = [plain(name) for name in names_apart(found)]
        click.echo(_text(names, views, compared))


def _text(names: Sequence[str], views: Sequence[Overview], found: RunComparison) -> str:
    text = _table(names, partial(_rows, views, found), screen_width())
    same = [
        what
        for what, differences in (
            ("spec", found.spec or found.unknown),
            ("code", found.code),
            ("libraries", found.versions),
        )
        if not differences
    ]
    notes = [f"the same: {', '.join(same)}"] if same else []
    notes += [f"the spec of {names[n]} is not known" for n in found.unknown]
    return "\n".join([text, *notes])


def _rows(
    views: Sequence[Overview], found: RunComparison, room: int | None = None
) -> list[list[str]]:
    """Return the rows; with ``room``, texts are cut to it, and best values have no epoch."""
    from jobrun.core.text import duration
    from jobrun.report.fitting import cut

    def texts(rows: Sequence[Sequence[str]]) -> list[list[str]]:
        return [
            [label, *(v if room is None else cut(v, room) for v in row)] for label, *row in rows
        ]

    return [
        ["state", *(view.state for view in views)],
        ["epochs", *_numbers([view.epoch for view in views])],
        ["time", *(duration(view.elapsed) for view in views)],
        ["checkpoints", *(str(view.checkpoints) for view in views)],
        *texts(_labels(views)),
        *texts(_section("spec", found.spec)),
        *_metrics(found.metrics, epochs=room is None),
        *_section("code", found.code, _DIGEST),
        *texts(_section("libraries", found.versions)),
    ]


def _table(
    names: Sequence[str], rows: Callable[[int | None], list[list[str]]], width: int | None
) -> str:
    """Return the rows with the names above, or with numbers where these are too long for columns.

    ``rows`` are shorter where there is no room; a long label then stands above its values.
    """
    from jobrun.cli.table import fitted
    from jobrun.report.fitting import text_width

    whole = fitted(["", *names], rows(None), width=width)
    if width is None or not whole.blocks:
        return whole.text
    numbers = [str(n) for n in range(1, len(names) + 1)]
    room = max((width - _LABEL) // len(names) - 2, _LEAST)
    for titles, most in ((names, room), (numbers, None), (numbers, room)):
        made = fitted(["", *titles], rows(most), width=width, hangs=titles is numbers)
        if not made.blocks:
            break
    if titles is names:
        return made.text
    if made.blocks and max(map(text_width, names)) <= width // 2:
        return whole.text
    return "\n".join([*(f"{n}  {name}" for n, name in enumerate(names, 1)), "", made.text])


def _labels(views: Sequence[Overview]) -> list[list[str]]:
    """Return a row of tags and one of notes, if any run has such."""
    from jobrun.report.formatting import plain

    tags = [", ".join(view.labels.tags) for view in views]
    notes = [plain(view.labels.note) for view in views]
    rows = (["tags", *tags], ["note", *notes])
    return [row for row in rows if any(row[1:])]


def _section(
    title: str, differences: Sequence[Difference], most: int | None = None
) -> list[list[str]]:
    """Return a title, and the differences below it."""
    from jobrun.report.formatting import plain

    if not differences:
        return []
    empty = [""] * len(differences[0].values)
    return [
        [title, *empty],
        *([f"  {plain(d.name)}", *(plain(v[:most]) or "-" for v in d.values)] for d in differences),
    ]


def _metrics(metrics: Sequence[MetricRow], *, epochs: bool) -> list[list[str]]:
    from jobrun.report.formatting import number, plain

    if not metrics:
        return []
    rows = [["metrics", *[""] * len(metrics[0].last)]]
    for metric in metrics:
        rows.append([f"  {plain(metric.name)}", *_numbers(metric.last)])
        if any(metric.best):
            values = [pair[0] if pair else None for pair in metric.best]
            of = [f" (epoch {p[1]})" if p and epochs else "" for p in metric.best]
            texts = [number(p[0]) + e if p else "-" for p, e in zip(metric.best, of, strict=True)]
            cells = _arrows(values, texts)
            stars = ("*" if n in metric.winners else "" for n in range(len(cells)))
            rows.append(
                ["    best", *(f"{c} {s}".rstrip() for c, s in zip(cells, stars, strict=True))]
            )
    return rows


def _numbers(values: Sequence[Any]) -> list[str]:
    from jobrun.report.formatting import number

    return _arrows(values, [number(value) for value in values])


def _arrows(values: Sequence[Any], texts: Sequence[str]) -> list[str]:
    """Return the strings, each with an arrow if its value is above or below the first."""
    from jobrun.report.formatting import uses_unicode

    up, down = "↑↓" if uses_unicode(sys.stdout) else "^v"
    first, cells = values[0], [texts[0]]
    for value, text in zip(values[1:], texts[1:], strict=True):
        known = None not in (first, value) and math.isfinite(first) and math.isfinite(value)
        arrow = (up if value > first else down if value < first else "") if known else ""
        cells.append(f"{text} {arrow}".rstrip())
    return cells


def _object(views: Sequence[Overview], found: RunComparison) -> dict[str, Any]:
    from jobrun.report.formatting import json_values

    return {
        "runs": [
            {
                "name": view.name,
                "path": typed(view.path),
                "state": view.state,
                "tags": list(view.labels.tags),
                "note": view.labels.note,
                "reason": view.reason,
                "epochs": view.epoch,
                "seconds": view.elapsed,
                "checkpoints": view.checkpoints,
                "spec_known": number not in found.unknown,
            }
            for number, view in enumerate(views)
        ],
        "spec": [_difference(d) for d in found.spec],
        "metrics": {
            m.name: {
                "direction": m.direction,
                "last": json_values(m.last),
                "best": [p and {"value": json_values(p[0]), "epoch": p[1]} for p in m.best],
                "winners": list(m.winners),
            }
            for m in found.metrics
        },
        "code": [_difference(d) for d in found.code],
        "versions": [_difference(d) for d in found.versions],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {"name": difference.name, "values": [value or None for value in difference.values]}
