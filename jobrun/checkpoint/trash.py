"""Removing what retention drops: names within the save, files on a thread of their own.

Unlinking files that were written back costs milliseconds each on some disks, and no save should
wait for that.  What is deleted in the background has a trash name already: if the process ends
first, the next start removes the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.known import KnownCheckpoints
from jobrun.checkpoint.publish import drop, remove_dropped
from jobrun.checkpoint.record import Record
from jobrun.checkpoint.retention import retain
from jobrun.errors import NotFoundError
from jobrun.model.policy import Keep
from jobrun.storage.fs import DEFAULT, Fs, FsError

__all__ = ["MOST_WAITING", "Removal"]

_POSTPONED = 0.01
"""The part of the kept checkpoints by which their number may grow before the rules are applied.

To apply them takes time in proportion to that number: measured, 30 ms for 10,000, after saves of
4 ms.  Up to 100 kept checkpoints they are applied after every save."""

MOST_WAITING = 8
"""Directories that may wait for the thread.

With more, a run that saves faster than its disk deletes would fill the disk: a save waits for the
first of them instead."""


class Removal:
    """Removes checkpoints of one run directory.

    Its methods are called by one thread at a time.  Its own thread runs from the first removal to
    ``close``.
    """

    def __init__(self, catalog: Catalog, known: KnownCheckpoints, fs: Fs = DEFAULT) -> None:
        self._catalog = catalog
        self._known = known
        self._fs = fs
        self._kept = 0  # when the rules were applied last
        self._since = 0  # saves since then
        self._thread: ThreadPoolExecutor | None = None
        self._waiting: list[tuple[str, Future[None]]] = []

    @property
    def postponed(self) -> bool:
        """Whether the rules have not been applied after the last save."""
        return self._since > 0

    def after_save(
        self,
        keep: Keep,
        protected: Collection[int] = (),
        named_now: Callable[[Record], Record] | None = None,
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove as ``apply`` does, but not after every save where many checkpoints are kept."""
        self._since += not keep.all
        if self._since <= self._kept * _POSTPONED:
            return (), self.warnings()
        return self.apply(keep, protected, named_now)

    def apply(
        self,
        keep: Keep,
        protected: Collection[int] = (),
        named_now: Callable[[Record], Record] | None = None,
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Remove what ``keep`` drops; return the ids that are gone, and warnings.

        ``keep`` applies to the records as ``named_now`` returns them.  A rename that fails is
        retried at the next call.  The files are deleted in the background, whose errors are among
        the warnings of a later call.
        """
        self._since = 0
        if keep.all:
            return (), self.warnings()
        try:
            records = self._known.records()
            if named_now is not None:
                records = list(map(named_now, records))
            kept, dropped = retain(records, keep, protected, self._known.is_whole)
        except NotFoundError as error:
            return (), (*self.warnings(), f"no checkpoint was removed: {error}")
        self._kept = len(kept)
        removed, warnings = [], []
        for record in dropped:
            try:
                self._remove(drop(self._catalog.run_dir, record.id, self._fs))
            except FsError as error:
                warnings.append(f"checkpoint {record.id} was not removed: {error}")
            if self._fs.is_gone(self._catalog.path(record.id)):
                self._known.removed(record.id)
                removed.append(record.id)
        return tuple(removed), (*self.warnings(), *warnings)

    def _remove(self, trash: str) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "jobrun-remove")
        if len(self._waiting) >= MOST_WAITING:
            self._waiting[-MOST_WAITING][1].exception()
        self._waiting.append((trash, self._thread.submit(remove_dropped, trash, self._fs)))

    # The background.

    @property
    def busy(self) -> bool:
        """Whether files are still being deleted."""
        return any(not future.done() for _, future in self._waiting)

    def wait(self) -> None:
        """Wait until everything is deleted, as far as possible."""
        for _, future in self._waiting:
            future.exception()

    def warnings(self) -> tuple[str, ...]:
        """Return the errors of the background that were not returned before."""
        done = [waiting for waiting in self._waiting if waiting[1].done()]
        self._waiting = [waiting for waiting in self._waiting if waiting not in done]
        return tuple(
            f"removal of {os.path.basename(trash)}: {error}"
            for trash, future in done
            if (error := future.exception()) is not None
        )

    def close(self) -> None:
        """End the thread once everything is deleted."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
