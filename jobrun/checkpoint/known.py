"""The checkpoints of a run as its writer knows them, so that a save costs the same beside 10,000.

Listing a directory of 10,000 checkpoints takes longer than a small save: measured, 17.7 ms a save
with three listings, 4.0 beside a few checkpoints.  The writer holds the lock of the run, so what it
adds and removes is all that changes.  Whoever changes something by hand is noticed all the same: a
small directory is listed at each save, a large one once a second.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.record import MAX_ID, Record
from jobrun.errors import JobrunError

__all__ = ["KnownCheckpoints"]

_SMALL = 100
"""Checkpoints up to which the directory is listed each time: 0.1 ms."""
_FRESH = 1.0
"""Seconds for which the listing of a larger directory is used."""


class KnownCheckpoints:
    """The ids and records of a run's checkpoints, used under the lock by one thread at a time."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._ids: list[int] = []  # rising
        self._above = 0
        self._listed = -math.inf
        self._records: dict[int, Record] = {}  # of listed ones; a checkpoint never changes
        self._whole: set[int] = set()

    def forget(self) -> None:
        """List the directory again at the next call: something else may have changed it."""
        self._listed = -math.inf

    def saved(self, record: Record) -> None:
        """Add a checkpoint that was just saved: it need not be checked."""
        self._ids.append(record.id)
        self._above = record.id + 1
        self._records[record.id] = record
        self._whole.add(record.id)

    def removed(self, id: int) -> None:
        """Take out a checkpoint that has lost its name."""
        place = bisect_left(self._ids, id)
        if self._ids[place : place + 1] == [id]:
            del self._ids[place]
        self._records.pop(id, None)
        self._whole.discard(id)

    def next_id(self, floor: int) -> int:
        """Return an id as ``Catalog.next_id`` does; raises what it does."""
        self._refresh()
        id = max(floor, self._above)
        return id if id <= MAX_ID else self._catalog.next_id(floor)

    def newest_ids(self, count: int) -> list[int]:
        """Return the highest ids, at most ``count``, rising, of checkpoints whole or not."""
        if self._listed == -math.inf:
            self._refresh()
        return self._ids[-count:]

    def records(self) -> list[Record]:
        """Return the records of the listed checkpoints, by rising id."""
        self._refresh()
        for id in self._ids:
            if id not in self._records:
                try:
                    self._records[id] = self._catalog.record(id)
                except JobrunError:
                    continue
        return [self._records[id] for id in self._ids if id in self._records]

    def is_whole(self, id: int) -> bool:
        """Return whether a checkpoint is whole; one that was is not checked again."""
        if id not in self._whole and self._catalog.is_whole(id):
            self._whole.add(id)
        return id in self._whole

    def _refresh(self) -> None:
        now = time.monotonic()
        if len(self._ids) > _SMALL and now - self._listed < _FRESH:
            return
        self._ids, self._above = self._catalog.ids_and_next()
        self._listed = now
        for id in self._records.keys() - set(self._ids):
            self.removed(id)
