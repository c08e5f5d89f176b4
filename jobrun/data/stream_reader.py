"""A reader of streams: batches of a source that is read from front to back.

One batch is read ahead, since only that shows whether a pass has ended; it does not count as read.

Shuffling is within blocks of ``buffer`` rows: each is read whole and given in a permutation drawn
from (seed, pass, block).  After the first pass the first block has a random length, so that the
seams lie elsewhere in each pass; but not where the pass before had no more rows than a block, for
then all rows are permuted as one.  So a position needs no more than the row, and the number of rows
of the pass before: the block that holds it is read again.  (The usual shuffle buffer, which
replaces what it gives row by row, can only be restored by reading the pass from its beginning,
since a row may stay in it for any time.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from jobrun.core.position import ReaderState
from jobrun.data.reader import Batch, Limits, RowReader
from jobrun.data.source import Columns, Cursor, Slow, Stream, count_rows, finished
from jobrun.errors import DataError, TaskError
from jobrun.model.rows import SHUFFLE_IN_BLOCKS

__all__ = ["StreamReader"]

Draw = Callable[[int, int], np.random.Generator]
"""The generator of a pass and a block; block -1 draws the length of the first."""


class StreamReader(RowReader):
    """Reads batches of a stream; see the module."""

    def __init__(
        self,
        pipe: str,
        stream: Stream,
        limits: Limits,
        state: ReaderState,
        draw: Draw,
        slow: Slow,
        rewritten: Collection[str] = (),
    ) -> None:
        super().__init__(pipe, stream, limits, state, rewritten)
        if limits.shuffle and limits.buffer is None:
            raise DataError(
                f"pipe {pipe!r}: {stream.name} is read from front to back, so a pass over it "
                "cannot be shuffled as a whole",
                hint=SHUFFLE_IN_BLOCKS,
            )
        self.limits = limits
        self._stream = stream
        self._draw = draw
        self._slow = slow
        self._mark = state.mark
        self._pass_rows = None if stream.rows is not None else state.rows
        self._warned = False
        self._rows: _Rows | None = None
        self._ahead: _Ahead | None = None
        self._check_source()
        if self._row:
            self._fetch()
        self.begin()

    @property
    def state(self) -> ReaderState:
        """The position; of a source without a length, ``rows`` is that of the last pass."""
        known = {**self._expected.dtypes, **self._stream.dtypes}
        dtypes = {c: known[c] for c in self._stream.columns if c in known}
        return ReaderState(self._passes, self._row, self._known_rows, dtypes, self._mark)

    @property
    def _known_rows(self) -> int | None:
        """The rows of a pass: of the source, or of the last pass; None before the first ends."""
        return self._pass_rows if self._stream.rows is None else self._stream.rows

    def total(self, done: int) -> int | None:
        """Return how many batches this epoch has in all; None where that depends on the rows."""
        limits = self._limits
        if self.finished:
            return done
        if limits.batches_per_epoch is None or limits.passes is not None:
            return None
        return max(limits.batches_per_epoch, done)

    def next(self) -> Batch:
        """Return the next batch; raises what went wrong when it was read ahead."""
        if self._ahead is None:
            self._fetch()
        ahead = self._ahead
        assert ahead is not None
        if ahead.error is not None:
            raise ahead.error
        return Batch(ahead.rows, finished(ahead.columns))

    def applied(self) -> None:
        """Count the batch of the last ``next`` as read: it was applied."""
        assert self._ahead is not None
        self._row += self._ahead.moved
        self._mark = self._ahead.mark
        self._fetch()

    def close(self) -> None:
        """Close what is open."""
        if self._rows is not None:
            self._rows.cursor.close()
            self._rows = None

    def _fetch(self) -> None:
        """Read the next batch ahead, and end the pass where none is left."""
        try:
            self._ahead = self._read()
        except TaskError as error:
            self._ahead = _Ahead(error=error)
            return
        if self._ahead.rows and not self._short(self._ahead.rows):
            return
        if self._row == 0:
            self._ahead = _Ahead(error=self._nothing(self._ahead.rows))
            return
        self.close()
        self._compare_passes(self._row + self._ahead.moved)
        self._passes, self._row, self._mark, self._ahead = self._passes + 1, 0, None, None

    def _compare_passes(self, rows: int) -> None:
        """Warn, once, of a pass with another number of rows than the one before."""
        before, self._pass_rows = self._pass_rows, rows
        if before in (None, rows) or self._stream.rows is not None or self._warned:
            return
        self._warned = True
        self._slow(
            f"pass {self._passes + 1} of {self._stream.name} had {rows} rows, and the pass before "
            f"had {before}: rows are lost or read twice if its state is not exact ('resume: "
            "replay' reads it again from its beginning), or if it is not the same in each pass"
        )

    def _short(self, rows: int) -> bool:
        return self._limits.drop_last and rows < self._limits.batch

    def _nothing(self, rows: int) -> DataError:
        """Return the error of a pass without a batch."""
        index, count = self._limits.shard
        text = f"pipe {self._pipe!r}: "
        if rows:
            return DataError(
                f"{text}'drop_last' with a batch of {self._limits.batch} leaves nothing "
                f"of {rows} rows"
            )
        if count > 1:
            return DataError(f"{text}shard {index} of {count} has no rows of {self._stream.name}")
        return DataError(f"{text}{self._stream.name} has no rows")

    def _read(self) -> _Ahead:
        index, count = self._limits.shard
        if self._rows is None:
            self._rows = self._open()
        columns = self._rows.take(self._limits.batch * count)
        self._check_source()
        moved = count_rows(columns)
        own = columns if count == 1 else {c: a[index::count] for c, a in columns.items()}
        return _Ahead(count_rows(own), own, moved, self._rows.mark())

    def _open(self) -> _Rows:
        """Return the rows from the position on."""
        if self._limits.buffer is None or not self._limits.shuffle:
            return _Rows(self._stream.open(self._row, self._mark, self._slow))
        passes, size = self._passes, self._limits.buffer
        first = self._first_block(size)
        start = 0 if self._row < first else first + (self._row - first) // size * size
        cursor = self._stream.open(start, self._mark, self._slow)
        return _Shuffled(cursor, self._row, first, size, lambda block: self._draw(passes, block))

    def _first_block(self, size: int) -> int:
        """Return the rows of the first block of the pass, of at most ``size``."""
        rows = self._known_rows
        if self._passes == 0 or (rows is not None and rows <= size):
            return size
        return 1 + int(self._draw(self._passes, -1).integers(size))


class _Ahead:
    """A batch read ahead, or what went wrong: its rows, how far it moves the position, to where."""

    __slots__ = ("columns", "error", "mark", "moved", "rows")

    def __init__(
        self,
        rows: int = 0,
        columns: Columns | None = None,
        moved: int = 0,
        mark: Any = None,
        error: TaskError | None = None,
    ) -> None:
        self.rows = rows
        self.columns = columns or {}
        self.moved = moved
        self.mark = mark
        self.error = error


class _Rows:
    """Rows in the order of the source."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def take(self, count: int) -> Columns:
        """Return the next rows; fewer only at the end of the pass."""
        return self.cursor.read(count)

    def mark(self) -> Any:
        """Return the mark of where the source must be read from again."""
        return self.cursor.mark()


class _Shuffled(_Rows):
    """Rows permuted within blocks; the cursor stands at the beginning of the one of ``row``."""

    def __init__(
        self,
        cursor: Cursor,
        row: int,
        first: int,
        size: int,
        draw: Callable[[int], np.random.Generator],
    ) -> None:
        super().__init__(cursor)
        self._first = first
        self._size = size
        self._draw = draw
        offset = row - cursor.row
        self._load()
        self._used = offset

    def _load(self) -> None:
        start = self.cursor.row
        block = 0 if start < self._first else 1 + (start - self._first) // self._size
        self._mark = self.cursor.mark()
        columns = self.cursor.read(self._size if start else self._first)
        self._count = count_rows(columns)
        order = self._draw(block).permutation(self._count)
        self._columns = {c: a[order] for c, a in columns.items()}
        self._used = 0

    def take(self, count: int) -> Columns:
        """Return the next rows; fewer only at the end of the pass."""
        parts: list[Columns] = []
        while True:
            high = min(self._used + count, self._count)
            parts.append({c: a[self._used : high] for c, a in self._columns.items()})
            count -= high - self._used
            self._used = high
            if not count:
                break
            self._load()
            if not self._count:
                break
        if len(parts) == 1:
            return parts[0]
        return {c: np.concatenate([p[c] for p in parts]) for c in parts[0]}

    def mark(self) -> Any:
        """Return the mark of the block of the next row."""
        return self._mark if self._used < self._count else self.cursor.mark()
