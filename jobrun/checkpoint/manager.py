"""CheckpointManager: saves, loads and retains the checkpoints of one run directory.

It can be used alone, by a loop of one's own::

    manager = CheckpointManager("runs/mine", keep=Keep(last=3))
    for epoch in range(1, 11):
        ...
        manager.save(epoch, {"main": {"weights": weights}})
    weights = manager.load().blobs["main"]["weights"]

The lock is taken at the first save and held for the life of the manager; reading needs none.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.fs import DEFAULT, Fs, FsError
from jobrun.checkpoint.manifest import META, group_meta
from jobrun.checkpoint.part import PartSummary, check_part
from jobrun.checkpoint.publish import discard, publish, save_error, staged
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import (
    FORMAT,
    SUCCESS,
    Metric,
    Record,
    RecordFields,
    check_fields,
    encode_record,
)
from jobrun.checkpoint.retention import retain
from jobrun.checkpoint.source import BlobSource, PartSource, RunLock
from jobrun.errors import DamagedError, JobrunError, NotFoundError, SaveError, UsageError
from jobrun.lock import Lock
from jobrun.names import is_name
from jobrun.policy import KEEP_ALL, Keep
from jobrun.position import Position
from jobrun.values import Box, Tree, Value, adopt, plain

__all__ = [
    "CheckpointManager",
    "Loaded",
    "Saved",
    "Skipped",
]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is whole and durable.

    ``bytes`` and ``files`` are those of the parts; ``seconds`` has the phases ``write`` (parts,
    durable), ``commit`` (record, rename) and ``retain``; ``parts`` tells of each node.  ``removed``
    are the ids that retention removed, ``warnings`` what it could not.
    """

    record: Record
    path: Path
    seconds: Mapping[str, float]
    parts: Sequence[PartSummary]
    removed: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        """The checkpoint's id."""
        return self.record.id

    @property
    def epoch(self) -> int:
        """Epochs completed."""
        return self.record.epoch

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return self.record.bytes

    @property
    def files(self) -> int:
        """Files in the checkpoint."""
        return self.record.files

    @property
    def linked(self) -> int:
        """Bytes of files that are shared with an earlier checkpoint."""
        return sum(part.linked for part in self.parts)


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


Reader = Callable[[Path, str], Any]


class CheckpointManager:
    """Saves and loads the checkpoints of ``run_dir``, which is made at the first save.

    ``keep`` says which checkpoints stay (``Keep()``: all).  ``job`` and ``digest`` name the job in
    each record.  No id below ``first_id`` is given to a checkpoint.  ``link`` is as in
    ``CheckpointPolicy``.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        keep: Keep = KEEP_ALL,
        job: str = "",
        digest: str = "",
        first_id: int = 0,
        link: str = "alternate",
        lock: RunLock | None = None,
        fs: Fs = DEFAULT,
    ) -> None:
        self.run_dir = Path(run_dir)
        self.keep = keep
        self.job = job
        self.digest = digest
        self.first_id = first_id
        self.link = link
        self.lock: RunLock = Lock(self.run_dir) if lock is None else lock
        self.catalog = Catalog(self.run_dir, fs)
        self._fs = fs
        self._started = time.monotonic()
        self._whole: dict[int, Record] = {}  # records proven listed; a checkpoint never changes
        self._writer: ThreadPoolExecutor | None = None
        self._flying: Future[Saved] | None = None

    def __repr__(self) -> str:
        return f"CheckpointManager({str(self.run_dir)!r})"

    # Saving.

    def save(
        self,
        epoch: int,
        blobs: Mapping[str, Mapping[str, object]],
        *,
        metrics: Mapping[str, Metric] | None = None,
        extra: Mapping[str, Any] | None = None,
        wait: bool = True,
    ) -> int:
        """Save ``{node: {blob: value}}`` as of ``epoch`` epochs completed; durable on return.

        With ``wait=False`` the values are copied and written in the background: the save is durable
        once ``wait`` returns, or the next ``save``, which also raise what went wrong with it.

        A single node is called ``main`` in jobs without nodes.  Values are arrays, numbers,
        strings, None, and dicts and lists of those.  ``metrics`` are kept in the record, where
        ``keep.best`` looks, and ``extra`` may be any JSON.  Returns the checkpoint's id.

        Raises ValueRefusedError for what cannot be saved, SaveError if the disk refuses, and
        LockedError if another process writes here.
        """
        _check_save(epoch, blobs)
        self.wait()
        value = _value if wait else _copied
        nodes = {
            node: {name: value(item) for name, item in items.items()}
            for node, items in blobs.items()
        }
        for node, values in nodes.items():
            check_part(node, values)
        fields = RecordFields(
            position=Position(epochs=epoch),
            run_seconds=time.monotonic() - self._started,
            metrics=metrics or {},
            versions={"python": platform.python_version(), "numpy": np.__version__},
            job=self.job,
            digest=self.digest,
            extra=extra or {},
        )
        check_fields(fields)
        source = BlobSource(nodes, self._fs)
        if wait:
            return self.save_snapshot(source, fields).id
        self.acquire()
        id = self.catalog.next_id(self.first_id)
        self._flying = self.submit(source, fields)
        return id

    def submit(
        self, source: PartSource, fields: RecordFields, protected: Collection[int] = ()
    ) -> Future[Saved]:
        """``save_snapshot`` in the background, one after another in the order they were given."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "jobrun-save")
        return self._writer.submit(self.save_snapshot, source, fields, protected)

    def wait(self) -> None:
        """Return once a ``save(…, wait=False)`` is durable; raises what went wrong with it."""
        flying, self._flying = self._flying, None
        if flying is not None:
            flying.result()

    def save_snapshot(
        self, source: PartSource, fields: RecordFields, protected: Collection[int] = ()
    ) -> Saved:
        """Save what ``source`` holds, durable on return, then remove what ``keep`` drops.

        ``protected`` are ids that retention leaves alone.  Raises as ``save`` does; then nothing is
        left on disk, and the next save starts afresh.
        """
        try:
            return self._save(source, fields, protected)
        finally:
            source.release()

    def _save(self, source: PartSource, fields: RecordFields, protected: Collection[int]) -> Saved:
        self.acquire()
        id = self._new_id()
        start = time.perf_counter()
        with staged(self.run_dir, id, self._fs) as partial:
            share_with = self._share_with()
            parts = [source.write(node, partial, id, share_with) for node in source.nodes]
            written = time.perf_counter()
            record = self._finish(partial, id, parts, fields)
            path = publish(partial, id, self._fs)
        committed = time.perf_counter()
        source.saved(id)
        self._whole[id] = record
        removed, warnings = self.apply_retention({id, *protected})
        seconds = {
            "write": written - start,
            "commit": committed - written,
            "retain": time.perf_counter() - committed,
        }
        return Saved(record, path, seconds, parts, removed, warnings)

    def _new_id(self) -> int:
        """An id that is not given again, also when this save fails."""
        id = self.first_id
        try:
            id = self.catalog.next_id(id)
        except NotFoundError as error:
            raise SaveError(f"checkpoint {id} was not saved: {error}") from error
        finally:
            self.first_id = id + 1
        return id

    def _share_with(self) -> list[str]:
        """The checkpoints from which unchanged blobs are linked.

        ``alternate`` takes the one before the parent, so that neighbours share nothing and every
        lasting value has two inodes; where no second one is ever kept, the parent.
        """
        if self.link == "never":
            return []
        try:
            ids = self.catalog.ids()
        except NotFoundError:  # nothing is linked then
            return []
        two_are_kept = self.keep.all or (self.keep.last or 0) >= 2
        if self.link == "alternate" and two_are_kept:
            ids = ids[:-1]
        return [str(self.catalog.path(id)) for id in ids[-1:]]

    def _finish(
        self, partial: str, id: int, parts: Sequence[PartSummary], fields: RecordFields
    ) -> Record:
        """Write what is left beside the parts, ``_SUCCESS`` last."""
        root = group_meta(
            {"format": FORMAT, "job": fields.job, "id": id, "epoch": fields.position.epochs}
        )
        self._fs.write(f"{partial}/{META}", [root], sync=True)
        record = Record(
            id=id,
            time=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            position=fields.position,
            run_seconds=fields.run_seconds,
            metrics=fields.metrics,
            stops=tuple(fields.stops),
            decision=fields.decision,
            versions=fields.versions,
            job=fields.job,
            digest=fields.digest,
            manifests={part.node: part.digest for part in parts},
            root=f"{crc32c.crc32c(root):08x}",
            bytes=len(root) + sum(part.bytes for part in parts),
            files=1 + sum(part.files for part in parts),
            extra=fields.extra,
        )
        self._fs.write(f"{partial}/{SUCCESS}", [encode_record(record)], sync=True)
        return record

    def apply_retention(
        self, protected: Collection[int] = ()
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove what ``keep`` drops, under the lock; the ids removed, and warnings.

        What could not be removed is tried again after the next save.
        """
        if self.keep.all:
            return (), ()
        removed: list[int] = []
        warnings: list[str] = []
        try:
            drop = retain(self._records(), self.keep, protected)[1]
        except NotFoundError as error:
            return (), (f"no checkpoint was removed: {error}",)
        for record in drop:
            try:
                discard(self.run_dir, record.id, self._fs)
            except FsError as error:
                warnings.append(f"checkpoint {record.id} was not removed: {error}")
            if not self.catalog.path(record.id).exists():
                self._whole.pop(record.id, None)
                removed.append(record.id)
        return tuple(removed), tuple(warnings)

    def _records(self) -> list[Record]:
        """The listed checkpoints; those known to be are not looked at again."""
        found = []
        for id in self.catalog.ids():
            try:
                record = self._whole.get(id) or self.catalog.check(id)
            except JobrunError:
                continue
            self._whole[id] = record
            found.append(record)
        return found

    # The lock.

    def acquire(self) -> None:
        """Make the run directory and hold its lock; nothing if that is done.

        Raises LockedError, naming the process that holds it.
        """
        try:
            self._fs.make_dirs(str(self.run_dir))
        except FsError as error:
            raise save_error(self.first_id, error) from error
        self.lock.acquire()

    def close(self) -> None:
        """Wait for what is being saved and let go of the directory; the next save takes it again.

        Raises what ``wait`` does.
        """
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None
            self.lock.release()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # Loading.

    def latest(self) -> Record | None:
        """The record of the newest listed checkpoint, or None."""
        return self.catalog.latest()

    def path(self, epoch: int) -> Path:
        """Where the checkpoint of an epoch is; raises NotFoundError if there is none."""
        return self.catalog.path(self.catalog.by_epoch(epoch).id)

    def find(self, epoch: int | None = None, id: int | None = None) -> Record:
        """The record of the checkpoint of an epoch or id, or of the newest listed one.

        Raises NotFoundError if there is none.
        """
        if epoch is not None and id is not None:
            raise UsageError("a checkpoint is named by its epoch or by its id, not by both")
        if id is not None:
            return self.catalog.by_id(id)
        if epoch is not None:
            return self.catalog.by_epoch(epoch)
        newest = self.catalog.latest()
        if newest is None:
            raise self._nothing(())
        return newest

    def load(
        self,
        epoch: int | None = None,
        id: int | None = None,
        *,
        read: Reader = read_part,
    ) -> Loaded:
        """Read and prove the checkpoint of an epoch or id; without either, the newest whole one.

        ``read(path, node)`` reads a node's part.  Only without ``epoch`` and ``id`` is another
        taken in place of a damaged one, and ``skipped`` says which and why.
        Raises NotFoundError if there is none, DamagedError if it is not what was written.
        """
        if epoch is None and id is None:
            return self._load_newest(read)
        record = self.find(epoch, id)
        return self._load(record, read, ())

    def _load_newest(self, read: Reader) -> Loaded:
        skipped: list[Skipped] = []
        for id in self.catalog.newest_first():
            try:
                return self._load(self.catalog.check(id), read, tuple(skipped))
            except DamagedError as error:
                # Gone meanwhile: a writer's retention took it, which proves nothing against it.
                if os.path.lexists(self.catalog.path(id)):
                    skipped.append(Skipped(id, str(error)))
        raise self._nothing(skipped)

    def _load(self, record: Record, read: Reader, skipped: tuple[Skipped, ...]) -> Loaded:
        path = self.catalog.path(record.id)
        return Loaded(record, path, {node: read(path, node) for node in record.nodes}, skipped)

    def _nothing(self, skipped: Sequence[Skipped]) -> JobrunError:
        if skipped:
            reasons = "\n".join(f"  checkpoint {s.id}: {s.reason}" for s in skipped)
            return DamagedError(f"no checkpoint is whole:\n{reasons}", where=str(self.run_dir))
        return NotFoundError("there is no checkpoint", where=str(self.run_dir))


def _check_save(epoch: int, blobs: Mapping[str, Mapping[str, object]]) -> None:
    if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
        raise UsageError(f"epoch must be an integer of at least 0, not {epoch!r}")
    if not blobs or not all(isinstance(items, Mapping) for items in blobs.values()):
        raise UsageError(
            "blobs must be {node: {name: value}}", hint='with one node: {"main": {"w": w, "b": b}}'
        )


def _copied(item: object) -> Value:
    """A value of the caller's, who may change it while it is written."""
    return adopt([item])


def _value(item: object, depth: int = 0) -> Value:
    """A value of the caller's: arrays as they are, since they are on disk before we return."""
    if type(item) is np.ndarray and item.flags.c_contiguous and item.dtype.isbuiltin == 1:
        return Box(item, "array")
    if type(item) is dict and depth < 64 and all(type(k) is str and is_name(k) for k in item):
        return Tree("dict", {name: _value(below, depth + 1) for name, below in item.items()})
    return adopt([item])
