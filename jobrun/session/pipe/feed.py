"""Feeds for the ``do`` steps of a pipe: batches on which the ``map`` steps have run.

A batch is prepared either in turn, on the thread of the ``do`` steps, or ahead of them on threads;
those of a pipe with ``processes`` wait for a worker process each.  The place in the data is that of
the batches which were applied: batches that were read ahead and not used do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from jobrun.core.position import ReaderState
from jobrun.data.reader import Batch, RowReader
from jobrun.session.current import TaskStoppedError
from jobrun.session.pipe.prefetch import Ahead, Turns
from jobrun.session.stores import CallContext

__all__ = ["Feed", "InTurn", "Prepare", "Prepared", "ReadAhead"]

Prepared = tuple[CallContext, int]
"""A batch for the ``do`` steps: its columns, and the number of rows left in it."""

Prepare = Callable[[int, Batch], Prepared]
"""Runs the ``map`` steps on a batch and its number in the epoch."""


Read = Callable[[RowReader], Batch]
"""Reads the next batch of a reader."""

ReadFew = Callable[[RowReader, int], list[Batch]]
"""Reads one or more of the next batches; the number is of those applied in the epoch."""


class Feed(Protocol):
    """An iterator over the batches of an epoch, with the place in the data."""

    @property
    def state(self) -> ReaderState:
        """Return the place after the batches that were applied."""

    @property
    def ended(self) -> bool:
        """Return whether all batches of the epoch were applied."""

    def next(self) -> Prepared | None:
        """Return the next batch, unless it has ``ended``; None if the run was cut meanwhile."""

    def applied(self) -> None:
        """Record that the batch of the last ``next`` was applied."""

    def close(self) -> None:
        """End all work for this feed."""


class InTurn:
    """A feed that reads and prepares batches on request, on the calling thread."""

    def __init__(self, reader: RowReader, read: ReadFew, prepare: Prepare, first: int) -> None:
        self._reader = reader
        self._read = read
        self._prepare = prepare
        self._number = first
        self._ready: list[Prepared] = []

    @property
    def state(self) -> ReaderState:
        """See Feed."""
        return self._reader.state

    @property
    def ended(self) -> bool:
        """See Feed."""
        return not self._reader.more(self._number)

    def next(self) -> Prepared | None:
        """See Feed."""
        if not self._ready:
            try:
                few = enumerate(self._read(self._reader, self._number), self._number)
                self._ready = [self._prepare(number, batch) for number, batch in few]
            except TaskStoppedError:  # the run ends, and with it the program that had the batch
                return None
            self._ready.reverse()
        return self._ready.pop()

    def applied(self) -> None:
        """See Feed."""
        self._reader.applied()
        self._number += 1

    def close(self) -> None:
        """See Feed."""


class ReadAhead:
    """A feed that reads and prepares batches on ``threads`` threads, up to ``window`` ahead.

    Each batch travels with the reader's place after it, and with whether it is the last one of the
    epoch.  Nothing more is read once ``cut()`` is true.  With ``turns`` the calling thread prepares
    batches itself while that takes less than to hand them over.
    """

    def __init__(
        self,
        reader: RowReader,
        read: Read,
        prepare: Prepare,
        first: int,
        cut: Callable[[], bool],
        threads: int,
        window: int,
        turns: Turns | None,
    ) -> None:
        self.state = self._next_state = reader.state
        self.ended = self._is_last = not reader.more(first)
        self._ahead = Ahead(
            _batches(reader, read, first, cut),
            lambda item: (prepare(item[0], item[1]), item[2], item[3]),
            threads,
            window,
            turns,
        )

    def next(self) -> Prepared | None:
        """See Feed."""
        try:
            found = next(self._ahead, None)
        except TaskStoppedError:  # the run ends, and with it the program or worker that had it
            return None
        if found is None:
            return None
        prepared, self._next_state, self._is_last = found
        return prepared

    def applied(self) -> None:
        """See Feed."""
        self.state, self.ended = self._next_state, self._is_last

    def close(self) -> None:
        """See Feed."""
        self._ahead.close()


def _batches(
    reader: RowReader, read: Read, first: int, cut: Callable[[], bool]
) -> Iterator[tuple[int, Batch, ReaderState, bool]]:
    """Yield an epoch's batches, with number, the place after it, and whether it is the last."""
    number = first
    while reader.more(number) and not cut():
        batch = read(reader)
        reader.applied()
        number += 1
        yield number - 1, batch, reader.state, not reader.more(number)
