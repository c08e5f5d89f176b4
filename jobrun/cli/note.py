"""``jobrun note``: a note about a run."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from jobrun.cli.options import common, completes, runs_dir, settings
from jobrun.core.paths import typed

__all__ = ["command"]


@click.command("note", short_help="Write a note about a run.")
@click.argument("run", shell_complete=completes("run_or_spec"))
@click.argument("text", required=False)
@runs_dir
@common
def command(run: str, text: str | None, runs_dir: str) -> None:
    """Write TEXT as the note of RUN in place of the one it had; without TEXT, show the note.

    An empty TEXT removes it.  `jobrun runs --search WORD` finds words in notes; show, runs and
    compare show them.
    """
    from jobrun.report.formatting import plain
    from jobrun.runs.find import find_run
    from jobrun.runs.labels import read_labels, write_labels

    found = find_run(runs_dir, run)
    labels = read_labels(found)
    if text is not None:
        labels = replace(labels, note=text.strip())
        write_labels(found, labels)
    if settings().json:
        click.echo(json.dumps({"run": typed(found.path), "note": labels.note}))
    else:
        click.echo(f"{plain(found.shown())}: {plain(labels.note) or 'no note'}")
