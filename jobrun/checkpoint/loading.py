"""Finding a checkpoint of a run, and reading it verified: the newest, or one by epoch or id.

Everything that looks for a checkpoint, in a directory or at a URL, uses this module.  Only
``load``, with which a run is resumed, takes an older one in place of a damaged one by itself;
``read_found`` does so with ``fallback``.  The best checkpoint is that of ``core.ranking``.
Neither numpy nor zarr is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from jobrun.checkpoint.catalog import CHECKPOINT_NAME, Catalog, span
from jobrun.checkpoint.integrity import kind_of, read_record
from jobrun.checkpoint.record import SUCCESS, Record
from jobrun.errors import DamagedError, NotFoundError, UsageError
from jobrun.storage.fs import DEFAULT, Fs

__all__ = [
    "Chosen",
    "Loaded",
    "Read",
    "Reader",
    "Skipped",
    "find",
    "is_checkpoint",
    "load",
    "newest",
    "none_whole",
    "read_at",
    "read_found",
]

T = TypeVar("T")

Read = Callable[[str, Record], T]
"""Reads a checkpoint and verifies what it reads: ``read(path or URL, record)``."""

Reader = Callable[[Path, str], Any]
"""Reads a node's part: ``read(path, node)``."""

_TRIES = 100
"""The number of times that the newest is chosen again after a writer removed it meanwhile."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A newer checkpoint that was passed over because it is not whole."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Chosen(Generic[T]):
    """The value read of the checkpoint at ``place``; ``skipped`` are newer ones, damaged."""

    value: T
    place: str
    record: Record
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that was read and verified.

    ``parts`` is what the reader returned for each node: blobs as ``{name: Value}``, unless another
    reader was passed to ``load``.
    """

    record: Record
    path: Path
    parts: Mapping[str, Any]
    skipped: tuple[Skipped, ...] = ()

    @property
    def blobs(self) -> dict[str, dict[str, Any]]:
        """``{node: {name: value}}``: read-only arrays, Python values, dicts and lists of those."""
        from jobrun.values.views import view  # needs numpy, which finding does not

        return {
            node: {name: view(value) for name, value in part.items()}
            for node, part in self.parts.items()
        }


# Finding.


def newest(catalog: Catalog) -> Record | None:
    """Return the record of the listed checkpoint of the highest id, or None."""
    for id in catalog.newest_first():
        try:
            return catalog.check(id)
        except DamagedError:
            continue
    return None


def find(
    catalog: Catalog, epoch: int | None = None, id: int | None = None, *, whole: bool = True
) -> Record:
    """Return the record of the checkpoint of an epoch or id, or of the newest listed one.

    An epoch means the newest checkpoint at its end (0: after ``init``).  Without ``whole``, for
    callers that verify what they read, only its ``_SUCCESS`` is read.  Raises NotFoundError,
    listing the existing ones, if there is none, DamagedError if it is not whole, UsageError for
    both an epoch and an id.
    """
    if epoch is not None and id is not None:
        raise UsageError("a checkpoint is named by its epoch or by its id, not by both")
    if epoch is None and id is None:
        record = newest(catalog)
        if record is None:
            raise NotFoundError("there is no checkpoint", where=catalog.where)
        return record
    if id is not None and not catalog.is_gone(id):
        return _record(catalog, id, whole)
    known: list[int] = []
    unread: list[str] = []
    for record in _readable(catalog, unread):
        if epoch is None:
            known.append(record.id)
        elif record.at_boundary:
            if record.epoch == epoch:
                return _record(catalog, record.id, whole) if whole else record
            known.append(record.epoch)
    what = f"id {id}" if epoch is None else f"epoch {epoch}"
    text = f"no checkpoint of {what}; there are {span(known)}"
    raise NotFoundError(text, where=catalog.where, hint="; ".join(unread))


def _record(catalog: Catalog, id: int, whole: bool) -> Record:
    with _removal_reported(catalog.place(id), lambda: catalog.is_gone(id)):
        return catalog.check(id) if whole else catalog.record(id)


def _readable(catalog: Catalog, unread: list[str]) -> Iterator[Record]:
    """Yield the readable records, newest first; add the reasons of the others to ``unread``."""
    for id in catalog.newest_first():
        try:
            record = catalog.record(id)
        except DamagedError as error:
            unread.append(f"checkpoint_{id} is ignored: {catalog.why_ignored(id, error)}")
        else:
            yield record


def is_checkpoint(place: str, fs: Fs = DEFAULT) -> bool:
    """Return whether a path or URL is that of one checkpoint, and not of a run."""
    path = f"{place.rstrip('/')}/{SUCCESS}"
    return kind_of(fs, path) == "file" if fs.far else os.path.isfile(path)


def none_whole(
    reasons: Iterable[tuple[int | None, str]], where: str, hint: str = ""
) -> DamagedError:
    """Return the error of a run with checkpoints none of which is whole: ids and reasons."""
    lines = "\n".join(f"  checkpoint_{id}: {reason}" for id, reason in reasons)
    return DamagedError(f"no checkpoint is whole:\n{lines}", where=where, hint=hint)


# Reading.


def read_at(
    place: str,
    read: Read[T],
    epoch: int | None = None,
    id: int | None = None,
    *,
    whole: bool,
    fallback: bool = False,
    hint: str = "",
    fs: Fs = DEFAULT,
) -> Chosen[T]:
    """Return what ``read`` returns for the checkpoint at a path or URL, or of the run there.

    The rest is as for ``read_found``.
    """
    place = place.rstrip("/") or "/"
    if not is_checkpoint(place, fs):
        catalog = Catalog(place, fs)
        if CHECKPOINT_NAME.fullmatch(place.rpartition("/")[2]) and not catalog.ids():
            raise NotFoundError(f"there is no {SUCCESS}, so no whole checkpoint", where=place)
        return read_found(catalog, read, epoch, id, whole=whole, fallback=fallback, hint=hint)
    if epoch is not None or id is not None:
        raise UsageError(f"{place} is one checkpoint: no epoch or id can be chosen in it")
    _refuse_fallback(fallback)
    with _removal_reported(place, lambda: not fs.far and fs.is_gone(place)):
        record = read_record(fs, place)
        return Chosen(read(place, record), place, record)


def read_found(
    catalog: Catalog,
    read: Read[T],
    epoch: int | None = None,
    id: int | None = None,
    *,
    whole: bool,
    fallback: bool = False,
    hint: str = "",
) -> Chosen[T]:
    """Return what ``read`` returns for the checkpoint of an epoch or id, or for the newest.

    ``read`` verifies what it reads; with ``whole`` all other files must exist too.  If the newest
    one is damaged, ``fallback`` takes the next older one, for everything that is read together.
    Raises NotFoundError if there is none, DamagedError, with ``hint``, if it is damaged, or with
    ``fallback`` if all are; UsageError for a fallback of a checkpoint that is named.
    """
    if epoch is None and id is None:
        return _read_newest(catalog, read, whole=whole, fallback=fallback, hint=hint)
    _refuse_fallback(fallback)
    record = find(catalog, epoch, id, whole=whole)
    place = catalog.place(record.id)
    with _removal_reported(place, lambda: catalog.is_gone(record.id)):
        return Chosen(read(place, record), place, record)


def load(catalog: Catalog, read: Reader, epoch: int | None = None, id: int | None = None) -> Loaded:
    """Read and verify the checkpoint of an epoch or id; without either, the newest whole one.

    Without either an older one replaces a damaged one, and ``skipped`` says which and why.  Raises
    NotFoundError if there is none, DamagedError if it is not what was written.
    """

    def parts(place: str, record: Record) -> Mapping[str, Any]:
        return {node: read(Path(place), node) for node in record.nodes}

    fallback = epoch is None and id is None
    found = read_found(catalog, parts, epoch, id, whole=True, fallback=fallback)
    return Loaded(found.record, Path(found.place), found.value, found.skipped)


def _read_newest(
    catalog: Catalog, read: Read[T], *, whole: bool, fallback: bool, hint: str
) -> Chosen[T]:
    """Read the newest checkpoint.

    One that vanishes while it is read (the run removed it, or went back) is not damaged: the newest
    is chosen again.
    """
    for _ in range(_TRIES):
        skipped: list[Skipped] = []
        for id in catalog.newest_first():
            try:
                record = catalog.check(id) if whole else catalog.record(id)
                place = catalog.place(id)
                return Chosen(read(place, record), place, record, tuple(skipped))
            except DamagedError as error:
                if catalog.is_gone(id):
                    break
                if not fallback and catalog.is_ours(id):
                    error.hint = error.hint or hint
                    raise
                skipped.append(Skipped(id, str(error)))
        else:
            if skipped and fallback:
                raise none_whole(((s.id, s.reason) for s in skipped), catalog.where)
            raise NotFoundError("there is no checkpoint", where=catalog.where)
    raise NotFoundError("checkpoints vanish faster than they can be read", where=catalog.where)


def _refuse_fallback(fallback: bool) -> None:
    if fallback:
        raise UsageError("fallback is for the newest checkpoint of a run, and this names one")


@contextmanager
def _removal_reported(place: str, is_gone: Callable[[], bool]) -> Iterator[None]:
    """Raise NotFoundError instead of DamagedError if a named checkpoint has been removed.

    A writer's retention removed it while it was read, which is not damage.
    """
    try:
        yield
    except DamagedError as error:
        if not is_gone():
            raise
        raise NotFoundError("it was removed while it was read", where=place) from error
