"""Finding a checkpoint of a run, and reading it proven: the newest, or one by its epoch or id.

Only ``load``, with which a run is resumed, takes an older one in place of a damaged one by itself;
``read_newest`` does so where it is asked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from jobrun.checkpoint.catalog import Catalog, removal_is_said
from jobrun.checkpoint.record import Record
from jobrun.errors import DamagedError, JobrunError, NotFoundError, UsageError
from jobrun.storage.fs import DEFAULT
from jobrun.values.views import view

__all__ = [
    "Chosen",
    "DirectoryRun",
    "Loaded",
    "Place",
    "Reader",
    "RunCheckpoints",
    "Skipped",
    "find",
    "load",
    "read_newest",
]

T = TypeVar("T")

Place = str | Path
"""The path of a checkpoint, or its URL."""

_TRIES = 100
"""How often the newest checkpoint is chosen again that a writer removed while it was read."""

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
            node: {name: view(value) for name, value in part.items()}
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
        raise _nothing(str(catalog.run_dir), ())
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
    raise _nothing(str(catalog.run_dir), skipped)


class RunCheckpoints(Protocol):
    """The checkpoints of a run, wherever they are."""

    @property
    def where(self) -> str:
        """The path or URL of the run."""

    @property
    def missing(self) -> str:
        """What is said if there is no checkpoint."""

    def newest_first(self) -> Iterator[int]:
        """The ids of all that is named like a checkpoint, from the highest down."""

    def open(self, id: int, *, whole: bool) -> tuple[Place, Record]:
        """Place and record of a checkpoint; with ``whole``, its files are there at their lengths.

        Raises DamagedError if it is none, or not as it was written.
        """

    def is_ours(self, id: int) -> bool:
        """Whether it is a checkpoint of the run, damaged by now or not."""

    def is_gone(self, id: int) -> bool:
        """Whether it is not there any more."""


@dataclass(frozen=True, slots=True)
class DirectoryRun:
    """The checkpoints in a run directory, but those that ``is_left``: a rewind has left them."""

    catalog: Catalog
    is_left: Callable[[int], bool] = lambda id: False

    @property
    def where(self) -> str:
        """The path of the run."""
        return str(self.catalog.run_dir)

    @property
    def missing(self) -> str:
        """See RunCheckpoints."""
        return "there is no checkpoint"

    def newest_first(self) -> Iterator[int]:
        """See RunCheckpoints."""
        return (id for id in self.catalog.newest_first() if not self.is_left(id))

    def open(self, id: int, *, whole: bool) -> tuple[Place, Record]:
        """See RunCheckpoints."""
        record = self.catalog.check(id) if whole else self.catalog.glance(id=id)
        return self.catalog.path(id), record

    def is_ours(self, id: int) -> bool:
        """See RunCheckpoints."""
        return self.catalog.is_ours(id)

    def is_gone(self, id: int) -> bool:
        """See RunCheckpoints."""
        return not os.path.lexists(self.catalog.path(id))


@dataclass(frozen=True, slots=True)
class Chosen(Generic[T]):
    """What was read of a checkpoint; ``skipped`` are newer ones, which are damaged."""

    value: T
    place: Place
    record: Record
    skipped: tuple[Skipped, ...] = ()


def read_newest(
    run: RunCheckpoints,
    read: Callable[[Place, Record], T],
    *,
    whole: bool,
    fallback: bool,
    hint: str,
) -> Chosen[T]:
    """Return what ``read`` gives of the newest checkpoint, which proves what it reads.

    ``whole`` says that all files must be there, ``fallback`` that of a damaged one the next older
    one is taken, for all that is read together.  One that vanishes while it is read (the run
    removed it, or went back) is not damaged: the newest is chosen anew.  Raises NotFoundError if
    there is none, DamagedError, with ``hint``, if it is damaged, or with ``fallback`` if all are.
    """
    for _ in range(_TRIES):
        skipped: list[Skipped] = []
        for id in run.newest_first():
            try:
                place, record = run.open(id, whole=whole)
                return Chosen(read(place, record), place, record, tuple(skipped))
            except DamagedError as error:
                if run.is_gone(id):
                    break
                if not run.is_ours(id):
                    continue
                if not fallback:
                    error.hint = error.hint or hint
                    raise
                skipped.append(Skipped(id, str(error)))
        else:
            raise _nothing(run.where, skipped, run.missing)
    raise NotFoundError("checkpoints vanish faster than they can be read", where=run.where)


def _load(catalog: Catalog, record: Record, read: Reader, skipped: tuple[Skipped, ...]) -> Loaded:
    path = catalog.path(record.id)
    return Loaded(record, path, {node: read(path, node) for node in record.nodes}, skipped)


def _nothing(
    where: str, skipped: Sequence[Skipped], missing: str = "there is no checkpoint"
) -> JobrunError:
    if skipped:
        reasons = "\n".join(f"  checkpoint {s.id}: {s.reason}" for s in skipped)
        return DamagedError(f"no checkpoint is whole:\n{reasons}", where=where)
    return NotFoundError(missing, where=where)
