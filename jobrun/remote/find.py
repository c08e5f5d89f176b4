"""Finding a checkpoint in another place: the newest that is whole, or the one that is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jobrun.checkpoint.catalog import span
from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.manifest import Manifest
from jobrun.checkpoint.record import ID, SUCCESS, Record, decode_record
from jobrun.errors import DamagedError, NotFoundError, UsageError
from jobrun.remote.files import RemoteFs
from jobrun.remote.store import Store, join, open_store, split
from jobrun.storage.threads import THREADS_FAR

__all__ = [
    "RemoteCheckpoint",
    "StoreRun",
    "checkpoint_at",
    "checkpoints_at",
    "find_at",
    "is_marked",
    "names_at",
]

_CHECKPOINT = re.compile(rf"checkpoint_({ID})")


@dataclass(frozen=True, slots=True)
class RemoteCheckpoint:
    """A checkpoint: ``store`` is what holds it (the run), ``name`` what it is called there.

    ``skipped`` are the newer ones that were passed over, with the reason.
    """

    store: Store
    name: str
    record: Record
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def url(self) -> str:
        """Where it is."""
        return join(self.store.place, self.name)


def find_at(url: str, *, epoch: int | None = None, id: int | None = None) -> RemoteCheckpoint:
    """The checkpoint at ``url``, or of the run there the newest, or that of ``epoch`` or ``id``.

    The newest is the newest of which all files are there at their full lengths.  Raises
    NotFoundError, saying which there are, DamagedError where none is whole or the one that was
    named is not, UsageError and StoreError.
    """
    if epoch is not None and id is not None:
        raise UsageError("a checkpoint is named by its epoch or by its id, not by both")
    if (found := checkpoint_at(url)) is not None:
        if epoch is not None or id is not None:
            raise UsageError(f"{url} is one checkpoint: no epoch or id can be chosen in it")
        return found
    store = open_store(url)
    if id is not None:
        return _by_id(store, id)
    if epoch is not None:
        return _by_epoch(store, epoch)
    return _newest(store)


def checkpoint_at(url: str) -> RemoteCheckpoint | None:
    """Return the checkpoint that a URL itself names, or None: it names a run, if anything.

    Raises NotFoundError for one without ``_SUCCESS``, DamagedError if that is not what was written.
    """
    above, name = split(url)
    data = _read(open_store(url), SUCCESS)
    if data is None and not _CHECKPOINT.fullmatch(name):
        return None
    if data is None:
        raise NotFoundError(f"there is no {SUCCESS}, so no whole checkpoint", where=url)
    return RemoteCheckpoint(open_store(above), name, decode_record(data, join(url, SUCCESS)))


@dataclass(frozen=True, slots=True)
class StoreRun:
    """The checkpoints of a run in another place: see ``RunCheckpoints``.

    ``_SUCCESS`` comes last there too, so that a folder without it is an upload that is under way.
    """

    store: Store

    @property
    def where(self) -> str:
        """The URL of the run."""
        return self.store.place

    @property
    def missing(self) -> str:
        """See RunCheckpoints."""
        return "there is no run or checkpoint"

    def newest_first(self) -> Iterator[int]:
        """See RunCheckpoints."""
        return iter(sorted(_ids(self.store), reverse=True))

    def open(self, id: int, *, whole: bool) -> tuple[str, Record]:
        """See RunCheckpoints."""
        name = f"checkpoint_{id}"
        url = join(self.store.place, name)
        data = _read(self.store, f"{name}/{SUCCESS}")
        if data is None:
            raise DamagedError(f"there is no {SUCCESS}", where=url)
        record = decode_record(data, join(url, SUCCESS))
        if record.id != id:
            raise DamagedError(f"it is a copy of checkpoint {record.id}", where=url)
        if whole:
            _check_files(self.store, name, record)
        return url, record

    def is_ours(self, id: int) -> bool:
        """See RunCheckpoints."""
        name = f"checkpoint_{id}/{SUCCESS}"
        data = _read(self.store, name)
        try:
            return data is not None and decode_record(data, name).id == id
        except DamagedError:
            return True

    def is_gone(self, id: int) -> bool:
        """See RunCheckpoints."""
        return id not in _ids(self.store)


def checkpoints_at(store: Store) -> dict[int, Record]:
    """The checkpoints at a place that have a ``_SUCCESS``, by rising id."""
    found = ((id, _record(store, id)) for id in sorted(_ids(store)))
    return {id: record for id, record in found if record is not None}


def names_at(store: Store) -> list[str]:
    """What is named like a checkpoint at a place, whole or not, by rising id."""
    return [f"checkpoint_{id}" for id in sorted(_ids(store))]


def is_marked(store: Store, name: str) -> bool:
    """Whether what is named like a checkpoint has a ``_SUCCESS``, whatever that says."""
    return _read(store, f"{name}/{SUCCESS}") is not None


def _by_id(store: Store, id: int) -> RemoteCheckpoint:
    record = _record(store, id)
    if record is None:
        there = span(checkpoints_at(store))
        raise NotFoundError(f"no checkpoint of id {id}; there are {there}", where=store.place)
    return RemoteCheckpoint(store, f"checkpoint_{id}", record)


def _by_epoch(store: Store, epoch: int) -> RemoteCheckpoint:
    """The newest at the end of an epoch."""
    known = []
    for record in _newest_first(store):
        if record.at_boundary:
            if record.epoch == epoch:
                return RemoteCheckpoint(store, f"checkpoint_{record.id}", record)
            known.append(record.epoch)
    raise NotFoundError(
        f"no checkpoint of epoch {epoch}; there are {span(known)}", where=store.place
    )


def _newest(store: Store) -> RemoteCheckpoint:
    skipped: list[tuple[str, str]] = []
    for record in _newest_first(store):
        name = f"checkpoint_{record.id}"
        try:
            _check_files(store, name, record)
        except DamagedError as error:
            skipped.append((name, f"{error.where}: {error.message}"))
            continue
        return RemoteCheckpoint(store, name, record, tuple(skipped))
    if skipped:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in skipped)
        raise DamagedError(f"no checkpoint is whole:\n{reasons}", where=store.place)
    raise NotFoundError("there is no run or checkpoint", where=store.place)


def _check_files(store: Store, name: str, record: Record) -> None:
    """All files are there at their full lengths; raises DamagedError, naming the first that is not.

    One listing and the manifests are looked at, and no value.
    """
    url = join(store.place, name)
    sizes = store.sizes(name)
    for manifest in _manifests(url, record):
        for file_name, file, _ in manifest.files():
            size = sizes.get(file_name)
            if size != file.size:
                what = "it is missing" if size is None else f"it is {size} bytes long"
                raise DamagedError(
                    f"{what}, but {file.size} were written", where=join(url, file_name)
                )


def _manifests(url: str, record: Record) -> list[Manifest]:
    fs = RemoteFs()
    with ThreadPoolExecutor(THREADS_FAR) as pool:
        return list(pool.map(lambda node: read_manifest(fs, url, record, node), record.nodes))


def _newest_first(store: Store) -> Iterator[Record]:
    for id in sorted(_ids(store), reverse=True):
        if (record := _record(store, id)) is not None:
            yield record


def _ids(store: Store) -> list[int]:
    return [int(m[1]) for name in store.folders() if (m := _CHECKPOINT.fullmatch(name))]


def _record(store: Store, id: int) -> Record | None:
    """The record of what is named like a checkpoint, or None where it is none."""
    name = f"checkpoint_{id}/{SUCCESS}"
    data = _read(store, name)
    if data is None:
        return None
    try:
        record = decode_record(data, join(store.place, name))
    except DamagedError:
        return None
    return record if record.id == id else None


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.read(name)
    except NotFoundError:
        return None
