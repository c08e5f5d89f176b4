"""Removing what retention drops: the names go within the save, the files on a thread of its own.

Unlinking files that were written back costs milliseconds each on some disks, and no save should
wait for that.  What is deleted in the background has a trash name already: a process that ends
before it is done leaves it to the cleaning of the next start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.publish import drop, remove_dropped
from jobrun.checkpoint.record import Record
from jobrun.checkpoint.retention import retain
from jobrun.errors import JobrunError, NotFoundError
from jobrun.model.policy import Keep
from jobrun.storage.fs import DEFAULT, Fs, FsError

__all__ = ["MOST_WAITING", "Removal"]

MOST_WAITING = 8
"""Directories that may wait for the thread.  More would fill the disk of a run that saves faster
than its disk deletes: there a save waits for the first of them."""


class Removal:
    """Removes checkpoints of one run directory.

    Its methods are called by one thread at a time.  Its own thread lives from the first removal to
    ``close``.
    """

    def __init__(self, catalog: Catalog, fs: Fs = DEFAULT) -> None:
        self._catalog = catalog
        self._fs = fs
        self._whole: dict[int, Record] = {}  # known to be listed; a checkpoint never changes
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[tuple[str, Future[None]]] = []

    def saved(self, record: Record) -> None:
        """A checkpoint was just saved: it need not be looked at."""
        self._whole[record.id] = record

    def apply(
        self,
        keep: Keep,
        protected: Collection[int] = (),
        named_now: Callable[[Record], Record] | None = None,
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove what ``keep`` drops; the ids that are gone, and warnings.

        ``keep`` is asked of the records as ``named_now`` gives them.
        What could not be renamed is tried again at the next call.  The files follow in the
        background; what goes wrong there is among the warnings of a later call.
        """
        if keep.all:
            return (), self.warnings()
        try:
            records = self._records()
            if named_now is not None:
                records = list(map(named_now, records))
            dropped = retain(records, keep, protected)[1]
        except NotFoundError as error:
            return (), (*self.warnings(), f"no checkpoint was removed: {error}")
        removed, warnings = [], []
        for record in dropped:
            try:
                self._remove(drop(self._catalog.run_dir, record.id, self._fs))
            except FsError as error:
                warnings.append(f"checkpoint {record.id} was not removed: {error}")
            if self._fs.is_gone(self._catalog.path(record.id)):
                self._whole.pop(record.id, None)
                removed.append(record.id)
        return tuple(removed), (*self.warnings(), *warnings)

    def _records(self) -> list[Record]:
        """The listed checkpoints; those known to be are not looked at again."""
        found = []
        for id in self._catalog.ids():
            try:
                record = self._whole.get(id) or self._catalog.check(id)
            except JobrunError:
                continue
            self._whole[id] = record
            found.append(record)
        return found

    def _remove(self, trash: str) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "jobrun-remove")
        if len(self._waiting) >= MOST_WAITING:
            self._waiting[-MOST_WAITING][1].exception()
        self._waiting.append((trash, self._thread.submit(remove_dropped, trash, self._fs)))

    # The background.

    @property
    def busy(self) -> bool:
        """Whether files are still to be deleted."""
        return any(not future.done() for _, future in self._waiting)

    def wait(self) -> None:
        """Return once all is deleted, as far as it can be."""
        for _, future in self._waiting:
            future.exception()

    def warnings(self) -> tuple[str, ...]:
        """What went wrong in the background and has not been told yet."""
        done = [waiting for waiting in self._waiting if waiting[1].done()]
        self._waiting = [waiting for waiting in self._waiting if waiting not in done]
        return tuple(
            f"removal of {os.path.basename(trash)}: {error}"
            for trash, future in done
            if (error := future.exception()) is not None
        )

    def close(self) -> None:
        """End the thread once all is deleted."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
