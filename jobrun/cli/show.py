"""``jobrun show``: the history of a run, its times, and the reason of its end."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, runs_dir, screen_width, settings
from jobrun.cli.run_object import run_object

if TYPE_CHECKING:
    from jobrun.report.attempts import Attempts, PastAttempt
    from jobrun.tools.run_summary import RunSummary

__all__ = ["command"]

_SHOWN = 5
"""The number of the slowest tasks that are shown."""


@click.command("show", short_help="Show what a run did, how long it took, and why it ended.")
@click.argument("run", required=False, shell_complete=completes("run_or_spec"))
@runs_dir
@common
def command(run: str | None, runs_dir: str) -> None:
    """Show RUN: its state, vars, metrics, checkpoints, attempts, slowest tasks and warnings.

    RUN is a name or its beginning, a path, a spec (its newest run), @latest, or @best.  The last
    line is the command to type next.  Of a sweep, the table of its runs is shown.
    """
    from jobrun.cli.sweep import show_sweep, stored_sweep
    from jobrun.runs.find import find_run, find_sweep
    from jobrun.tools.run_summary import run_summary

    is_name = run is not None and not run.endswith((".yaml", ".yml"))
    if is_name and (sweep := find_sweep(runs_dir, run)) is not None:
        show_sweep(stored_sweep(sweep), sweep)
        return
    found = find_run(runs_dir, run)
    shown = run_summary(found)
    click.echo(json.dumps(_object(shown)) if settings().json else _text(shown))


# Text.


def _text(shown: RunSummary) -> str:
    from jobrun.report.fitting import broken, labelled
    from jobrun.report.formatting import plain
    from jobrun.tools.run_summary import about, headline

    width = screen_width()
    facts = ((label, plain(text)) for label, text in about(shown))
    lines = [*broken(headline(shown), width, "  "), *labelled(facts, 11, width=width)]
    if shown.past.attempts:
        lines += ["", _attempts(shown)]
    if shown.past.tasks:
        lines += ["", _tasks(shown.past)]
    if warnings := shown.warnings:
        lines += [
            "",
            *(line for w in warnings for line in broken(f"warning: {plain(w)}", width, "  ")),
        ]
    return "\n".join([*lines, *(["", plain(shown.next)] if shown.next else [])])


def _attempts(shown: RunSummary) -> str:
    from jobrun.cli.table import table
    from jobrun.tools.run_tables import attempt_columns

    columns = attempt_columns(shown.past.attempts, going=shown.run.held())
    del columns["session"]
    rows = list(zip(*columns.values(), strict=True))
    return table(list(columns), rows, "llr", width=screen_width(), flows=True)


def _tasks(past: Attempts) -> str:
    from jobrun.cli.table import fitted
    from jobrun.report.formatting import plain
    from jobrun.tools.run_tables import task_columns

    columns = task_columns(past, _SHOWN)
    header = ["slowest tasks", *list(columns)[1:]]
    rows = [[plain(cell) for cell in row] for row in zip(*columns.values(), strict=True)]
    return fitted(header, rows, "llrrrrr", width=screen_width(), shortens=True, spare=(5, 1)).text


# JSON.


def _object(shown: RunSummary) -> dict[str, Any]:
    from jobrun.checkpoint.contents import small_disk_use

    past, best = shown.past, shown.best
    return {
        **run_object(shown.view),
        "folder": shown.folder,
        "seed": shown.facts.get("seed"),
        "nodes": list(shown.facts.get("nodes") or []),
        "checkpoints": [
            {"id": r.id, "epoch": r.epoch, "place": r.place, "time": r.time, "bytes": r.bytes}
            for r in shown.records
        ],
        "bytes_on_disk": small_disk_use(shown.run.catalog, shown.records),
        "best_checkpoint": best.id if best is not None else None,
        "damaged": [{"name": i.name, "reason": i.reason} for i in shown.damaged],
        "set_aside": shown.set_aside,
        "uploaded": list(past.uploaded),
        "checkpoint_seconds": past.checkpoint_seconds,
        "attempts": [_attempt(a) for a in past.attempts],
        "tasks": [asdict(t) for t in past.tasks],
        "code": dict(shown.code),
        "versions": dict(shown.versions),
        "warnings": past.warnings,
        "next": shown.next,
    }


def _attempt(attempt: PastAttempt) -> dict[str, Any]:
    texts = {name: getattr(attempt, name) or None for name in ("outcome", "only", "slurm_job")}
    return {**asdict(attempt), **texts}
