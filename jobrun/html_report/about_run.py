"""One run in a report: its facts, graph, tables, spec and log, as plain texts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobrun.checkpoint.contents import contents, disk_use, disk_use_text, freed_by
from jobrun.checkpoint.dtypes import dtype_text
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.record import Record
from jobrun.core.text import size
from jobrun.drawing.run_states import RunStates
from jobrun.drawing.svg import svg
from jobrun.errors import JobrunError
from jobrun.html_report.spec_text import spec_of, with_origins
from jobrun.html_report.timeline import Timeline
from jobrun.jobspec.validate import job_of
from jobrun.report.attempts import Attempts
from jobrun.report.formatting import metric_texts, plural
from jobrun.report.log_reader import last_lines
from jobrun.runs.rundir import RunDir
from jobrun.tools.run_picture import states_picture
from jobrun.tools.run_summary import RunSummary, about, headline, run_summary
from jobrun.tools.run_tables import attempt_columns, task_columns

__all__ = ["AboutRun", "TextTable", "about_run"]

MOST_CHECKPOINTS = 200
"""The most checkpoints of a run that are listed, the newest."""
MOST_BLOBS = 500
_TASKS = 20


@dataclass(frozen=True)
class TextTable:
    """A header, its rows, and a remark below."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class AboutRun:
    """One run: ``graph`` is an image as a data URL, empty with ``no_graph`` saying why."""

    name: str
    summary: RunSummary
    timeline: Mapping[str, Any]
    headline: str
    facts: Sequence[tuple[str, str]]
    attempts: TextTable
    tasks: TextTable
    checkpoints: TextTable
    blobs: TextTable
    graph: str
    no_graph: str
    spec: str
    warnings: Sequence[str]
    log: Sequence[str]
    log_note: str


def about_run(name: str, run: RunDir, log_lines: int) -> AboutRun:
    """Collect what a report shows of a run, with the last ``log_lines`` lines of its log.

    For a part that cannot be read (a spec of a newer jobrun, a damaged checkpoint) the reason is in
    its place.  Raises DamagedError for a run of which nothing can be read.
    """
    states, timeline = RunStates(alive=run.held()), Timeline()
    summary = run_summary(run, [states, timeline])
    graph, no_graph = _graph(run, states)
    log, log_note = _log(run.path / "log.txt", log_lines)
    return AboutRun(
        name=name,
        summary=summary,
        timeline=timeline.of(summary),
        headline=headline(summary),
        facts=[(label, text) for label, text in about(summary) if text],
        attempts=_table(attempt_columns(summary.past.attempts, going=run.held())),
        tasks=_tasks(summary.past),
        checkpoints=_checkpoints(run, summary),
        blobs=_blobs(run, summary.records),
        graph=graph,
        no_graph=no_graph,
        spec=with_origins(run),
        warnings=summary.warnings,
        log=log,
        log_note=log_note,
    )


def _graph(run: RunDir, states: RunStates) -> tuple[str, str]:
    """Return the graph with times as a data URL, or why there is none."""
    try:
        spec = spec_of(run)
        if spec is None:
            return "", "The job was built in Python: its graph is not stored in the run."
        image = svg(states_picture(job_of(spec), states)).encode("utf-8", "replace")
    except JobrunError as error:
        return "", f"The graph cannot be drawn: {error.message}"
    return "data:image/svg+xml;base64," + base64.b64encode(image).decode("ascii"), ""


def _tasks(past: Attempts) -> TextTable:
    note = "Of each group only the slowest tasks are recorded." if past.tasks else ""
    return _table(task_columns(past, _TASKS), note)


def _table(columns: Mapping[str, Sequence[str]], note: str = "") -> TextTable:
    return TextTable(list(columns), list(zip(*columns.values(), strict=True)), note)


def _checkpoints(run: RunDir, summary: RunSummary) -> TextTable:
    """Return the kept checkpoints; ``shared`` is what another name on the disk holds as well."""
    header = ("checkpoint", "place", "saved (UTC)", "size", "own", "shared", "metrics")
    records, best = summary.records[-MOST_CHECKPOINTS:], summary.best
    rows = []
    for record in records:
        path = run.catalog.path(record.id)
        total, own = disk_use([path]), freed_by([path])
        rows.append(
            (
                f"checkpoint_{record.id}{' (best)' if best and best.id == record.id else ''}",
                record.place,
                record.time[:19].replace("T", " "),
                size(record.bytes),
                size(own),
                size(total - own),
                "  ".join(metric_texts(record.metrics)),
            )
        )
    if not rows:
        return TextTable(header, rows)
    use = disk_use_text(run.catalog, summary.records)
    left = len(summary.records) - len(records)
    note = f"All together they take {use}; own is what removing that one alone frees."
    return TextTable(header, rows, note + (f" {left} earlier ones are not listed." if left else ""))


def _blobs(run: RunDir, records: Sequence[Record]) -> TextTable:
    """Return the blobs of the newest checkpoint, and the checkpoint that first wrote each."""
    header = ("blob", "type", "shape", "size", "written in")
    if not records:
        return TextTable(header, ())
    try:
        record, leaves = contents(run.catalog.path(records[-1].id))
    except JobrunError as error:
        return TextTable(header, (), f"checkpoint_{records[-1].id} cannot be read: {error.message}")
    rows = [
        (
            leaf.name,
            _type(leaf.entry),
            " x ".join(map(str, leaf.entry.shape or ())),
            size(leaf.bytes),
            "" if leaf.version is None else f"checkpoint_{leaf.version}",
        )
        for leaf in sorted(leaves, key=lambda leaf: -leaf.bytes)[:MOST_BLOBS]
    ]
    left = len(leaves) - len(rows)
    note = f"checkpoint_{record.id}, the largest first."
    return TextTable(
        header, rows, note + (f" {plural(left, 'smaller blob')} not listed." * bool(left))
    )


def _type(entry: Entry) -> str:
    return entry.kind if entry.dtype is None else dtype_text(entry.dtype)


def _log(path: Path, most: int) -> tuple[list[str], str]:
    """Return the last lines of a log, and how many stand before them or why there are none."""
    try:
        lines, left = last_lines(path, most)
    except FileNotFoundError:
        return [], "The run has no log."
    except (JobrunError, OSError) as error:
        what = error.message if isinstance(error, JobrunError) else str(error)
        return [], f"The log cannot be read: {what}"
    return lines, f"{plural(left, 'earlier line')} not shown." if left else ""
