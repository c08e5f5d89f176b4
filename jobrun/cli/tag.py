"""``jobrun tag``: words by which runs are found again."""

from __future__ import annotations

import json

import click

from jobrun.cli.options import common, completes, option, runs_dir, settings
from jobrun.core.paths import typed

__all__ = ["command"]


@click.command("tag", short_help="Give runs tags, to find them again.")
@click.argument("run", shell_complete=completes("run_or_spec"))
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@option("--remove", is_flag=True, help="Remove these tags.")
@runs_dir
@common
def command(run: str, tags: tuple[str, ...], remove: bool, runs_dir: str) -> None:
    """Give RUN tags, and show those it has; a running run can be tagged too.

    `jobrun runs --search TAG` lists the runs of a tag; show, runs and compare show them.
    """
    from jobrun.report.formatting import plain
    from jobrun.runs.find import find_run
    from jobrun.runs.labels import read_labels, with_tags, write_labels

    found = find_run(runs_dir, run)
    labels = read_labels(found)
    if tags:
        labels = with_tags(labels, tags, remove=remove)
        write_labels(found, labels)
    if settings().json:
        click.echo(json.dumps({"run": typed(found.path), "tags": list(labels.tags)}))
    else:
        click.echo(f"{plain(found.shown())}: {', '.join(labels.tags) or 'no tags'}")
