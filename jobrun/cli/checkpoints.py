"""``jobrun checkpoints list``: the checkpoints of a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, runs_dir, settings

if TYPE_CHECKING:
    from jobrun.checkpoint.record import Record
    from jobrun.rundir import RunDir

__all__ = ["command"]


@click.group("checkpoints", short_help="Look at the checkpoints of a run.")
@common
def command() -> None:
    """Look at the checkpoints of a run."""


@command.command("list")
@click.argument("run", required=False)
@runs_dir
@common
def list_(run: str | None, runs_dir: str) -> None:
    """List the checkpoints of RUN (a name, a path or a spec; default: the newest run).

    What is named like a checkpoint and is none is listed below, with the reason.
    """
    from jobrun.runs import find_run

    found = find_run(runs_dir, run)
    records = found.records()
    if settings().json:
        ignored = [{"name": i.name, "reason": i.reason} for i in found.catalog.ignored()]
        values = [_object(found, record) for record in records]
        shown = {"run": str(found.path), "checkpoints": values, "ignored": ignored}
        click.echo(json.dumps(shown))
        return
    click.echo(_text(found, records))


def _text(run: RunDir, records: list[Record]) -> str:
    from jobrun.cli.table import table
    from jobrun.report.words import metric_texts, plain, size

    header = ("id", "epoch", "saved (UTC)", "size", "metrics")
    rows = [
        (
            str(r.id),
            str(r.epoch) if r.at_boundary else f"{r.epoch}+",
            r.time[:19].replace("T", " "),
            size(r.bytes),
            "  ".join(metric_texts(r.metrics)),
        )
        for r in records
    ]
    lines = [f"{plain(run.shown())}: {len(rows) or 'no'} checkpoint{'' if len(rows) == 1 else 's'}"]
    if rows:
        lines.append(table(header, rows, "rrlr"))
    lines += [f"{plain(i.name)} is no checkpoint: {i.reason}" for i in run.catalog.ignored()]
    return "\n".join(lines)


def _object(run: RunDir, record: Record) -> dict[str, Any]:
    from jobrun.report.words import json_values

    return {
        "id": record.id,
        "epoch": record.epoch,
        "inside_epoch": not record.at_boundary,
        "time": record.time,
        "path": str(run.catalog.path(record.id)),
        "bytes": record.bytes,
        "files": record.files,
        "run_seconds": record.run_seconds,
        "metrics": json_values(record.metrics),
        "nodes": list(record.nodes),
        "decision": json_values(record.decision),
    }
