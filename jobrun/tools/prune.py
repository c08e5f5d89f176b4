"""The removal of checkpoints of a run that no process holds."""

from __future__ import annotations

from dataclasses import dataclass

from jobrun.checkpoint.contents import freed_by
from jobrun.checkpoint.publish import discard
from jobrun.checkpoint.retention import retain
from jobrun.engine.best_metric import named_now
from jobrun.errors import JobrunError
from jobrun.model.policy import Keep
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import FsError

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """The ids kept and removed, and the bytes that this frees."""

    kept: tuple[int, ...]
    removed: tuple[int, ...]
    bytes: int


def prune(run: RunDir, keep: Keep, *, dry_run: bool = False) -> Pruned:
    """Remove the checkpoints of a run that ``keep`` does not keep; never the newest.

    ``dry_run``: only list them, without lock.  Raises LockedError while another process holds
    the run, and JobrunError, naming it, at the first checkpoint that cannot be removed.
    """
    if dry_run:
        return _prune(run, keep, dry_run=True)
    run.lock()
    try:
        run.finish_rewind()
        return _prune(run, keep, dry_run=False)
    finally:
        run.unlock()


def _prune(run: RunDir, keep: Keep, *, dry_run: bool) -> Pruned:
    records = named_now(run.records(), run.state())
    kept, dropped = retain(records, keep, is_whole=run.catalog.is_whole)
    freed = freed_by(run.catalog.path(record.id) for record in dropped)
    for record in dropped if not dry_run else ():
        try:
            discard(run.path, record.id)
        except FsError as error:
            raise JobrunError(f"checkpoint {record.id} cannot be removed: {error}") from error
    return Pruned(tuple(r.id for r in kept), tuple(r.id for r in dropped), freed)
