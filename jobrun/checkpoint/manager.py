"""CheckpointManager: saves, loads and retains the checkpoints of one run directory.

It can be used on its own, by any loop::

    manager = CheckpointManager("runs/mine", keep=Keep(last=3))
    for epoch in range(1, 11):
        ...
        manager.save(epoch, {"main": {"weights": weights}})
    weights = manager.load().blobs["main"]["weights"]

The lock is taken at the first save and held for the life of the manager; reading needs none.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.codecs import import_codecs
from jobrun.checkpoint.known import KnownCheckpoints
from jobrun.checkpoint.loading import Loaded, Reader, Skipped, find, load, newest
from jobrun.checkpoint.manifest import META, group_meta
from jobrun.checkpoint.part import PartSummary
from jobrun.checkpoint.part_source import BlobSource, PartSource, RunLock
from jobrun.checkpoint.pending_saves import register, unregister
from jobrun.checkpoint.publish import publish, save_error, staged, write_together
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
from jobrun.checkpoint.save_result import Saved
from jobrun.checkpoint.save_rules import SaveRules
from jobrun.checkpoint.trash import Removal
from jobrun.core import crc32c
from jobrun.core.async_exceptions import asynchronous_error
from jobrun.core.position import Position
from jobrun.errors import NotFoundError, SaveError, UsageError
from jobrun.model.policy import KEEP_ALL, Compress, Keep
from jobrun.storage.ext4_placement import spread
from jobrun.storage.fs import DEFAULT, Fs, FsError
from jobrun.storage.lock import Lock

__all__ = [
    "CheckpointManager",
    "Loaded",
    "Saved",
    "Skipped",
]


class CheckpointManager:
    """Saves and loads the checkpoints of ``run_dir``, which is created by the first save.

    ``keep`` says which checkpoints are kept (``Keep()``: all).  ``job`` and ``digest`` name the job
    in each record.  Ids start at ``first_id``.  ``link`` and ``compress`` are as in
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
        compress: Sequence[Compress] = (),
        lock: RunLock | None = None,
        fs: Fs = DEFAULT,
    ) -> None:
        self.run_dir = Path(run_dir).absolute()  # a task may change the directory
        self.rules = SaveRules(keep, link, tuple(compress))
        self.job = job
        self.digest = digest
        self.first_id = first_id
        self.lock: RunLock = Lock(self.run_dir) if lock is None else lock
        self.catalog = Catalog(self.run_dir, fs)
        self._fs = fs
        self._started = time.monotonic()
        self._made = False
        self.known = KnownCheckpoints(self.catalog)
        self._removal = Removal(self.catalog, self.known, fs)
        self._writer: ThreadPoolExecutor | None = None
        self._flying: Future[Saved] | None = None
        self._postponed: tuple[Collection[int], SaveRules] | None = None

    def __repr__(self) -> str:
        return f"CheckpointManager({str(self.run_dir)!r})"

    # Saving.

    def number_from(self, id: int) -> None:
        """Use no id below ``id`` from now on."""
        self.first_id = id

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
        once ``wait``, ``close`` or the next ``save`` returns, which also raise its error.  If none
        of them is called, the process waits for the save at its end, and prints an error on stderr.

        A single node is called ``main`` in jobs without nodes.  Values are arrays, numbers,
        strings, None, and dicts and lists of those.  ``metrics`` are stored in the record, where
        ``keep.best`` reads them, and ``extra`` may be any JSON.  Returns the checkpoint's id.

        Raises ValueRefusedError for values that cannot be saved, SaveError if writing fails, and
        LockedError if another process writes here.
        """
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise UsageError(f"epoch must be an integer of at least 0, got {epoch!r}")
        import_codecs(self.rules.compress)
        self.wait()
        source = BlobSource.of(blobs, copy=not wait, fs=self._fs)
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
        if wait:
            return self.save_snapshot(source, fields).id
        self.acquire()
        id = self.known.next_id(self.first_id)
        self._flying = self.submit(source, fields)
        register(self._flying)
        return id

    def submit(
        self,
        source: PartSource,
        fields: RecordFields,
        protected: Collection[int] = (),
        rules: SaveRules | None = None,
    ) -> Future[Saved]:
        """Run ``save_snapshot`` in the background, one at a time, in the order of the calls."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "jobrun-save")
        return self._writer.submit(self.save_snapshot, source, fields, protected, rules)

    def wait(self) -> None:
        """Return once a ``save(…, wait=False)`` is durable; raises its error."""
        flying = self._flying
        if flying is None:
            return
        try:
            flying.result()
        finally:  # after Ctrl-C it is waited for again, at the latest at the end of the process
            if flying.done():
                self._flying = None
                unregister(flying)

    def save_snapshot(
        self,
        source: PartSource,
        fields: RecordFields,
        protected: Collection[int] = (),
        rules: SaveRules | None = None,
    ) -> Saved:
        """Save what ``source`` holds, durable on return, then remove what ``keep`` drops.

        ``protected`` are ids that retention does not remove.  ``rules`` replace the manager's own
        for this save.  Raises as ``save`` does; then nothing is left on disk, and the next save
        starts afresh.
        """
        rules = rules or self.rules
        deleting = self._removal.busy  # it may end, and have made room, before the failure is seen
        try:
            return self._save(source, fields, protected, rules)
        except SaveError as error:
            if not _disk_is_full(error):
                raise
            removed, warnings = self.apply_postponed()
            if not (removed or deleting):
                raise
            self._removal.wait()  # dropped checkpoints take disk space until they are deleted
            saved = self._save(source, fields, protected, rules)
            return replace(
                saved,
                removed=(*removed, *saved.removed),
                warnings=(f"{error.message}; the retry succeeded", *warnings, *saved.warnings),
            )
        except BaseException as error:
            cause = asynchronous_error(error)
            if cause is None:
                raise
            raise SaveError(f"the save ended early: {cause.message}", hint=cause.hint) from error
        finally:
            source.release()

    def _save(
        self,
        source: PartSource,
        fields: RecordFields,
        protected: Collection[int],
        rules: SaveRules,
    ) -> Saved:
        gone = self._made and self._fs.is_gone(self.run_dir)
        if gone:
            self.known.forget()
        self.acquire()
        id = self._new_id()
        if rules.watch is not None:
            rules.watch.admit(id)
        start = time.perf_counter()
        with staged(self.run_dir, id, self._fs) as partial:
            shared = self._share_with(rules)
            with ThreadPoolExecutor(1, "jobrun-sync") as pool:
                if rules.beside is not None:
                    pool.submit(rules.beside)
                parts = source.write(partial, id, shared, rules.compress)
            written = time.perf_counter()
            record = self._finish(partial, id, parts, fields)
            path = publish(partial, id, self._fs)
        committed = time.perf_counter()
        source.saved(id)
        if rules.watch is not None:
            rules.watch.published(record, path)
        self.known.saved(record)
        protected = {id, *protected}
        removed, warnings = self._removal.after_save(rules.keep, protected, rules.named_now)
        self._postponed = (protected, rules) if self._removal.postponed else None
        if gone:
            text = f"{self.run_dir} was removed or moved with its checkpoints; it was created again"
            warnings = (text, *warnings)
        sync = max(part.sync for part in parts)
        seconds = {
            "write": written - start - sync,
            "sync": sync,
            "commit": committed - written,
            "retain": time.perf_counter() - committed,
        }
        return Saved(record, path, seconds, parts, removed, warnings)

    def _new_id(self) -> int:
        """Return an id that is not used again, even if this save fails."""
        id = self.first_id
        try:
            id = self.known.next_id(id)
        except NotFoundError as error:
            raise SaveError(f"checkpoint {id} was not saved: {error}") from error
        finally:
            self.first_id = id + 1
        return id

    def _share_with(self, rules: SaveRules) -> list[str]:
        """Return the checkpoints from which unchanged blobs are linked.

        ``alternate`` is the one before the parent, so that neighbours share nothing and every
        lasting value has two inodes; if only one checkpoint is kept, it is the parent.
        """
        if rules.link == "never":
            return []
        try:
            ids = self.known.newest_ids(2)
        except NotFoundError:  # nothing is linked then
            return []
        two_are_kept = rules.keep.all or (rules.keep.last or 0) >= 2
        if rules.link == "alternate" and two_are_kept:
            ids = ids[-2:-1]
        return [str(self.catalog.path(id)) for id in ids[-1:]]

    def _finish(
        self, partial: str, id: int, parts: Sequence[PartSummary], fields: RecordFields
    ) -> Record:
        """Write the files beside the parts, which are durable, and return the record."""
        root = group_meta(
            {"format": FORMAT, "job": fields.job, "id": id, "epoch": fields.position.epochs}
        )
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
        write_together(partial, {META: root, SUCCESS: encode_record(record)}, self._fs)
        return record

    def apply_retention(
        self, protected: Collection[int] = (), rules: SaveRules | None = None
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove what ``keep`` drops, under the lock; return the ids removed, and warnings.

        A removal that fails is retried after the next save.  Files are deleted in the background:
        see ``settle``.
        """
        rules = rules or self.rules
        return self._removal.apply(rules.keep, protected, rules.named_now)

    def apply_postponed(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Apply ``keep`` if the last save did not; return what ``apply_retention`` does.

        Where hundreds of checkpoints are kept, ``keep`` is not applied after every save, but each
        time their number has grown by a hundredth, before a save for which the disk is too full,
        and by ``close``.
        """
        if self._postponed is None:
            return (), ()
        protected, rules = self._postponed
        self._postponed = None
        return self.apply_retention(protected, rules)

    def settle(self) -> tuple[str, ...]:
        """Wait until the files of all removed checkpoints are deleted; return the warnings."""
        self._removal.wait()
        return self._removal.warnings()

    # The lock.

    def acquire(self) -> None:
        """Create the run directory and hold its lock, unless done before.

        Raises LockedError, naming the process that holds it.
        """
        try:
            self._fs.make_dirs(str(self.run_dir))
        except FsError as error:
            raise save_error(self.first_id, error) from error
        spread(str(self.run_dir))
        self.lock.acquire()
        self._made = True

    def close(self) -> None:
        """Wait for saves and deletions, and release the lock of the directory.

        The next save acquires it again.  Raises what ``wait`` does.
        """
        try:
            self.wait()
        finally:
            if self._writer is not None:
                self._writer.shutdown()
                self._writer = None
            self.apply_postponed()
            self._removal.close()
            self.known.forget()  # another process may write here now
            self.lock.release()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    # Loading.

    def latest(self) -> Record | None:
        """Return the record of the newest listed checkpoint, or None."""
        return newest(self.catalog)

    def path(self, epoch: int) -> Path:
        """Return the path of the checkpoint of an epoch; raises NotFoundError if there is none."""
        return self.catalog.path(find(self.catalog, epoch).id)

    def find(self, epoch: int | None = None, id: int | None = None) -> Record:
        """Return the record of the checkpoint of an epoch or id, or of the newest listed one.

        Raises NotFoundError if there is none.
        """
        return find(self.catalog, epoch, id)

    def load(
        self,
        epoch: int | None = None,
        id: int | None = None,
        *,
        read: Reader = read_part,
    ) -> Loaded:
        """Read and verify the checkpoint of an epoch or id; without either, the newest whole one.

        ``read(path, node)`` reads a node's part.  Without ``epoch`` and ``id`` an older one
        replaces a damaged one, and ``skipped`` says which and why.  Raises NotFoundError if there
        is none, DamagedError if it is not what was written.
        """
        return load(self.catalog, read, epoch, id)


def _disk_is_full(error: SaveError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
