"""``jobrun load-blobs``: show or export the blobs of a checkpoint."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobrun.cli.elsewhere import report_skipped
from jobrun.cli.options import (
    best_checkpoint,
    best_path,
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
    from jobrun.storage.fs import Fs
    from jobrun.tools.inspect import Leaf
    from jobrun.values.boxes import Box

__all__ = ["command"]

T = TypeVar("T")


def _hint(run: str) -> str:
    """Return what to do about damage in a run."""
    verify = f"jobrun checkpoints verify {shlex.quote(run)}"
    return (
        f"--fallback takes the newest checkpoint that is whole; {verify} names all that is damaged"
    )


@click.command("load-blobs", short_help="Show or export the blobs of a checkpoint.")
@click.argument(
    "run", required=False, metavar="[RUN|CHECKPOINT]", shell_complete=completes("checkpoint")
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completes("blob"))
@one_checkpoint
@best_checkpoint
@option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE|DIR/",
    help="Export: .npz, .npy, .safetensors, .pt, or a directory of .npy.",
)
@option(
    "--strip",
    metavar="PREFIX",
    default="",
    help="Leave out this beginning of the names in the file: --strip net/.",
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
    best: bool,
    by: str | None,
    output: str | None,
    strip: str,
    fallback: bool,
    runs_dir: str,
) -> None:
    """Show the blobs of the newest checkpoint of RUN, or of one CHECKPOINT directory.

    RUN is a name, a path or a spec (default: the newest run), or the URL of a run or a checkpoint:
    s3://bucket/run.  A NAME may be a glob, or have a slice, of which no more is read than the
    chunks it touches: 'model/*', 'model/w1[0:10]'.
    """
    best = best or by is not None
    if fallback and (best or epoch is not None or id is not None):
        text = "--fallback is for the newest checkpoint: not with --epoch, --id or --best"
        raise click.UsageError(text)
    if strip and output is None:
        raise click.UsageError("--strip is for names in the file of --output")

    if best:
        run = str(best_path(runs_dir, run, by, epoch, id))
    if output is not None:
        _export(output, strip, runs_dir, run, names, epoch=epoch, id=id, fallback=fallback)
        return
    from jobrun.tools.inspect import pick_and_read

    chosen = _read(pick_and_read, runs_dir, run, names, epoch=epoch, id=id, fallback=fallback)
    report_skipped(chosen.skipped)
    path, record, (picked, boxes) = chosen.place, chosen.record, chosen.value
    if settings().json:
        click.echo(json.dumps(_object(path, record, picked, boxes)))
    else:
        click.echo(_text(path, record, picked, boxes))


def _read(
    look: Callable[[str, Record, Sequence[str], Fs], T],
    runs_dir: str,
    run: str | None,
    names: tuple[str, ...],
    *,
    epoch: int | None,
    id: int | None,
    fallback: bool,
) -> Chosen[T]:
    """Read blobs of the selected checkpoint of a run, or of the one at a path or URL."""
    from jobrun.checkpoint.loading import is_checkpoint, read_at, read_found
    from jobrun.core.paths import is_url
    from jobrun.runs.find import find_run
    from jobrun.storage.fs import DEFAULT

    fs = DEFAULT
    if run is not None and is_url(run):
        from jobrun.remote.files import RemoteFs

        fs = RemoteFs()

    def read(place: str, record: Record) -> T:
        return look(place, record, names, fs)

    options = {"whole": not names, "fallback": fallback}
    if run is not None and (fs.far or is_checkpoint(run)):
        at = os.path.dirname(run.rstrip("/")) if is_checkpoint(run, fs) else run
        return read_at(run, read, epoch, id, **options, hint=_hint(at or "."), fs=fs)
    found = find_run(runs_dir, run)
    return read_found(found.checkpoints, read, epoch, id, **options, hint=_hint(found.shown()))


def _export(
    output: str, strip: str, runs_dir: str, run: str | None, names: tuple[str, ...], **which: Any
) -> None:
    """Write blobs to a file or directory, and report which."""
    from jobrun.tools.export import export, is_folder, names_in_file
    from jobrun.tools.inspect import pick_and_read

    if Path(output).suffix == ".pt" and not is_folder(output):
        from jobrun.tools.torch_file import read_values, write_torch

        read = _read(read_values, runs_dir, run, names, **which)
        report_skipped(read.skipped)
        picked, extras, values = read.value
        write_torch(values, Path(output), strip)
        _report_exported(output, picked, {}, extras)
        return
    chosen = _read(pick_and_read, runs_dir, run, names, **which)
    report_skipped(chosen.skipped)
    record, (picked, boxes) = chosen.record, chosen.value
    extras = [] if is_folder(output) else [leaf for leaf in picked if leaf.keys.is_extra]
    picked = [leaf for leaf in picked if leaf not in extras]
    renamed = names_in_file(picked, output, strip)
    about = {"job": record.job, "checkpoint": str(record.id), "epoch": str(record.epoch)}
    left = export({renamed[leaf.name]: boxes[leaf.name] for leaf in picked}, output, about)
    nothing = {n: boxes[n].kind == "none" for n in renamed if renamed[n] in left}
    _report_exported(output, picked, nothing, extras)


def _report_exported(
    output: str, picked: Sequence[Leaf], nothing: Mapping[str, bool], extras: Sequence[Leaf]
) -> None:
    """Report what was exported; ``nothing`` was not: True for None, else a large integer."""
    from jobrun.report.formatting import plain, plural

    done = [leaf.name for leaf in picked if leaf.name not in nothing]
    if settings().json:
        left_out = [*nothing, *(leaf.name for leaf in extras)]
        click.echo(json.dumps({"output": output, "blobs": done, "left_out": left_out}))
        return
    if not settings().quiet:
        click.echo(f"{plural(len(done), 'blob')} written to {plain(output)}")
        if extras:
            first, adapter, more = extras[0].real_name, extras[0].keys.adapter, len(extras) - 1
            which = f"{first} and {more} more are" if more else f"{first} is"
            text = f"{which} no part of the state_dict (adapter {adapter!r})"
            click.echo(f"{plain(text)}, and not exported", err=True)
    for name, is_none in nothing.items():
        what = "None" if is_none else "an integer of more than 64 bits"
        click.echo(f"warning: {plain(name)} is {what}, and is not exported", err=True)


def _object(
    path: str | Path, record: Record, picked: Sequence[Leaf], boxes: Mapping[str, Box]
) -> dict[str, Any]:
    from jobrun.core.tree_keys import encode_key
    from jobrun.report.formatting import json_values
    from jobrun.tools.inspect import describe

    blobs = {}
    for leaf in picked:
        facts = json_values(describe(boxes[leaf.name], values=leaf.index is not None))
        if leaf.keys.renamed:
            facts["keys"] = [encode_key(key) for key in leaf.keys.keys]
        if leaf.keys.adapter is not None:
            facts["adapter"] = leaf.keys.adapter
        blobs[leaf.name] = facts
    return {"checkpoint": typed(path), "id": record.id, "epoch": record.epoch, "blobs": blobs}


def _text(
    path: str | Path, record: Record, picked: Sequence[Leaf], boxes: Mapping[str, Box]
) -> str:
    from jobrun.checkpoint.leaf_keys import adapters_text
    from jobrun.cli.table import table
    from jobrun.core.paths import shown
    from jobrun.report.formatting import plain
    from jobrun.tools.inspect import describe

    facts = [describe(boxes[leaf.name], values=leaf.index is not None) for leaf in picked]
    rows = [_row(leaf.name, own) for leaf, own in zip(picked, facts, strict=True)]
    header = ["name", "dtype", "shape", "bytes", "values"]
    if any(leaf.keys.renamed for leaf in picked):
        header.insert(1, "key")
        for leaf, row in zip(picked, rows, strict=True):
            row.insert(1, plain(leaf.keys.text()) if leaf.keys.renamed else "")
    head = f"{plain(shown(path))}: epoch {record.epoch}"
    if adapters := adapters_text((leaf.name, leaf.keys) for leaf in picked):
        head += f"\nadapters: {plain(adapters)}"
    align = "l" * (len(header) - 2) + "r"
    return head + "\n" + table(header, rows, align, width=screen_width())


def _row(name: str, facts: Mapping[str, Any]) -> list[str]:
    from jobrun.report.formatting import plain, statistics

    shape = str(tuple(facts["shape"])) if "shape" in facts else ""
    size = str(facts.get("bytes", ""))
    return [plain(name), str(facts.get("dtype", facts["kind"])), shape, size, statistics(facts)]
