"""All that is known about a run: state, times, metrics, checkpoints, attempts, the next command.

``jobrun show`` prints it, and ``jobrun report`` begins with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobrun.checkpoint.catalog import Catalog, Ignored, span
from jobrun.checkpoint.contents import disk_use_text
from jobrun.checkpoint.record import Record
from jobrun.core.paths import shown
from jobrun.core.ranking import before_failure, best_record
from jobrun.core.text import duration
from jobrun.engine.best_metric import named_now
from jobrun.errors import DamagedError
from jobrun.report.attempts import Attempts, PastAttempt, read_attempts
from jobrun.report.events_file import EventReader
from jobrun.report.formatting import metric_texts, number, percent, plain, plural, value_text
from jobrun.report.summary import OUTCOMES, Kept, command_after, slowest_text
from jobrun.runs.overview import Overview, overview
from jobrun.runs.rundir import RunDir
from jobrun.runs.series import numbered

__all__ = ["RunSummary", "about", "headline", "run_summary"]


@dataclass(frozen=True)
class RunSummary:
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
    def warnings(self) -> list[str]:
        """The warnings of all attempts, and which checkpoints are damaged."""
        damage = (f"{found.name} is no longer whole: {found.reason}" for found in self.damaged)
        return [*self.past.warnings, *damage]

    @property
    def next(self) -> str:
        """The command to type next, which the summary of the last attempt has shown too.

        Empty where that is ``show``: this is what it shows.
        """
        state, view = self.run.state(), self.view
        if state is None:
            return ""
        catalog, known = self.run.catalog, named_now(self.records, state)
        newest = catalog.whole(known, lambda left: max(left, key=lambda r: r.id, default=None))
        safe = catalog.whole(known, before_failure) if view.state == "failed" else None
        first = newest is None or (newest.epoch == 0 and newest.at_boundary)
        kept = Kept(
            loadable=newest is not None,
            only_init=first,
            before_failure=safe.epoch if safe is not None else None,
            lost=newest is None and bool(self.records or self.damaged),
            behind=newest is not None and newest.epoch < state.epoch,
        )
        again = ""
        if first and view.state == "error":
            from jobrun.tools.train_again import train_again  # it reads the spec

            again = train_again(self.run, state)
        if view.state == "failed" and safe is None and not kept.lost:
            return ""
        return command_after(view.state, self.run.shown(), kept, again)


def run_summary(run: RunDir, also: Sequence[EventReader] = ()) -> RunSummary:
    """Collect all facts; raises the error of a run that cannot be read.

    ``also`` are others that need the events of the run, so that they are read once.
    """
    state = run.state()
    view = overview(run)
    if state is None:
        raise DamagedError(view.reason, where=run.shown())
    catalog = run.checkpoints
    records, ignored = catalog.survey()
    return RunSummary(
        run=run,
        view=view,
        facts=state.facts,
        code=state.code,
        folder=state.folder,
        records=records,
        damaged=[i for i in ignored if i.id is not None and catalog.is_ours(i.id)],
        set_aside=sum(len(Catalog(run.attempt_path(n)).ids()) for n in run.attempts()),
        past=read_attempts(run.path / "events.jsonl", also),
    )


def headline(summary: RunSummary) -> str:
    """Return the path, the outcome, the number of epochs and the reason of the end."""
    view = summary.view
    state = OUTCOMES.get(view.state, view.state)
    reason = f": {plain(view.reason)}" if view.reason else ""
    return f"{plain(summary.run.shown())}: {state} after {plural(view.epoch, 'epoch')}{reason}"


def about(summary: RunSummary) -> list[tuple[str, str]]:
    """Return the facts about the run, a line each."""
    view, facts = summary.view, summary.facts
    seed = f", seed {facts['seed']}" if facts.get("seed") is not None else ""
    spec = f", spec {view.spec}" if view.spec else ""
    best = (f"{n} {number(v)} (epoch {e})" for n, (v, e) in view.best.items())
    nodes = facts.get("nodes") or {}
    return [
        ("job", f"{view.job}{seed}{spec}"),
        ("newer run", _newer(summary)),
        ("tags", ", ".join(view.labels.tags)),
        ("note", view.labels.note),
        ("nodes", ", ".join(nodes)),
        ("vars", "  ".join(f"{n} {value_text(v)}" for n, v in facts.get("vars", {}).items())),
        ("started", f"{view.created[:19].replace('T', ' ')} (UTC)" if view.created else ""),
        ("time", _time(summary)),
        ("slowest", _slowest(summary.past.attempts)),
        ("metrics", "  ".join(metric_texts(view.metrics))),
        ("best", "  ".join(best)),
        ("checkpoints", _checkpoints(summary)),
        ("uploaded", _uploaded(summary.past.uploaded)),
        ("code", ", ".join(summary.code)),
        ("versions", ", ".join(f"{n} {v}" for n, v in summary.versions.items())),
    ]


def _newer(summary: RunSummary) -> str:
    """Return the newest run of the same name, ``<name>-2``, …, if that is another one."""
    run = summary.run
    base = summary.view.job
    paths = numbered(run.path.absolute().parent, base) if base else []
    newest = next((RunDir(path) for path in paths if RunDir(path).is_run()), None)
    names = [path.name for path in paths]
    if newest is None or run.path.absolute().name not in names or newest.path.name == run.path.name:
        return ""
    view = overview(newest)
    return f"{newest.shown()}, {view.state} after {plural(view.epoch, 'epoch')}"


def _time(summary: RunSummary) -> str:
    past = summary.past
    text = duration(summary.view.elapsed)
    if past.saved and past.seconds > 0:
        share = min(1.0, past.checkpoint_seconds / past.seconds)
        text += f", {percent(share)} in {plural(past.saved, 'checkpoint')}"
    return text


def _slowest(attempts: Sequence[PastAttempt]) -> str:
    """Return the slowest node of the last attempt that ran epochs."""
    timed = [a for a in attempts if a.slowest is not None]
    return slowest_text(timed[-1].slowest, timed[-1].seconds) if timed else ""


def _checkpoints(summary: RunSummary) -> str:
    if not summary.records:
        return "none"
    use = disk_use_text(summary.run.catalog, summary.records)
    text = f"{len(summary.records)} kept: {span(r.id for r in summary.records)}"
    if any(r.id != r.epoch for r in summary.records):
        text += f", of epochs {summary.records[0].epoch} to {summary.records[-1].epoch}"
    text += f" ({use})"
    if (best := summary.best) is not None:
        by = f" by {plain(summary.view.best_by)}" if len(summary.view.best) > 1 else ""
        text += f"; best{by}: checkpoint_{best.id} ({best.place})"
    if summary.set_aside:
        text += f"; {summary.set_aside} of earlier attempts in attempts/"
    return text


def _uploaded(places: Sequence[str]) -> str:
    """Return the place of the newest upload, and the number of uploads."""
    if not places:
        return ""
    return shown(places[-1]) + (f", and {len(places) - 1} earlier" if len(places) > 1 else "")
