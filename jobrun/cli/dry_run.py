"""The text of a dry run, shown by ``train -n`` and ``resume -n``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jobrun.cli.options import settings
from jobrun.cli.table import table
from jobrun.core.paths import shown
from jobrun.core.text import size
from jobrun.drawing.picture import picture
from jobrun.drawing.tree import glyphs_for, tree
from jobrun.engine.resume_policy import Request
from jobrun.model.job import Job
from jobrun.model.policy import SessionSpec
from jobrun.report.formatting import plain, plural
from jobrun.session.base import Places
from jobrun.session.local import LocalSession, default_threads
from jobrun.tools.dry_run import DryRun, Size, dry_run, sizes

__all__ = ["show_dry_run"]

_AGAIN = ("setup", "download", "exit")
"""The groups that run if exit alone is run again."""


def show_dry_run(
    job: Job,
    request: Request,
    runs_dir: str,
    run: Path | None,
    *,
    threads: int | None,
    shapes: bool,
) -> int:
    """Show what would be done; return the exit code, that of a refusal if it is refused."""
    planned = dry_run(job, request, runs_dir, run)
    if planned.choice.action == "refuse":
        raise planned.choice.refusal()
    session = _session(job.session, threads)
    places = Places(request.spec_dir, code_dir=request.folder)
    known = sizes(job, LocalSession(threads), places) if shapes else None
    if settings().json:
        click.echo(json.dumps(_json(job, planned, known, session)))
        return planned.choice.exit_code
    for line in _lines(job, planned, known, session):
        click.echo(line)
    return planned.choice.exit_code


def _lines(job: Job, planned: DryRun, known: Sequence[Size] | None, session: str) -> Iterator[str]:
    yield from map(plain, _decision(job, planned))
    if planned.choice.action == "done":
        return
    if planned.choice.action == "exit":
        yield from (f"  {plain(line)}" for line in _last_groups(job))
        return
    yield ""
    yield plain(tree(picture(job), glyphs_for(sys.stdout)))
    yield ""
    yield f"session      {plain(session)}"
    yield f"persists     {plain(', '.join(planned.persists)) or 'nothing'}"
    yield f"checkpoints  {_checkpoints(job, planned, known)}"
    if known:
        yield from ("  " + line for line in _table_of(known).splitlines())
    yield "stops        " + "\n             ".join(_conditions(planned))


def _session(spec: SessionSpec, threads: int | None = None) -> str:
    """Return the session that would run it, in words; nothing is started or contacted.

    ``local, 2 threads``, ``dask, 4 workers on this machine, 1 thread each``, or ``dask, the workers
    of tcp://host:8786``.
    """
    threads = threads or spec.threads
    if spec.kind == "local":
        return LocalSession(threads).description
    if spec.address is not None:
        each = f", {plural(threads, 'thread')} a node" if threads else ""
        return f"dask, the workers of {spec.address}{each}"
    workers = plural(spec.workers or default_threads(), "worker")
    return f"dask, {workers} on this machine, {plural(threads or 1, 'thread')} each"


def _last_groups(job: Job) -> Iterator[str]:
    """Yield what runs if exit alone is run again, a line per group."""
    for group in _AGAIN:
        names = [box.name for box in picture(job).boxes if box.group == group]
        if names:
            yield f"{group}: {', '.join(names)}"


def _decision(job: Job, planned: DryRun) -> Iterator[str]:
    choice, where = planned.choice, shown(planned.run_dir)
    if choice.action == "done":
        yield from choice.lines
        return
    if choice.start is not None:
        start = f"checkpoint_{choice.start.id} ({choice.start.place})"
        what = "run exit again on" if choice.action == "exit" else "resume from"
        yield f"{job.name} in {where}: would {what} {start}"
        if choice.rewind:
            yield "later checkpoints would move to its attempts/"
    else:
        yield f"{job.name} in {where}: would start from the beginning"
    yield from choice.lines


def _checkpoints(job: Job, planned: DryRun, known: Sequence[Size] | None) -> str:
    policy = job.checkpoint
    if policy is None:
        return "none"
    every = policy.every
    when = []
    if every.epochs is not None:
        when.append("every epoch" if every.epochs == 1 else f"every {every.epochs} epochs")
    when += [f"every {every.batches} batches"] if every.batches else []
    when += [f"every {every.seconds:g} s"] if every.seconds else []
    text = " or ".join(when)
    text += f", at most {planned.kept} kept" if planned.kept is not None else ", all kept"
    if known is not None:
        text += f"; each {size(sum(s.bytes for s in known))} in {plural(len(known), 'blob')}"
    return text


def _table_of(known: Sequence[Size]) -> str:
    rows = [(plain(s.name), s.kind, str(s.shape) if s.shape else "", size(s.bytes)) for s in known]
    return table(("blob", "kind", "shape", "bytes"), rows, right="lllr")


def _conditions(planned: DryRun) -> Iterator[str]:
    if not planned.outlook:
        yield "never"
    for outlook in planned.outlook:
        text = plain(outlook.text) + (" (a failure)" if outlook.fails else "")
        if not outlook.can_fire:
            text += f": cannot be before epoch {planned.epochs} ends the run"
        elif outlook.earliest is not None and outlook.earliest > planned.epoch + 1:
            text += f": not before epoch {outlook.earliest}" * (not text.startswith("after epoch"))
        if outlook.progress and planned.epoch:
            text += f" ({plain(outlook.progress)})"
        yield text


def _json(job: Job, planned: DryRun, known: Sequence[Size] | None, session: str) -> dict[str, Any]:
    choice = planned.choice
    tasks = [
        {"group": b.group, "task": b.name, "node": b.node, "rank": b.rank}
        for b in picture(job).boxes
        if choice.action != "exit" or b.group in _AGAIN
    ]
    return {
        "job": job.name,
        "run_dir": str(planned.run_dir),
        "action": choice.action,
        "lines": list(choice.lines),
        "checkpoint": choice.start.id if choice.start is not None else None,
        "epoch": planned.epoch,
        "tasks": tasks,
        "session": session,
        "persists": list(planned.persists),
        "checkpoints_kept": planned.kept,
        "blobs": [asdict(s) for s in known] if known is not None else None,
        "conditions": [asdict(o) for o in planned.outlook],
        "exit_code": choice.exit_code,
    }
