"""``jobrun checkpoints list``: the checkpoints of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, option, runs_dir, screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.checkpoint.record import Record
    from jobrun.runs.rundir import RunDir

    BestIn = Callable[[Sequence[Record]], Mapping[int, tuple[str, ...]]]

__all__ = ["command"]


@click.command("list", short_help="List the checkpoints of a run.")
@click.argument("run", required=False, shell_complete=completes("run"))
@option("--attempts", is_flag=True, help="Also list those that a rewind left behind.")
@runs_dir
@common
def command(run: str | None, attempts: bool, runs_dir: str) -> None:
    """List the checkpoints of RUN, oldest first.

    The epoch is the number of epochs completed; "2 + 10 batches" lies inside the third.  What
    only has the name of a checkpoint is listed below, with the reason.  `jobrun resume --epoch N`
    moves later checkpoints to the run's attempts/, where --attempts finds them.  * marks the best
    value of a metric among those listed.
    """
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.engine.best_metric import best_in
    from jobrun.runs.find import find_run

    found = find_run(runs_dir, run)
    catalog = found.checkpoints
    left = {n: Catalog(found.attempt_path(n)) for n in found.attempts()}
    best = partial(best_in, found.state())
    if settings().json:
        shown = _object(catalog, best)
        if attempts:
            shown["attempts"] = {n: _object(c, best) for n, c in left.items()}
        click.echo(json.dumps({"run": typed(found.path), **shown}))
        return
    click.echo(_text(found.shown(), catalog, best))
    if attempts:
        for number, catalog in left.items():
            title = f"{found.shown()}/attempts/{number}"
            click.echo("\n" + _text(title, catalog, best))
    elif count := sum(len(catalog.ids()) for catalog in left.values()):
        click.echo(_left(found, count))


def _text(title: str, catalog: Catalog, best: BestIn) -> str:
    from jobrun.checkpoint.contents import disk_use_text
    from jobrun.cli.table import table
    from jobrun.report.fitting import broken
    from jobrun.report.formatting import plain, plural

    records, ignored = catalog.survey()
    header = ("id", "epoch", "saved (UTC)", "size", "metrics")
    rows, left_out = _rows(header, records, best(records))
    use = f", {disk_use_text(catalog, records)}" if rows else ""
    count = plural(len(rows), "checkpoint") if rows else "no checkpoints"
    width = screen_width()
    lines = broken(f"{plain(title)}: {count}{use}", width, "  ")
    if rows:
        lines.append(table(header, rows, "rlll", width=width))
    if left_out:
        lines += broken(f"+{plural(left_out, 'metric')}: jobrun metrics, or --json", width)
    for each in ignored:
        lines += broken(f"{plain(each.name)} is not a checkpoint: {each.reason}", width, "  ")
    return "\n".join(lines)


def _rows(
    header: Sequence[str], records: Sequence[Record], best: Mapping[int, tuple[str, ...]]
) -> tuple[list[list[str]], int]:
    """Return a row for each checkpoint, and how many metrics have no room at most."""
    from jobrun.core.text import size
    from jobrun.report.fitting import few, text_width
    from jobrun.report.formatting import metric_texts

    rows = [[str(r.id), _epoch(r), r.time[:19].replace("T", " "), size(r.bytes)] for r in records]
    width = screen_width()
    others = [max(map(text_width, column)) + 2 for column in zip(header, *rows, strict=False)]
    room = None if width is None else max(width - sum(others), 0)
    shown = [few(metric_texts(r.metrics, best.get(r.id, ())), room) for r in records]
    found = [[*row, text] for row, (text, _) in zip(rows, shown, strict=True)]
    return found, max((left for _, left in shown), default=0)


def _epoch(record: Record) -> str:
    """Return ``2``, or ``2 + 10 batches`` inside the third."""
    from jobrun.report.formatting import plural

    position = record.position
    if position.at_boundary:
        return str(position.epochs)
    if not position.pipes:
        return f"{position.epochs} + {plural(len(position.tasks), 'task')}"
    return f"{position.epochs} + {position.batches} batch{'' if position.batches == '1' else 'es'}"


def _left(run: RunDir, count: int) -> str:
    """Return where the checkpoints are that are not shown."""
    import shlex

    from jobrun.core.invocation import program
    from jobrun.report.formatting import plain, plural

    command = f"{program()} checkpoints list {shlex.quote(run.shown())} --attempts"
    return plain(f"{plural(count, 'checkpoint')} of earlier attempts:  {command}")


def _object(catalog: Catalog, best: BestIn) -> dict[str, Any]:
    from jobrun.checkpoint.contents import small_disk_use

    records, ignored = catalog.survey()
    of = best(records)
    return {
        "checkpoints": [_checkpoint(catalog, r, of.get(r.id, ())) for r in records],
        "bytes_on_disk": small_disk_use(catalog, records),
        "ignored": [{"name": i.name, "reason": i.reason} for i in ignored],
    }


def _checkpoint(catalog: Catalog, record: Record, best: tuple[str, ...]) -> dict[str, Any]:
    from jobrun.report.formatting import json_values

    return {
        "id": record.id,
        "epoch": record.epoch,
        "inside_epoch": not record.at_boundary,
        "place": record.place,
        "batches": {key: pipe.batches for key, pipe in record.position.pipes.items()},
        "tasks": list(record.position.tasks),
        "time": record.time,
        "path": catalog.place(record.id),
        "bytes": record.bytes,
        "files": record.files,
        "run_seconds": record.run_seconds,
        "metrics": json_values(record.metrics),
        "best": list(best),
        "nodes": list(record.nodes),
        "decision": json_values(record.decision),
    }
