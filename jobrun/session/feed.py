"""What feeds the ``do`` steps of a pipe: batches with their ``map`` steps done.

Either in turn, on the thread of the ``do`` steps, or ahead of them on threads.  The place in the
data is that of the batches which were applied: what was read ahead and not used does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from jobrun.data.reader import Batch, BatchReader
from jobrun.position import ReaderState
from jobrun.session.ahead import Ahead
from jobrun.session.call import Moment

__all__ = ["Feed", "InTurn", "Prepare", "Prepared", "ReadAhead"]

Prepared = tuple[Moment, int]
"""A batch for the ``do`` steps: its columns, and how many rows are left of it."""

Prepare = Callable[[int, Batch], Prepared]
"""Runs the ``map`` steps on a batch, which is given with its number in the epoch."""


class Feed(Protocol):
    """Gives the batches of an epoch, one after another."""

    @property
    def state(self) -> ReaderState:
        """The place after the batches that were applied."""

    def next(self) -> Prepared | None:
        """The next batch; None if the run was cut while it was waited for."""

    def applied(self) -> None:
        """The batch of the last ``next`` was applied."""

    def close(self) -> None:
        """End what is running for this feed."""


class InTurn:
    """Each batch is read and prepared when it is wanted, on the thread that wants it."""

    def __init__(self, reader: BatchReader, prepare: Prepare, first: int) -> None:
        self._reader = reader
        self._prepare = prepare
        self._number = first

    @property
    def state(self) -> ReaderState:
        """See Feed."""
        return self._reader.state

    def next(self) -> Prepared:
        """See Feed."""
        return self._prepare(self._number, self._reader.next())

    def applied(self) -> None:
        """See Feed."""
        self._reader.applied()
        self._number += 1

    def close(self) -> None:
        """See Feed."""


class ReadAhead:
    """Batches are read and prepared on ``threads`` threads, up to ``window`` ahead.

    Each travels with the reader's place after it.  Nothing more is read once ``cut()`` is true.
    """

    def __init__(
        self,
        reader: BatchReader,
        prepare: Prepare,
        batches: range,
        cut: Callable[[], bool],
        threads: int,
        window: int,
    ) -> None:
        self.state = self._next_state = reader.state
        self._ahead = Ahead(
            _read(reader, batches, cut),
            lambda item: (prepare(item[0], item[1]), item[2]),
            threads,
            window,
        )

    def next(self) -> Prepared | None:
        """See Feed."""
        found = next(self._ahead, None)
        if found is None:
            return None
        prepared, self._next_state = found
        return prepared

    def applied(self) -> None:
        """See Feed."""
        self.state = self._next_state

    def close(self) -> None:
        """See Feed."""
        self._ahead.close()


def _read(
    reader: BatchReader, batches: range, cut: Callable[[], bool]
) -> Iterator[tuple[int, Batch, ReaderState]]:
    """The batches of an epoch with their numbers, each with the reader's place after it."""
    for number in batches:
        if cut():
            return
        batch = reader.next()
        reader.applied()
        yield number, batch, reader.state
