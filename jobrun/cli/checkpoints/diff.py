"""``jobrun checkpoints diff``: the blobs that differ between two checkpoints."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, option, runs_dir, screen_width, settings

if TYPE_CHECKING:
    from jobrun.checkpoint.diff import BlobChange, CheckpointDiff
    from jobrun.runs.rundir import RunDir

__all__ = ["command"]


@click.command("diff", short_help="Show which blobs differ between two checkpoints.")
@click.argument("which", nargs=-1, metavar="[RUN] [A B]", shell_complete=completes("checkpoint"))
@option(
    "--epoch",
    "epochs",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Given twice: the checkpoints at the ends of these epochs.",
    shell_complete=completes("epoch"),
)
@runs_dir
@common
def command(which: tuple[str, ...], epochs: tuple[int, ...], runs_dir: str) -> None:
    """Show the blobs that were added, removed and changed from checkpoint A to B, and by how much.

    A and B are ids of checkpoints of RUN, paths of checkpoints, or runs, of which it is the newest
    one.  Without them the newest of RUN is compared with the one before it.

    \b
    jobrun checkpoints diff digits 3 5
    jobrun checkpoints diff digits --epoch 3 --epoch 5
    jobrun checkpoints diff runs/digits/checkpoint_3 runs/digits-2/checkpoint_3
    jobrun checkpoints diff digits digits-2
    """
    from jobrun.checkpoint.diff import compare

    a, b = _chosen(runs_dir, which, epochs)
    found = compare(a, b)
    if settings().json:
        click.echo(json.dumps(_object(a, b, found)))
    else:
        click.echo(_text(a, b, found))


def _chosen(runs_dir: str, which: tuple[str, ...], epochs: tuple[int, ...]) -> tuple[Path, Path]:
    """Return the two selected checkpoints."""
    from jobrun.runs.find import find_run

    if (
        len(which) == 2
        and _is_id(which[1])
        and not _is_id(which[0])
        and not _is_checkpoint(which[0])
    ):
        text = f"expected two checkpoints: {which[0]} {which[1]} OTHER"
        raise click.UsageError(text)
    run = which[0] if len(which) % 2 else None
    named = which[len(which) % 2 :]
    if len(which) > 3 or (epochs and (named or len(epochs) != 2)):
        raise click.UsageError("expected two checkpoints: RUN A B, or RUN --epoch N --epoch M")
    if named:
        a, b = (_named(runs_dir, run, text) for text in named)
        return a, b
    found = find_run(runs_dir, run)
    if epochs:
        a, b = (_of_run(found, epoch=epoch) for epoch in epochs)
        return a, b
    catalog = found.checkpoints
    newest = [*islice(filter(catalog.is_whole, catalog.newest_first()), 2)]
    if len(newest) < 2:
        raise click.UsageError(f"{found.shown()} has fewer than two checkpoints")
    return catalog.path(newest[1]), catalog.path(newest[0])


def _named(runs_dir: str, run: str | None, text: str) -> Path:
    from jobrun.runs.find import find_checkpoint, find_run

    if _is_id(text):
        return _of_run(find_run(runs_dir, run), id=int(text))
    return find_checkpoint(runs_dir, text)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_checkpoint(text: str) -> bool:
    from jobrun.checkpoint.loading import is_checkpoint

    return is_checkpoint(text)


def _of_run(run: RunDir, *, epoch: int | None = None, id: int | None = None) -> Path:
    record = run.checkpoint(epoch=epoch, id=id)
    assert record is not None  # a named one that is missing is an error
    return run.catalog.path(record.id)


def _text(a: Path, b: Path, found: CheckpointDiff) -> str:
    from jobrun.cli.table import table
    from jobrun.core.paths import shown
    from jobrun.report.formatting import plain, plural

    ends = (
        f"{plain(shown(p))} ({plain(r.place)})" for p, r in zip((a, b), found.records, strict=True)
    )
    rows = [("removed", plain(name), "") for name in found.removed]
    rows += [("added", plain(name), "") for name in found.added]
    rows += [("changed", plain(change.name), _change(change)) for change in found.changed]
    lines = [" -> ".join(ends)]
    if rows:
        header = ("", "blob", "difference")
        lines.append(table(header, rows, width=screen_width(), flows=True))
    return "\n".join([*lines, f"{plural(found.same, 'blob')} the same, bit for bit"])


def _change(change: BlobChange) -> str:
    from jobrun.core.text import size
    from jobrun.report.formatting import number, plain, plural, value_text

    one = change.before is not None or change.after is not None
    if change.was or one:
        sides = ((change.was, change.before), (change.now, change.after))
        texts = [
            " ".join(([plain(what)] if what else []) + ([value_text(value)] if one else []))
            for what, value in sides
        ]
        return " -> ".join(texts)
    parts = [f"{change.count} of {plural(change.size or 0, 'element')}"]
    if change.absolute is not None:
        parts.append(f"largest difference {number(change.absolute)}")
    if change.relative is not None:
        parts.append(f"relative {number(change.relative)}")
    if change.not_finite:
        parts.append(f"{change.not_finite} not finite")
    if change.linked:
        parts.append(f"wrote {size(change.bytes - change.linked)} of {size(change.bytes)}")
    return ", ".join(parts)


def _object(a: Path, b: Path, found: CheckpointDiff) -> dict[str, Any]:
    from dataclasses import asdict

    from jobrun.report.formatting import json_values

    return {
        "a": {"checkpoint": str(a), "id": found.records[0].id, "epoch": found.records[0].epoch},
        "b": {"checkpoint": str(b), "id": found.records[1].id, "epoch": found.records[1].epoch},
        "added": list(found.added),
        "removed": list(found.removed),
        "changed": [json_values(asdict(change)) for change in found.changed],
        "same": found.same,
    }
