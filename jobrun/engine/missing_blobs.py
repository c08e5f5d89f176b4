"""The check that a checkpoint holds the blobs that a changed job needs of it.

``init`` runs once.  A run that continues with another job takes what ``init`` writes from the
checkpoint, so a blob that was added there, or has another name now, would be missing in its first
epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jobrun.analysis.dataflow import writes_of
from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.record import Record
from jobrun.core.blob_paths import trees_of
from jobrun.core.paths import shown
from jobrun.errors import RunRefusedError
from jobrun.model.job import Job
from jobrun.storage.fs import DEFAULT

__all__ = ["refuse_lacking"]


def refuse_lacking(
    job: Job, checkpoint: Path, record: Record, parts: Mapping[str, str], afresh: str = ""
) -> None:
    """Raise RunRefusedError if blobs that ``init`` of ``job`` writes are not in ``checkpoint``.

    ``parts`` names for each node of the job the node of the checkpoint whose part it gets,
    ``afresh`` the command that starts a new run.
    """
    held = {
        node: {e.path: None for e in read_manifest(DEFAULT, str(checkpoint), record, part).entries}
        for node, part in parts.items()
    }
    written = dict.fromkeys(writes_of(job, "init"))
    replaced = set(writes_of(job, "epoch"))
    missing = [
        f"{node}:{path}" if job.multi_node else path
        for node, path in written
        if path not in held.get(node, ())
        # A tree that an epoch has written whole replaces the one that 'init' made.
        and not any((node, t) in replaced and t in held.get(node, ()) for t in trees_of(path))
    ]
    if missing:
        names = ", ".join(map(repr, missing))
        top = dict.fromkeys(path.partition("/")[0] for paths in held.values() for path in paths)
        there = ", ".join(repr(name) for name in top if name)
        ways = f"; to start a new run: {afresh}" if afresh else ""
        raise RunRefusedError(
            f"the run cannot go on with the changes: 'init' writes {names} now, which "
            f"{shown(checkpoint)} does not hold",
            hint=f"'init' is not run again, and there are {there or 'no blobs'}{ways}",
        )
