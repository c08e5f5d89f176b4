"""``jobrun show``: the history of a run, its times, and the reason of its end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, runs_dir, screen_width, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.checkpoint.catalog import Ignored
    from jobrun.checkpoint.record import Record
    from jobrun.report.attempts import Attempts, PastAttempt, TaskTime
    from jobrun.runs.overview import Overview
    from jobrun.runs.rundir import RunDir

__all__ = ["command"]

_SHOWN = 5
"""The number of the slowest tasks that are shown."""


@dataclass(frozen=True)
class _Shown:
    """All facts about a run."""

    run: RunDir
    view: Overview
    facts: Mapping[str, Any]
    code: Mapping[str, str]
    folder: str | None
    records: Sequence[Record]
    damaged: Sequence[Ignored]
    set_aside: int
    past: Attempts

    @property
    def best(self) -> Record | None:
        """The best kept checkpoint."""
        from jobrun.core.ranking import best_record
        from jobrun.engine.best import named_now

        name = self.view.best_by
        direction = self.view.directions.get(name) if name else None
        if not name or not direction:
            return None
        return best_record(named_now(self.records, self.run.state()), name, direction)

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of libraries in the newest checkpoint."""
        return self.records[-1].versions if self.records else self.view.versions

    @property
    def next(self) -> str:
        """The commands to type next."""
        from jobrun.core.invocation import program
        from jobrun.core.ranking import before_failure
        from jobrun.engine.best import named_now
        from jobrun.report.summary import command_after

        path = self.run.shown()
        if self.view.state == "running":
            return f"{program()} logs {shlex.quote(path)} -f"
        safe = before_failure(named_now(self.records, self.run.state()))
        epoch = safe.epoch if safe is not None else None
        return command_after(self.view.state, path, epoch, loadable=bool(self.records))


@click.command("show", short_help="Show what a run did, how long it took, and why it ended.")
@click.argument("run", required=False, shell_complete=completes("run_or_spec"))
@runs_dir
@common
def command(run: str | None, runs_dir: str) -> None:
    """Show RUN: its state, vars, metrics, checkpoints, attempts, slowest tasks and warnings.

    RUN is a name or its beginning, a path, a spec (its newest run), @latest, or @best.  The last
    line is the command to type next.
    """
    from jobrun.runs.find import find_run

    found = find_run(runs_dir, run)
    shown = _gather(found)
    click.echo(json.dumps(_object(shown)) if settings().json else _text(shown))


def _gather(run: RunDir) -> _Shown:
    """Collect all facts; raises the error of a run that cannot be read."""
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.errors import DamagedError
    from jobrun.report.attempts import read_attempts
    from jobrun.runs.overview import overview

    state = run.state()
    view = overview(run)
    if state is None:
        raise DamagedError(view.reason, where=run.shown())
    return _Shown(
        run=run,
        view=view,
        facts=state.facts,
        code=state.code,
        folder=state.folder,
        records=run.records(),
        damaged=run.damaged(),
        set_aside=sum(len(Catalog(run.attempt_path(n)).ids()) for n in run.attempts()),
        past=read_attempts(run.path / "events.jsonl"),
    )


# Text.


def _text(shown: _Shown) -> str:
    from jobrun.cli.table import labelled
    from jobrun.report.formatting import plain

    about = ((label, plain(text)) for label, text in _about(shown))
    lines = [_headline(shown), *labelled(about, 11, width=screen_width())]
    if shown.past.attempts:
        lines += ["", _attempts(shown.past.attempts, going=shown.run.held())]
    if shown.past.tasks:
        lines += ["", _tasks(shown.past)]
    if warnings := [*shown.past.warnings, *_damage(shown)]:
        lines += ["", *(f"warning: {plain(w)}" for w in warnings)]
    return "\n".join([*lines, *(["", plain(shown.next)] if shown.next else [])])


def _headline(shown: _Shown) -> str:
    from jobrun.report.formatting import plain, plural
    from jobrun.report.summary import OUTCOMES

    view = shown.view
    state = OUTCOMES.get(view.state, view.state)
    reason = f": {plain(view.reason)}" if view.reason else ""
    return f"{plain(shown.run.shown())}: {state} after {plural(view.epoch, 'epoch')}{reason}"


def _about(shown: _Shown) -> list[tuple[str, str]]:
    """Return the facts about the run, a line each."""
    from jobrun.report.formatting import metric_texts, number, value_text

    view, facts = shown.view, shown.facts
    seed = f", seed {facts['seed']}" if facts.get("seed") is not None else ""
    spec = f", spec {view.spec}" if view.spec else ""
    best = (f"{n} {number(v)} (epoch {e})" for n, (v, e) in view.best.items())
    nodes = facts.get("nodes") or {}
    return [
        ("job", f"{view.job}{seed}{spec}"),
        ("nodes", ", ".join(nodes)),
        ("vars", "  ".join(f"{n} {value_text(v)}" for n, v in facts.get("vars", {}).items())),
        ("started", f"{view.created[:19].replace('T', ' ')} (UTC)" if view.created else ""),
        ("time", _time(shown)),
        ("slowest", _slowest(shown.past.attempts)),
        ("metrics", "  ".join(metric_texts(view.metrics))),
        ("best", "  ".join(best)),
        ("checkpoints", _checkpoints(shown)),
        ("uploaded", _uploaded(shown.past.uploaded)),
        ("code", ", ".join(shown.code)),
        ("versions", ", ".join(f"{n} {v}" for n, v in shown.versions.items())),
    ]


def _time(shown: _Shown) -> str:
    from jobrun.core.text import duration
    from jobrun.report.formatting import percent, plural

    past = shown.past
    text = duration(shown.view.elapsed)
    if past.saved and past.seconds > 0:
        share = min(1.0, past.checkpoint_seconds / past.seconds)
        text += f", {percent(share)} in {plural(past.saved, 'checkpoint')}"
    return text


def _slowest(attempts: Sequence[PastAttempt]) -> str:
    """Return the slowest node of the last attempt that ran epochs."""
    from jobrun.report.summary import slowest_text

    told = [a for a in attempts if a.slowest is not None]
    return slowest_text(told[-1].slowest, told[-1].seconds) if told else ""


def _checkpoints(shown: _Shown) -> str:
    from jobrun.checkpoint.catalog import span
    from jobrun.checkpoint.contents import disk_use
    from jobrun.core.text import size

    if not shown.records:
        return "none"
    use = size(disk_use(shown.run.catalog.path(r.id) for r in shown.records))
    text = f"{len(shown.records)} kept: {span(r.id for r in shown.records)} ({use} on disk)"
    if (best := shown.best) is not None:
        text += f"; best: checkpoint_{best.id} ({best.place})"
    if shown.set_aside:
        text += f"; {shown.set_aside} of earlier attempts in attempts/"
    return text


def _uploaded(places: Sequence[str]) -> str:
    """Return the place of the newest upload, and the number of uploads."""
    from jobrun.core.paths import shown

    if not places:
        return ""
    return shown(places[-1]) + (f", and {len(places) - 1} earlier" if len(places) > 1 else "")


def _attempts(attempts: Sequence[PastAttempt], *, going: bool) -> str:
    """Return a table of attempts; ``going``: the last one has not ended."""
    from jobrun.cli.table import table
    from jobrun.core.text import duration

    header = ("attempt", "started (UTC)", "time", "from", "epochs", "ended")
    rows = [
        (
            f"{a.number}{f' (only {a.only})' if a.only else ''}",
            a.started[:19].replace("T", " "),
            duration(a.seconds),
            "init" if a.checkpoint is None else f"checkpoint_{a.checkpoint}",
            f"{a.epoch + 1}..{a.last}" if a.last > a.epoch else "-",
            "running" if going and a is attempts[-1] else _ending(a),
        )
        for a in attempts
    ]
    return table(header, rows, "llr", width=screen_width())


def _ending(attempt: PastAttempt) -> str:
    from jobrun.report.formatting import plain
    from jobrun.report.summary import OUTCOMES

    if not attempt.outcome:
        return "killed or crashed"
    reason = f": {plain(attempt.reason)}" if attempt.reason else ""
    return f"{OUTCOMES.get(attempt.outcome, attempt.outcome)}{reason}"


def _tasks(past: Attempts) -> str:
    from jobrun.cli.table import table
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
    return table(header, rows, "llrrrrr", width=screen_width())


def _damage(shown: _Shown) -> list[str]:
    return [f"{found.name} is no longer whole: {found.reason}" for found in shown.damaged]


# JSON.


def _object(shown: _Shown) -> dict[str, Any]:
    from jobrun.checkpoint.contents import disk_use
    from jobrun.report.formatting import json_values

    view, past, best = shown.view, shown.past, shown.best
    return {
        "name": view.name,
        "path": typed(shown.run.path),
        "state": view.state,
        "reason": view.reason,
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
        "bytes_on_disk": disk_use(shown.run.catalog.path(r.id) for r in shown.records),
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
    return {**asdict(attempt), "outcome": attempt.outcome or None, "only": attempt.only or None}


def _task(time: TaskTime) -> dict[str, Any]:
    return asdict(time)
