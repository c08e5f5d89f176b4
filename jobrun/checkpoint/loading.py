"""Finding a checkpoint of a run, and reading it proven: the newest whole one, or one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobrun.checkpoint.catalog import Catalog, removal_is_said
from jobrun.checkpoint.fs import DEFAULT
from jobrun.checkpoint.record import Record
from jobrun.errors import DamagedError, JobrunError, NotFoundError, UsageError
from jobrun.values import plain

__all__ = ["Loaded", "Reader", "Skipped", "find", "load"]

Reader = Callable[[Path, str], Any]
"""Reads a node's part: ``read(path, node)``."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A newer checkpoint that was passed over because it is not whole."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that was read and proven whole.

    ``parts`` is what the reader gave for each node: blobs as ``{name: Value}``, unless another
    reader was passed to ``load``.
    """

    record: Record
    path: Path
    parts: Mapping[str, Any]
    skipped: tuple[Skipped, ...] = ()

    @property
    def blobs(self) -> dict[str, dict[str, Any]]:
        """``{node: {name: value}}``: read-only arrays, Python values, dicts and lists of those."""
        return {
            node: {name: plain(value) for name, value in part.items()}
            for node, part in self.parts.items()
        }


def find(catalog: Catalog, epoch: int | None = None, id: int | None = None) -> Record:
    """The record of the checkpoint of an epoch or id, or of the newest listed one.

    Raises NotFoundError if there is none.
    """
    if epoch is not None and id is not None:
        raise UsageError("a checkpoint is named by its epoch or by its id, not by both")
    if id is not None:
        return catalog.by_id(id)
    if epoch is not None:
        return catalog.by_epoch(epoch)
    newest = catalog.latest()
    if newest is None:
        raise _nothing(catalog, ())
    return newest


def load(catalog: Catalog, read: Reader, epoch: int | None = None, id: int | None = None) -> Loaded:
    """Read and prove the checkpoint of an epoch or id; without either, the newest whole one.

    Only without either is another taken in place of a damaged one, and ``skipped`` says which and
    why.  Raises NotFoundError if there is none, DamagedError if it is not what was written.
    """
    if epoch is not None or id is not None:
        record = find(catalog, epoch, id)
        with removal_is_said(catalog.path(record.id)):
            return _load(catalog, record, read, ())
    skipped: list[Skipped] = []
    for newest in catalog.newest_first():
        try:
            return _load(catalog, catalog.check(newest), read, tuple(skipped))
        except DamagedError as error:
            # Gone meanwhile: a writer's retention took it, which proves nothing against it.
            if not DEFAULT.is_gone(catalog.path(newest)):
                skipped.append(Skipped(newest, str(error)))
    raise _nothing(catalog, skipped)


def _load(catalog: Catalog, record: Record, read: Reader, skipped: tuple[Skipped, ...]) -> Loaded:
    path = catalog.path(record.id)
    return Loaded(record, path, {node: read(path, node) for node in record.nodes}, skipped)


def _nothing(catalog: Catalog, skipped: Sequence[Skipped]) -> JobrunError:
    where = str(catalog.run_dir)
    if skipped:
        reasons = "\n".join(f"  checkpoint {s.id}: {s.reason}" for s in skipped)
        return DamagedError(f"no checkpoint is whole:\n{reasons}", where=where)
    return NotFoundError("there is no checkpoint", where=where)
