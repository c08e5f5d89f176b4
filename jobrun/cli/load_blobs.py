"""``jobrun load-blobs``: show or export the blobs of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.elsewhere import checkpoint_at
from jobrun.cli.options import (
    common,
    completes,
    one_checkpoint,
    option,
    runs_dir,
    screen_width,
    settings,
)

if TYPE_CHECKING:
    from jobrun.checkpoint.record import Record
    from jobrun.values import Box

__all__ = ["command"]


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
@runs_dir
@common
def command(
    run: str | None,
    names: tuple[str, ...],
    epoch: int | None,
    id: int | None,
    output: str | None,
    runs_dir: str,
) -> None:
    """Show the blobs of the newest checkpoint of RUN, or of one CHECKPOINT directory.

    RUN is a name, a path or a spec (default: the newest run), or the URL of a run or a checkpoint:
    s3://bucket/run.  A NAME may be a glob, or have a slice, of which no more is read than the
    chunks it touches: 'model/*', 'model/w1[0:10]'.
    """
    from jobrun.blobs import pick, pick_and_read, read
    from jobrun.paths import is_url
    from jobrun.runs import find_checkpoint

    path: str | Path
    if run is not None and is_url(run):
        path, fs = checkpoint_at(run, epoch, id)
        record, picked = pick(path, names, fs)
        boxes = read(path, picked, fs)
    else:
        path, record, picked, boxes = pick_and_read(
            lambda: find_checkpoint(runs_dir, run, epoch=epoch, id=id), names
        )
        if epoch is None and id is None and (run is None or Path(run) != path):
            _say_passed_over(path, record)
    if output is not None:
        from jobrun.export import export

        about = {"job": record.job, "checkpoint": str(record.id), "epoch": str(record.epoch)}
        _say_exported(output, boxes, export(boxes, output, about))
        return
    sliced = {leaf.name for leaf in picked if leaf.index is not None}
    if settings().json:
        click.echo(json.dumps(_object(path, record, boxes, sliced)))
    else:
        click.echo(_text(path, record, boxes, sliced))


def _say_passed_over(path: Path, record: Record) -> None:
    """The newer checkpoints of the run that are damaged, so that an older one was taken."""
    from jobrun.report.words import plain
    from jobrun.rundir import RunDir

    for found in RunDir(path.parent).damaged():
        if found.id is not None and found.id > record.id:
            text = f"{found.name} is passed over: {found.reason}"
            click.echo(f"warning: {plain(text)}", err=True)


def _say_exported(output: str, boxes: Mapping[str, Box], left_out: list[str]) -> None:
    from jobrun.report.words import plain, plural

    done = [name for name in boxes if name not in left_out]
    if settings().json:
        click.echo(json.dumps({"output": output, "blobs": done, "left_out": left_out}))
        return
    if not settings().quiet:
        click.echo(f"{plural(len(done), 'blob')} written to {plain(output)}")
    for name in left_out:
        click.echo(f"warning: {plain(name)} is None, which has no array", err=True)


def _object(
    path: str | Path, record: Record, boxes: Mapping[str, Box], sliced: set[str]
) -> dict[str, Any]:
    from jobrun.blobs import describe
    from jobrun.report.words import json_values

    blobs = {n: json_values(describe(b, values=n in sliced)) for n, b in boxes.items()}
    return {"checkpoint": str(path), "id": record.id, "epoch": record.epoch, "blobs": blobs}


def _text(path: str | Path, record: Record, boxes: Mapping[str, Box], sliced: set[str]) -> str:
    from jobrun.blobs import describe
    from jobrun.cli.table import table
    from jobrun.paths import shown
    from jobrun.report.words import plain

    rows = [_row(name, describe(box, values=name in sliced)) for name, box in boxes.items()]
    head = f"{plain(shown(path))}: epoch {record.epoch}"
    header = ("name", "dtype", "shape", "bytes", "values")
    return head + "\n" + table(header, rows, "lllr", width=screen_width())


def _row(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    from jobrun.report.words import plain, statistics

    shape = str(tuple(facts["shape"])) if "shape" in facts else ""
    size = str(facts.get("bytes", ""))
    return plain(name), str(facts.get("dtype", facts["kind"])), shape, size, statistics(facts)
