"""``jobrun checkpoints verify``: read every byte, and report damage."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jobrun.cli.options import common, completes, runs_dir, settings
from jobrun.core.paths import typed

if TYPE_CHECKING:
    from jobrun.checkpoint.catalog import Catalog, Ignored
    from jobrun.checkpoint.scrub import DamagedFile, Verdict

__all__ = ["command"]

_CHECKPOINT = re.compile(r"checkpoint_[0-9]+")


@click.command("verify", short_help="Verify every byte, and list what is damaged.")
@click.argument(
    "run", required=False, metavar="[RUN|CHECKPOINT]", shell_complete=completes("checkpoint")
)
@runs_dir
@common
def command(run: str | None, runs_dir: str) -> int:
    """Read all checkpoints of RUN, or one CHECKPOINT directory, and check their checksums.

    Both may be URLs.
    Every damaged file is named, with the blob it belongs to; a file that several checkpoints share
    is read once.  The exit code is 5 if anything is damaged.  With -q whole
    checkpoints are not listed.
    """
    from jobrun.checkpoint.scrub import Survey
    from jobrun.core.paths import is_url
    from jobrun.errors import DamagedError

    if run is not None and is_url(run):
        from jobrun.remote.files import RemoteFs

        survey = Survey(RemoteFs())
        paths, ignored = _at(run)
    else:
        survey = Survey()
        paths, ignored = _wanted(runs_dir, run)
    verdicts: list[Verdict] = []
    for verdict in survey.verify(paths):
        verdicts.append(verdict)
        if not settings().json and not (settings().quiet and verdict.whole):
            click.echo("\n".join(_lines(verdict)))
    damaged = [verdict for verdict in verdicts if not verdict.whole]
    code = DamagedError.exit_code if damaged else 0
    if settings().json:
        click.echo(json.dumps(_object(verdicts, ignored, survey.files, survey.bytes, code)))
        return code
    for line in [*_shared(verdicts), *_ending(verdicts, ignored, survey.files, survey.bytes)]:
        click.echo(line)
    return code


def _wanted(runs_dir: str, argument: str | None) -> tuple[list[str], list[Ignored]]:
    """Return the checkpoints to read, and directories that are only named like one."""
    from jobrun.checkpoint.loading import is_checkpoint
    from jobrun.runs.find import find_run

    path = Path(argument or ".").absolute()
    if argument is not None and is_checkpoint(str(path)):
        return [str(path)], []
    if _CHECKPOINT.fullmatch(path.name) and os.path.isdir(path):  # one without its _SUCCESS
        return [str(path)], []
    return _of(find_run(runs_dir, argument).checkpoints)


def _at(url: str) -> tuple[list[str], list[Ignored]]:
    """Return the checkpoints at a URL, and directories that are only named like one."""
    from jobrun.checkpoint.catalog import Catalog
    from jobrun.errors import NotFoundError
    from jobrun.remote.files import RemoteFs

    if _CHECKPOINT.fullmatch(url.rstrip("/").rpartition("/")[2]):
        return [url.rstrip("/")], []
    found = _of(Catalog(url, RemoteFs()))
    if found == ([], []):
        raise NotFoundError("there is no checkpoint", where=url)
    return found


def _of(catalog: Catalog) -> tuple[list[str], list[Ignored]]:
    """Return the checkpoints of a run, and directories that are only named like one."""
    ids = [id for id in catalog.ids() if catalog.is_ours(id)]
    return [catalog.place(id) for id in ids], [i for i in catalog.ignored() if i.id not in ids]


def _lines(verdict: Verdict) -> list[str]:
    from jobrun.core.paths import shown
    from jobrun.core.text import size
    from jobrun.report.formatting import plain, plural

    where = plain(shown(verdict.path))
    if verdict.record is not None:
        where += f" ({plain(verdict.record.place)})"
    if verdict.whole and verdict.record is not None:
        record = verdict.record
        return [f"{where}: whole, {plural(record.files, 'file')}, {size(record.bytes)}"]
    return [f"{where}: DAMAGED", *(f"  {line}" for line in _faults(verdict))]


def _faults(verdict: Verdict) -> list[str]:
    """Return a line for each damaged file, however many blobs have their metadata in it."""
    from jobrun.report.formatting import plain, plural

    files: dict[object, list[DamagedFile]] = {}
    for fault in verdict.faults:
        files.setdefault(fault.inode or fault.file, []).append(fault)
    lines = []
    for first, *others in files.values():
        blob = f" (blob {first.blob})" if first.blob else ""
        more = f"; it is also that of {plural(len(others), 'other blob')}" if others else ""
        lines.append(plain(f"{first.file}{blob}: {first.reason}{more}"))
    return lines


def _shared(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the damaged files that several checkpoints share."""
    from jobrun.checkpoint.scrub import sharing
    from jobrun.report.formatting import plain

    names = {f.inode: f.file for v in verdicts for f in v.faults}
    return [
        plain(f"{names[inode]} is one file of {' and '.join(owners)}")
        for inode, owners in sharing(verdicts).items()
    ]


def _ending(
    verdicts: Sequence[Verdict], ignored: Iterable[Ignored], files: int, count: int
) -> list[str]:
    from jobrun.core.text import size
    from jobrun.report.formatting import plain, plural

    lines = [f"{plain(i.name)} is not a checkpoint: {plain(i.reason)}" for i in ignored]
    damaged = [verdict.name for verdict in verdicts if not verdict.whole]
    read = f"{plural(files, 'file')} read, {size(count)}"
    if damaged:
        of = f"{len(damaged)} of {plural(len(verdicts), 'checkpoint')}"
        return [*lines, f"{of} damaged: {', '.join(damaged)} ({read})"]
    if settings().quiet:
        return []
    count_text = plural(len(verdicts), "checkpoint") if verdicts else "no checkpoints"
    return [*lines, f"{count_text}{', all whole' if verdicts else ''} ({read})"]


def _object(
    verdicts: Sequence[Verdict], ignored: Iterable[Ignored], files: int, count: int, code: int
) -> dict[str, Any]:
    from jobrun.checkpoint.scrub import sharing

    shared = sharing(verdicts)

    def fault(fault: DamagedFile, name: str) -> dict[str, Any]:
        others = shared.get(fault.inode, []) if fault.inode is not None else []
        return {
            "file": fault.file,
            "blob": fault.blob or None,
            "reason": fault.reason,
            "shared_with": [other for other in others if other != name],
        }

    return {
        "checkpoints": [
            {
                "path": typed(v.path),
                "id": v.record.id if v.record else None,
                "epoch": v.record.epoch if v.record else None,
                "whole": v.whole,
                "faults": [fault(f, v.name) for f in v.faults],
            }
            for v in verdicts
        ],
        "ignored": [{"name": i.name, "reason": i.reason} for i in ignored],
        "files_read": files,
        "bytes_read": count,
        "exit_code": code,
    }
