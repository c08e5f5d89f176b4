"""``jobrun checkpoints path``: the path of one checkpoint."""

from __future__ import annotations

import json

import click

from jobrun.cli.options import (
    best_checkpoint,
    best_path,
    common,
    completes,
    one_checkpoint,
    runs_dir,
    settings,
)
from jobrun.core.paths import typed

__all__ = ["command"]


@click.command("path", short_help="Print the path of one checkpoint, for scripts.")
@click.argument("run", required=False, shell_complete=completes("run"))
@one_checkpoint
@best_checkpoint
@runs_dir
@common
def command(
    run: str | None, epoch: int | None, id: int | None, best: bool, by: str | None, runs_dir: str
) -> None:
    """Print the path of the newest checkpoint of RUN, or of the selected one.

    Nothing else is printed: cp -r "$(jobrun checkpoints path --best)" somewhere
    """
    from jobrun.runs.find import find_checkpoint

    if best or by is not None:
        path = best_path(runs_dir, run, by, epoch, id)
    else:
        path = find_checkpoint(runs_dir, run, epoch=epoch, id=id)
    if settings().json:
        from jobrun.checkpoint.integrity import read_record
        from jobrun.storage.fs import DEFAULT

        record = read_record(DEFAULT, str(path))
        shown = {"path": typed(path), "id": record.id, "epoch": record.epoch, "place": record.place}
        click.echo(json.dumps(shown))
    else:
        click.echo(typed(path))
