"""``jobrun show``: the history of a run, its times, and the reason of its end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, runs_dir, screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.report.attempts import Attempts, PastAttempt, TaskTime
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
        lines += ["", _attempts(shown.past.attempts, going=shown.run.held())]
    if shown.past.tasks:
        lines += ["", _tasks(shown.past)]
    if warnings := [*shown.past.warnings, *_damage(shown)]:
        lines += [
            "",
            *(line for w in warnings for line in broken(f"warning: {plain(w)}", width, "  ")),
        ]
    return "\n".join([*lines, *(["", plain(shown.next)] if shown.next else [])])


def _attempts(attempts: Sequence[PastAttempt], *, going: bool) -> str:
    """Return a table of attempts; ``going``: the last one has not ended."""
    from jobrun.cli.table import table
    from jobrun.core.text import duration
    from jobrun.tools.run_summary import ending, slurm_job_text

    in_slurm = any(a.slurm_job for a in attempts)
    header = ["attempt", "started (UTC)", "time", *["Slurm job"] * in_slurm]
    header += ["from", "epochs", "ended"]
    rows = [
        [
            f"{a.number}{f' (only {a.only})' if a.only else ''}",
            a.started[:19].replace("T", " "),
            duration(a.seconds),
            *[slurm_job_text(a) or "-"] * in_slurm,
            "init" if a.checkpoint is None else f"checkpoint_{a.checkpoint}",
            f"{a.epoch + 1}..{a.last}" if a.last > a.epoch else "-",
            "running" if going and a is attempts[-1] else ending(a),
        ]
        for a in attempts
    ]
    return table(header, rows, "llr", width=screen_width(), flows=True)


def _tasks(past: Attempts) -> str:
    from jobrun.cli.table import fitted
    from jobrun.core.text import duration
    from jobrun.report.formatting import plain

    header = ("slowest tasks", "group", "total", "share", "times", "mean", "longest")
    rows = [
        (
            plain(t.task),
            t.group,
            duration(t.seconds),
            f"{t.seconds / past.seconds:.0%}" if past.seconds > 0 else "",
            str(t.times),
            duration(t.seconds / t.times),
            duration(t.longest),
        )
        for t in past.tasks[:_SHOWN]
    ]
    return fitted(header, rows, "llrrrrr", width=screen_width(), shortens=True, spare=(5, 1)).text


def _damage(shown: RunSummary) -> list[str]:
    return [f"{found.name} is no longer whole: {found.reason}" for found in shown.damaged]


# JSON.


def _object(shown: RunSummary) -> dict[str, Any]:
    from jobrun.checkpoint.contents import small_disk_use
    from jobrun.report.formatting import json_values

    view, past, best = shown.view, shown.past, shown.best
    return {
        "name": view.name,
        "path": typed(shown.run.path),
        "state": view.state,
        "reason": view.reason,
        "tags": list(view.labels.tags),
        "note": view.labels.note,
        "job": view.job,
        "spec": view.spec,
        "folder": shown.folder,
        "seed": shown.facts.get("seed"),
        "vars": json_values(shown.facts.get("vars", {})),
        "nodes": list(shown.facts.get("nodes") or []),
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
        "tasks": [_task(t) for t in past.tasks],
        "code": dict(shown.code),
        "versions": dict(shown.versions),
        "warnings": past.warnings,
        "next": shown.next,
    }


def _attempt(attempt: PastAttempt) -> dict[str, Any]:
    texts = {name: getattr(attempt, name) or None for name in ("outcome", "only", "slurm_job")}
    return {**asdict(attempt), **texts}


def _task(time: TaskTime) -> dict[str, Any]:
    return asdict(time)
