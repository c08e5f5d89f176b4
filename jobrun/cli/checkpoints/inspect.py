"""``jobrun checkpoints inspect``: the contents of one checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.elsewhere import checkpoint_at
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
    from jobrun.checkpoint.contents import LeafSummary
    from jobrun.checkpoint.record import Record
    from jobrun.storage.fs import Fs

__all__ = ["command"]

Facts = Mapping[str, Any]


@click.command("inspect", short_help="Show the content of one checkpoint, blob by blob.")
@click.argument(
    "run", required=False, metavar="[RUN|CHECKPOINT]", shell_complete=completes("checkpoint")
)
@one_checkpoint
@best_checkpoint
@option("--stats", is_flag=True, help="Read the values: min, mean, max, count of not finite.")
@runs_dir
@common
def command(
    run: str | None,
    epoch: int | None,
    id: int | None,
    best: bool,
    by: str | None,
    stats: bool,
    runs_dir: str,
) -> None:
    """Show the newest checkpoint of RUN, or one CHECKPOINT: its record, and every blob.

    Both may be URLs.
    "since" is the checkpoint that first wrote the value.  "linked" values share their files with
    an earlier checkpoint, and take no space of their own.
    """
    from jobrun.checkpoint.contents import contents
    from jobrun.core.paths import is_url
    from jobrun.runs.find import find_checkpoint
    from jobrun.storage.fs import DEFAULT

    path: str | Path
    if best or by is not None:
        path, fs = best_path(runs_dir, run, by, epoch, id), DEFAULT
    elif run is not None and is_url(run):
        path, fs = checkpoint_at(run, epoch, id)
    else:
        path, fs = find_checkpoint(runs_dir, run, epoch=epoch, id=id), DEFAULT
    record, items = contents(path, fs)
    facts = [_facts(path, item, fs) for item in items] if stats else None
    if settings().json:
        click.echo(json.dumps(_object(path, record, items, facts)))
    else:
        click.echo(_text(path, record, items, facts))


def _facts(path: str | Path, item: LeafSummary, fs: Fs) -> Facts:
    """Return the statistics of one leaf; its values are released again."""
    from jobrun.checkpoint.leaf_reading import read_leaves
    from jobrun.tools.inspect import describe

    box = read_leaves(fs, f"{path}/{item.node}", [item.entry])[item.entry.path]
    return describe(box)


def _text(
    path: str | Path, record: Record, items: Sequence[LeafSummary], facts: Sequence[Facts] | None
) -> str:
    from jobrun.cli.table import table
    from jobrun.core.paths import shown
    from jobrun.report.fitting import labelled
    from jobrun.report.formatting import plain, statistics

    head = f"{plain(shown(path))}: id {record.id}, {plain(record.place)}"
    about = labelled(_about(record, items), 9, width=screen_width())
    header = ["name", "kind", "shape", "on disk", "since", "stored"]
    rows = [_row(item) for item in items]
    align = "lllrr"
    if any(item.keys.renamed for item in items):
        header.insert(1, "key")
        align = f"l{align}"
        for item, row in zip(items, rows, strict=True):
            row.insert(1, plain(item.keys.text()) if item.keys.renamed else "")
    if facts is not None:
        header.append("values")
        rows = [[*row, statistics(f)] for row, f in zip(rows, facts, strict=True)]
    blobs = table(header, rows, align, width=screen_width())
    return "\n".join([head, *about, "", blobs])


def _about(record: Record, items: Sequence[LeafSummary]) -> list[tuple[str, str]]:
    """Return the lines that show a record."""
    from jobrun.checkpoint.leaf_keys import adapters_text
    from jobrun.core.text import size
    from jobrun.report.formatting import metric_texts, plain, plural

    linked = sum(item.linked for item in items)
    shared = f", {size(linked)} of them linked" if linked else ""
    readers = (
        f"{key}: {plural(r.row, 'row')} of pass {r.passes + 1}"
        for key, r in record.position.readers.items()
    )
    decision = record.decision or {}
    return [
        ("job", plain(record.job)),
        ("saved", f"{record.time[:19].replace('T', ' ')} (UTC), after {_run_time(record)}"),
        ("size", f"{size(record.bytes)} in {plural(record.files, 'file')}{shared}"),
        ("metrics", "  ".join(metric_texts(record.metrics))),
        ("adapters", plain(adapters_text((item.name, item.keys) for item in items))),
        ("readers", plain(", ".join(readers))),
        ("done", plain(", ".join(record.position.tasks))),
        (
            "decision",
            plain(f"{decision.get('outcome')}: {decision.get('reason')}") * bool(decision),
        ),
        ("stops", plain(", ".join(map(_stop, record.stops)))),
        ("versions", plain(", ".join(f"{n} {v}" for n, v in record.versions.items()))),
    ]


def _run_time(record: Record) -> str:
    from jobrun.core.text import duration

    return f"{duration(record.run_seconds)} of the run"


def _stop(saved: Any) -> str:
    """Return the state of a stop condition: ``patience loss {'best': 0.2, 'waited': 1}``."""
    name = " ".join(str(saved[key]) for key in ("kind", "metric") if saved.get(key))
    state = ", ".join(f"{key} {value}" for key, value in saved.get("state", {}).items())
    return f"{name} ({state})" if state else name


def _row(item: LeafSummary) -> list[str]:
    from jobrun.checkpoint.dtypes import dtype_text
    from jobrun.core.text import size
    from jobrun.report.formatting import plain

    entry = item.entry
    kind = entry.kind if entry.dtype is None else dtype_text(entry.dtype)
    kind = f"{kind} scalar" if entry.kind == "scalar" else kind
    shape = str(tuple(entry.shape)) if entry.kind == "array" and entry.shape is not None else ""
    since = "" if item.version is None else str(item.version)
    stored = item.stored
    if stored == "in part":
        stored = f"{size(item.bytes - item.linked)} written"
    if entry.same_as is not None:
        stored = plain(f"same as {entry.same_as}")
    return [plain(item.name), kind, shape, size(item.bytes), since, stored]


def _object(
    path: str | Path, record: Record, items: Sequence[LeafSummary], facts: Sequence[Facts] | None
) -> dict[str, Any]:
    from jobrun.checkpoint.dtypes import dtype_text
    from jobrun.core.tree_keys import encode_key
    from jobrun.report.formatting import json_values

    blobs: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(items):
        entry = item.entry
        blobs[item.name] = {
            "kind": entry.kind,
            "dtype": None if entry.dtype is None else dtype_text(entry.dtype),
            "shape": list(entry.shape or ()),
            "bytes": item.bytes,
            "files": len(entry.files),
            "version": item.version,
            "links": item.links,
            "linked": item.linked,
            "stored": item.stored,
            "same_as": entry.same_as,
            "keys": [encode_key(key) for key in item.keys.keys],
            "adapter": item.keys.adapter,
        }
        if facts is not None:
            blobs[item.name]["stats"] = json_values(
                {k: v for k, v in facts[number].items() if k not in ("kind", "dtype", "shape")}
            )
    return {
        "checkpoint": typed(path),
        "id": record.id,
        "epoch": record.epoch,
        "place": record.place,
        "job": record.job,
        "time": record.time,
        "run_seconds": record.run_seconds,
        "bytes": record.bytes,
        "files": record.files,
        "metrics": json_values(record.metrics),
        "position": json_values(record.position.to_json()),
        "stops": json_values(record.stops),
        "decision": json_values(record.decision),
        "versions": dict(record.versions),
        "blobs": blobs,
    }
