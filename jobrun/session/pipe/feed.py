"""Feeds for the ``do`` steps of a pipe: batches on which the ``map`` steps have run.

A batch is prepared either in turn, on the thread of the ``do`` steps, or ahead of them on threads;
those of a pipe with ``processes`` wait for a worker process each, to which small batches go in
groups.  The place in the data is that of the batches which were applied: batches that were read
ahead and not used do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from jobrun.core.position import ReaderState
from jobrun.data.reader import Batch, RowReader
from jobrun.session.current import TaskStoppedError
from jobrun.session.pipe.groups import Groups
from jobrun.session.pipe.map_steps import Prepared
from jobrun.session.pipe.prefetch import Ahead, Turns
from jobrun.values.boxes import leaves

__all__ = [
    "Feed",
    "InTurn",
    "Prepare",
    "PrepareGroup",
    "ReadAhead",
    "ReadAheadInGroups",
]

Prepare = Callable[[int, Batch], Prepared]
"""Runs the ``map`` steps on a batch and its number in the epoch."""

PrepareGroup = Callable[[Sequence[tuple[int, Batch]]], Iterator[Prepared]]
"""Runs them on several batches; yields them in order, and raises an error in its place."""

_Next = tuple[int, Batch, Callable[[], ReaderState], bool]
"""A batch that was read: its number, what makes the place after it, and whether it is the last."""

_Ready = tuple[Prepared, Callable[[], ReaderState], bool]
"""The same batch once the ``map`` steps have run."""

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
        """Return the next batch; None at the end, and if the run was cut meanwhile."""

    def applied(self) -> None:
        """Record that the batch of the last ``next`` was applied."""

    def close(self) -> None:
        """End all work for this feed."""


class InTurn:
    """A feed that reads and prepares batches on request, on the calling thread.

    With ``mapped``, ``map`` steps run on each when it is the next one; else those that were read
    together are prepared together.
    """

    def __init__(
        self, reader: RowReader, read: ReadFew, prepare: Prepare, first: int, *, mapped: bool
    ) -> None:
        self._reader = reader
        self._read = read
        self._prepare = prepare
        self._number = first
        self._mapped = mapped
        self._few: list[tuple[int, Batch]] = []
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
        if self._ready:
            return self._ready.pop()
        try:
            if not self._few:
                if self.ended:
                    return None
                self._few = [*enumerate(self._read(self._reader, self._number), self._number)]
                self._few.reverse()
            if self._mapped:
                return self._prepare(*self._few.pop())
            self._ready = [self._prepare(number, batch) for number, batch in self._few]
            self._few = []
        except TaskStoppedError:  # the run ends, and with it the program that had the batch
            return None
        return self._ready.pop()

    def applied(self) -> None:
        """See Feed."""
        self._reader.applied()
        self._number += 1

    def close(self) -> None:
        """See Feed."""


class _Prefetched:
    """The common base of the feeds that read ahead.

    Each batch travels with the reader's place after it, and with whether it is the last one of the
    epoch.
    """

    def __init__(self, reader: RowReader, first: int) -> None:
        self._state = self._next_state = reader.state_later()
        self.ended = self._is_last = not reader.more(first)

    @property
    def state(self) -> ReaderState:
        """See Feed."""
        return self._state()

    def applied(self) -> None:
        """See Feed."""
        self._state, self.ended = self._next_state, self._is_last


class ReadAhead(_Prefetched):
    """A feed that reads and prepares batches on ``threads`` threads, up to ``window`` ahead.

    Nothing more is read once ``cut()`` is true.  With ``turns`` the calling thread prepares batches
    itself while that takes less than to hand them over.
    """

    def __init__(
        self,
        reader: RowReader,
        read: ReadFew,
        prepare: Prepare,
        first: int,
        cut: Callable[[], bool],
        threads: int,
        window: int,
        turns: Turns | None,
    ) -> None:
        super().__init__(reader, first)
        self._ahead = Ahead(
            _batches(reader, read, first, cut),
            lambda item: (prepare(item[0], item[1]), item[2], item[3]),
            threads,
            window,
            turns,
        )

    def next(self) -> Prepared | None:
        """See Feed."""
        if self.ended:
            return None
        try:
            found = next(self._ahead, None)
        except TaskStoppedError:  # the run ends, and with it the program that had it
            return None
        if found is None:
            return None
        prepared, self._next_state, self._is_last = found
        return prepared

    def close(self) -> None:
        """See Feed."""
        self._ahead.close()


class ReadAheadInGroups(_Prefetched):
    """A feed that reads batches and has groups of them prepared, up to ``window`` groups ahead.

    ``threads`` threads wait for them.  Nothing more is read once ``cut()`` is true, or a batch has
    failed.
    """

    def __init__(
        self,
        reader: RowReader,
        read: ReadFew,
        prepare: PrepareGroup,
        first: int,
        cut: Callable[[], bool],
        threads: int,
        window: int,
        groups: Groups,
    ) -> None:
        super().__init__(reader, first)
        self._prepare = prepare
        self._groups = groups
        self._failed = False
        self._ready: list[_Ready] = []
        self._error: BaseException | None = None
        batches = _batches(reader, read, first, lambda: self._failed or cut())
        self._ahead = Ahead(groups.of(batches), self._work, threads, window)

    def next(self) -> Prepared | None:
        """See Feed."""
        try:
            if not self._ready and not self._take():
                return None
        except TaskStoppedError:  # the run ends, and with it the worker that had it
            return None
        prepared, self._next_state, self._is_last = self._ready.pop()
        return prepared

    def _take(self) -> bool:
        """Take the next group; return whether there is one.  Raises the error of a batch."""
        if self._error is not None:
            raise self._error
        found = next(self._ahead, None)
        if found is None:
            return False
        self._ready, self._error = found
        self._ready.reverse()
        return True

    def _work(self, group: Sequence[_Next]) -> tuple[list[_Ready], BaseException | None]:
        """Prepare a group; return its batches up to an error, and that."""
        began = time.perf_counter()
        ready: list[_Ready] = []
        error = None
        try:
            for prepared in self._prepare([(number, batch) for number, batch, _, _ in group]):
                ready.append((prepared, *group[len(ready)][2:]))
        except BaseException as failed:  # raised in its place, whatever it is
            if not ready:
                raise
            self._failed = True
            error = failed
        self._groups.took(len(group), time.perf_counter() - began, _size(ready[0][0]))
        return ready, error

    def close(self) -> None:
        """See Feed."""
        self._ahead.close()


def _batches(
    reader: RowReader, read: ReadFew, first: int, cut: Callable[[], bool]
) -> Iterator[_Next]:
    """Yield an epoch's batches, with number, the place after it, and whether it is the last."""
    number, more = first, reader.more(first)
    few: list[Batch] = []
    while more and not cut():
        if not few:
            few = read(reader, number)
            few.reverse()
        batch = few.pop()
        reader.applied()
        number += 1
        more = reader.more(number)
        yield number - 1, batch, reader.state_later(), not more


def _size(prepared: Prepared) -> int:
    """Return the bytes of the arrays of a batch."""
    columns = prepared[0].columns.values()
    return sum(b.value.nbytes for c in columns for _, b in leaves(c) if b.kind == "array")
