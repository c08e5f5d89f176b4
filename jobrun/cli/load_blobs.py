"""``jobrun load-blobs``: show or export the blobs of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.elsewhere import report_skipped
from jobrun.cli.options import (
    common,
    completes,
    one_checkpoint,
    option,
    runs_dir,
    screen_width,
    settings,
)
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.checkpoint.loading import Chosen
    from jobrun.checkpoint.record import Record
    from jobrun.tools.inspect import Leaf
    from jobrun.values.boxes import Box

    Seen = tuple[list[Leaf], dict[str, Box]]

__all__ = ["command"]

_HINT = (
    "--fallback takes the newest checkpoint that is whole; "
    "jobrun checkpoints verify RUN names all that is damaged"
)


@click.command("load-blobs", short_help="Show or export the blobs of a checkpoint.")
@click.argument(
    "run", required=False, metavar="[RUN|CHECKPOINT]", shell_complete=completes("checkpoint")
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completes("blob"))
@one_checkpoint
@option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR/",
    help="Export: .npz, .npy, .safetensors, or a directory of .npy.",
)
@option(
    "--fallback",
    is_flag=True,
    help="If the newest checkpoint is damaged, read all names from an older one.",
)
@runs_dir
@common
def command(
    run: str | None,
    names: tuple[str, ...],
    epoch: int | None,
    id: int | None,
    output: str | None,
    fallback: bool,
    runs_dir: str,
) -> None:
    """Show the blobs of the newest checkpoint of RUN, or of one CHECKPOINT directory.

    RUN is a name, a path or a spec (default: the newest run), or the URL of a run or a checkpoint:
    s3://bucket/run.  A NAME may be a glob, or have a slice, of which no more is read than the
    chunks it touches: 'model/*', 'model/w1[0:10]'.
    """
    if fallback and (epoch is not None or id is not None):
        raise click.UsageError("--fallback is for the newest checkpoint: not with --epoch or --id")

    chosen = _read(runs_dir, run, names, epoch=epoch, id=id, fallback=fallback)
    report_skipped(chosen.skipped)
    path, record, (picked, boxes) = chosen.place, chosen.record, chosen.value
    if output is not None:
        from jobrun.tools.export import export

        about = {"job": record.job, "checkpoint": str(record.id), "epoch": str(record.epoch)}
        _report_exported(output, boxes, export(boxes, output, about))
        return
    sliced = {leaf.name for leaf in picked if leaf.index is not None}
    if settings().json:
        click.echo(json.dumps(_object(path, record, boxes, sliced)))
    else:
        click.echo(_text(path, record, boxes, sliced))


def _read(
    runs_dir: str,
    run: str | None,
    names: tuple[str, ...],
    *,
    epoch: int | None,
    id: int | None,
    fallback: bool,
) -> Chosen[Seen]:
    """Read blobs of the selected checkpoint of a run, or of the one at a path or URL."""
    from jobrun.checkpoint.loading import is_checkpoint, read_at, read_found
    from jobrun.core.paths import is_url
    from jobrun.runs.find import find_run
    from jobrun.storage.fs import DEFAULT
    from jobrun.tools.inspect import pick_and_read

    fs = DEFAULT
    if run is not None and is_url(run):
        from jobrun.remote.files import RemoteFs

        fs = RemoteFs()

    def look(place: str, record: Record) -> Seen:
        return pick_and_read(place, record, names, fs)

    options = {"whole": not names, "fallback": fallback}
    if run is not None and (fs.far or is_checkpoint(run)):
        return read_at(run, look, epoch, id, **options, hint=_HINT, fs=fs)
    found = find_run(runs_dir, run)
    return read_found(found.checkpoints, look, epoch, id, **options, hint=_HINT)


def _report_exported(output: str, boxes: Mapping[str, Box], left_out: list[str]) -> None:
    from jobrun.report.formatting import plain, plural

    done = [name for name in boxes if name not in left_out]
    if settings().json:
        click.echo(json.dumps({"output": output, "blobs": done, "left_out": left_out}))
        return
    if not settings().quiet:
        click.echo(f"{plural(len(done), 'blob')} written to {plain(output)}")
    for name in left_out:
        click.echo(f"warning: {plain(name)} is None, and is not exported", err=True)


def _object(
    path: str | Path, record: Record, boxes: Mapping[str, Box], sliced: set[str]
) -> dict[str, Any]:
    from jobrun.report.formatting import json_values
    from jobrun.tools.inspect import describe

    blobs = {n: json_values(describe(b, values=n in sliced)) for n, b in boxes.items()}
    return {"checkpoint": typed(path), "id": record.id, "epoch": record.epoch, "blobs": blobs}


def _text(path: str | Path, record: Record, boxes: Mapping[str, Box], sliced: set[str]) -> str:
    from jobrun.cli.table import table
    from jobrun.core.paths import shown
    from jobrun.report.formatting import plain
    from jobrun.tools.inspect import describe

    rows = [_row(name, describe(box, values=name in sliced)) for name, box in boxes.items()]
    head = f"{plain(shown(path))}: epoch {record.epoch}"
    header = ("name", "dtype", "shape", "bytes", "values")
    return head + "\n" + table(header, rows, "lllr", width=screen_width())


def _row(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    from jobrun.report.formatting import plain, statistics

    shape = str(tuple(facts["shape"])) if "shape" in facts else ""
    size = str(facts.get("bytes", ""))
    return plain(name), str(facts.get("dtype", facts["kind"])), shape, size, statistics(facts)
