"""``jobrun load-blobs``: show or export the blobs of a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
    from jobrun.checkpoint.loading import Chosen, Place, Skipped
    from jobrun.checkpoint.record import Record
    from jobrun.storage.fs import Fs
    from jobrun.tools.inspect import Leaf
    from jobrun.values.boxes import Box

    Seen = tuple[list[Leaf], dict[str, Box]]
    Look = Callable[[Place, Record, Fs], Seen]

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
    help="Of a newest checkpoint that is damaged, take an older one for all names.",
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
    from jobrun.core.paths import is_url
    from jobrun.tools.inspect import pick_and_read

    if fallback and (epoch is not None or id is not None):
        raise click.UsageError("--fallback is for the newest checkpoint: not with --epoch or --id")

    def look(place: Place, record: Record, fs: Fs) -> Seen:
        return pick_and_read(place, record, names, fs)

    if run is not None and is_url(run):
        from jobrun.remote.blobs import read_at
        from jobrun.remote.files import RemoteFs

        chosen = read_at(
            run,
            partial(look, fs=RemoteFs()),
            epoch=epoch,
            id=id,
            whole=not names,
            fallback=fallback,
            hint=_HINT,
        )
    elif epoch is None and id is None and not _is_checkpoint(run):
        chosen = _read_newest(runs_dir, run, look, whole=not names, fallback=fallback)
    elif fallback:
        raise click.UsageError(f"--fallback is for the newest checkpoint of a run; {run} is one")
    else:
        chosen = _read_named(runs_dir, run, look, epoch=epoch, id=id)
    _say_skipped(chosen.skipped)
    path, record, (picked, boxes) = chosen.place, chosen.record, chosen.value
    if output is not None:
        from jobrun.tools.export import export

        about = {"job": record.job, "checkpoint": str(record.id), "epoch": str(record.epoch)}
        _say_exported(output, boxes, export(boxes, output, about))
        return
    sliced = {leaf.name for leaf in picked if leaf.index is not None}
    if settings().json:
        click.echo(json.dumps(_object(path, record, boxes, sliced)))
    else:
        click.echo(_text(path, record, boxes, sliced))


def _is_checkpoint(argument: str | None) -> bool:
    from jobrun.checkpoint.record import SUCCESS

    return argument is not None and os.path.isfile(Path(argument) / SUCCESS)


def _read_newest(
    runs_dir: str, run: str | None, look: Look, *, whole: bool, fallback: bool
) -> Chosen[Seen]:
    """Read the newest checkpoint of a local run."""
    from jobrun.checkpoint.loading import DirectoryRun, read_newest
    from jobrun.runs.find import find_run
    from jobrun.storage.fs import DEFAULT

    found = find_run(runs_dir, run)
    return read_newest(
        DirectoryRun(found.catalog, found.is_left),
        lambda place, record: look(place, record, DEFAULT),
        whole=whole,
        fallback=fallback,
        hint=_HINT,
    )


def _read_named(
    runs_dir: str, run: str | None, look: Look, *, epoch: int | None, id: int | None
) -> Chosen[Seen]:
    """Read the checkpoint of an epoch or id, or the one at a path."""
    from jobrun.checkpoint.catalog import removal_is_said
    from jobrun.checkpoint.integrity import read_record
    from jobrun.checkpoint.loading import Chosen
    from jobrun.runs.find import find_checkpoint
    from jobrun.storage.fs import DEFAULT

    path = find_checkpoint(runs_dir, run, epoch=epoch, id=id)
    with removal_is_said(path):
        record = read_record(DEFAULT, str(path))
        return Chosen(look(path, record, DEFAULT), path, record)


def _say_skipped(skipped: Sequence[Skipped]) -> None:
    """Report the newer checkpoints that are damaged, so that an older one was used."""
    from jobrun.report.formatting import plain

    for one in skipped:
        text = f"checkpoint_{one.id} is passed over: {one.reason}"
        click.echo(f"warning: {plain(text)}", err=True)


def _say_exported(output: str, boxes: Mapping[str, Box], left_out: list[str]) -> None:
    from jobrun.report.formatting import plain, plural

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
