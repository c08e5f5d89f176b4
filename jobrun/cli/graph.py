"""``jobrun graph``: a picture of a job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from jobrun.cli.options import common, completes, option, runs_dir, sets_option, settings

if TYPE_CHECKING:
    from jobrun.drawing.picture import Picture
    from jobrun.model.job import Job
    from jobrun.runs.rundir import RunDir

__all__ = ["command"]

_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot"}


@click.command("graph", short_help="Draw the tasks of a spec and the blobs between them.")
@click.argument("spec", required=False, type=click.Path(), shell_complete=completes("spec"))
@option(
    "--run",
    "run",
    metavar="RUN",
    help="Colour it by how the tasks of this run went.",
    shell_complete=completes("run"),
)
@option(
    "--format",
    "form",
    metavar="FORM",
    type=click.Choice(["text", "mermaid", "dot", "svg"]),
    help="text, mermaid, dot or svg (default: by the ending of FILE, else text).",
)
@option("-o", "--output", metavar="FILE", type=click.Path(), help="Write to FILE.")
@sets_option
@runs_dir
@common
def command(
    spec: str | None,
    run: str | None,
    form: str | None,
    output: str | None,
    sets: tuple[str, ...],
    runs_dir: str,
) -> None:
    """Draw the job of SPEC: groups, tasks, the blobs between them, and which of those persist.

    Nothing is run or imported.  With --run and no SPEC, the job that was run.
    """
    if spec is None and run is None:
        raise click.UsageError("name a SPEC, or a run with --run")
    from jobrun.runs.find import find_run
    from jobrun.tools.run_picture import run_picture

    found = find_run(runs_dir, run) if run is not None else None
    job = _job(spec, found, sets)
    form = form or _ENDINGS.get(Path(output or "").suffix, "text")
    picture = run_picture(job, found)
    if settings().json:
        text = _json(picture)
    else:
        text = _writer(form, sys.stdout if output is None else None)(picture)
    if output is None:
        click.echo(text)
        return
    from jobrun.report.formatting import plain
    from jobrun.storage.atomic_file import write_text

    write_text(Path(output), text + "\n")
    if not settings().quiet:
        click.echo(f"{plain(output)} written", err=True)


def _job(spec: str | None, run: RunDir | None, sets: tuple[str, ...]) -> Job:
    from jobrun.jobspec.resolve import load
    from jobrun.jobspec.validate import job_of
    from jobrun.tools.stored_spec import stored_spec

    if spec is not None:
        return job_of(load(spec, sets))
    assert run is not None
    return job_of(stored_spec(run, None, sets).spec)


def _writer(form: str, stream: TextIO | None) -> Callable[[Picture], str]:
    """Return the function that writes a form; a tree uses the characters of the terminal."""
    if form == "svg":
        from jobrun.drawing.svg import svg

        return svg
    if form == "mermaid":
        from jobrun.drawing.mermaid import mermaid

        return mermaid
    if form == "dot":
        from jobrun.drawing.dot import dot

        return dot
    from jobrun.drawing.tree import glyphs_for, tree

    return lambda picture: tree(picture, glyphs_for(stream))


def _json(picture: Picture) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(picture))
