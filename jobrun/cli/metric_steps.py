"""``jobrun metrics --steps``: the numbers that functions have logged for single steps."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.metric_names import matching
from jobrun.cli.options import screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.report.steps import StepRow

__all__ = ["show_steps"]


def show_steps(
    runs_dir: str,
    run: str | None,
    wanted: Sequence[str],
    span: Callable[[Sequence[StepRow]], list[StepRow]],
    *,
    as_csv: bool,
) -> None:
    """Show the steps of a run in the epochs of ``span``, with the names that are ``wanted``."""
    from jobrun.report.formatting import json_values, plain
    from jobrun.report.steps import read_steps
    from jobrun.runs.find import find_run

    found = find_run(runs_dir, run)
    rows = span(read_steps(found.path / "events.jsonl"))
    names = matching(list(dict.fromkeys(name for row in rows for name in row.values)), wanted)
    rows = [row for row in rows if any(name in row.values for name in names)]
    if settings().json:
        steps = [
            {
                "epoch": row.epoch,
                "batch": row.batch,
                "task": row.task,
                "node": row.node,
                "values": {n: json_values(row.values[n]) for n in names if n in row.values},
            }
            for row in rows
        ]
        click.echo(json.dumps({"name": found.name, "path": typed(found.path), "steps": steps}))
    elif as_csv:
        click.echo(_csv(rows, names), nl=False)
    elif not rows:
        click.echo(f"{plain(found.name)}: jobrun.log() has logged nothing in these epochs")
    else:
        click.echo(_table(rows, names))


def _places(rows: Sequence[StepRow]) -> list[tuple[str, Callable[[StepRow], Any]]]:
    """Return the columns that tell rows apart: task and node only if there are several."""
    columns: list[tuple[str, Callable[[StepRow], Any]]] = [
        ("epoch", lambda row: row.epoch),
        ("batch", lambda row: row.batch),
    ]
    if len({row.task for row in rows}) > 1:
        columns.append(("task", lambda row: row.task))
    if len({row.node for row in rows}) > 1:
        columns.append(("node", lambda row: row.node))
    return columns


def _table(rows: Sequence[StepRow], names: Sequence[str]) -> str:
    from jobrun.cli.table import table
    from jobrun.report.formatting import number, plain

    places = _places(rows)
    header = [*(name for name, _ in places), *map(plain, names)]
    lines = [
        [
            *(plain(str(get(row))) for _, get in places),
            *(number(row.values[n]) if n in row.values else "" for n in names),
        ]
        for row in rows
    ]
    align = "".join("l" if name in ("task", "node") else "r" for name, _ in places)
    return table(header, lines, align + "r" * len(names), width=screen_width())


def _csv(rows: Sequence[StepRow], names: Sequence[str]) -> str:
    from jobrun.report.formatting import json_values

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", "batch", "task", "node", *names])
    for row in rows:
        values = (json_values(row.values.get(name)) for name in names)
        writer.writerow([row.epoch, row.batch, row.task, row.node, *values])
    return text.getvalue()
