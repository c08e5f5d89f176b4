"""Readers: the arithmetic of batches, and the position in the data.

A position is (whole passes, rows used of the current pass).  An epoch may cross the end of a pass;
a batch never does.  Only batches that were applied count as read.

Of ``n`` shards, shard ``i`` reads rows ``row + i``, ``row + i + n``, … from the position on, and a
batch of it moves the position by ``n`` times as many rows.  So all shards that have applied as many
batches stand at one position, from which any other number of shards can continue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from jobrun.core.position import ReaderState
from jobrun.data.order import Walk
from jobrun.data.source import Columns, Permutation, Source, Table
from jobrun.errors import DataError

__all__ = ["Batch", "BatchReader", "Limits", "RowReader"]

Order = Permutation | Walk
_SMALL_COPY = 64 << 10
"""Bytes that are gathered within about 20 µs, which is what it takes to hand a batch over."""
_FEW = 16
"""Batches that are read at once: code runs several times faster again than between two steps."""
_FEW_BYTES = 256 << 10
"""The bytes of these, at most, which stay in the cache of a core."""
_OTHER_DATA = "restore the old data, or start over with --fresh"
_OTHER_PASS = (
    "all of a pass is read from one length and dtype: write other ones where a pass ends, "
    "as each epoch does without 'batches_per_epoch'"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """The way a pipe reads, with all numbers known; see ``jobrun.model.rows.Reader``.

    ``shard`` is (which one, from 0; of how many).  ``buffer`` is for shuffling in blocks of N
    rows.
    """

    batch: int
    shuffle: bool = False
    drop_last: bool = False
    batches_per_epoch: int | None = None
    passes: int | None = None
    buffer: int | None = None
    shard: tuple[int, int] = (0, 1)


class Batch(NamedTuple):
    """Rows of the source: read-only arrays by column.

    A named tuple, which is created in a third of the time of a frozen dataclass.
    """

    rows: int
    columns: Columns


class RowReader(ABC):
    """Reads batches of a source from a position on.

    ``next`` gives the next batch of the epoch, while there is ``more``; ``applied`` counts it as
    read.  ``rewritten`` names the columns of blobs that the epochs write: between two passes these
    may come with other dtypes, and the source with another length.  Raises DataError for limits
    that cannot be, and for a source that is not the one of ``state``.
    """

    def __init__(
        self,
        pipe: str,
        source: Source,
        limits: Limits,
        state: ReaderState,
        rewritten: Collection[str] = (),
    ) -> None:
        self._pipe = pipe
        self._limits = limits
        self._source = source
        self._rewritten = frozenset(rewritten)
        self._expected = self._expectation(state)
        self._passes, self._row = state.passes, state.row
        self._begun_in = state.passes
        self._check_limits()

    def _check_limits(self) -> None:
        limits = self._limits
        for name in ("batch", "batches_per_epoch", "passes", "buffer"):
            value = getattr(limits, name)
            if value is not None and value < 1:
                raise DataError(f"pipe {self._pipe!r}: {name} is {value}, but must be 1 or more")
        index, count = limits.shard
        if not 0 <= index < count:
            raise DataError(
                f"pipe {self._pipe!r}: there is no shard {index} of {count}",
                hint="they are counted from 0",
            )

    def _expectation(self, state: ReaderState) -> ReaderState:
        """Return the state without what may differ where a pass begins."""
        if state.row or not self._rewritten:
            return state
        dtypes = {c: d for c, d in state.dtypes.items() if c not in self._rewritten}
        return replace(state, rows=None, dtypes=dtypes)

    def _check_source(self) -> None:
        """Raise DataError if the source has not the length and dtypes that it had."""
        rows, expected = self._source.rows, self._expected
        if rows is not None and expected.rows not in (None, rows):
            raise self._changed(
                f"the source has {rows} rows, but had {expected.rows}",
                bool(self._rewritten),
            )
        for column, dtype in expected.dtypes.items():
            now = self._source.dtypes.get(column, dtype)
            if now != dtype:
                raise self._changed(
                    f"column {column!r} is of dtype {now}, but was {dtype}",
                    column in self._rewritten,
                )

    def _changed(self, text: str, in_pass: bool) -> DataError:
        """Return the error of a source that is another one: within a pass, or since a save."""
        when = "when this pass began" if in_pass else "when this run was saved"
        hint = _OTHER_PASS if in_pass else _OTHER_DATA
        return DataError(f"pipe {self._pipe!r}: {text} {when}", hint=hint)

    def begin(self) -> None:
        """Begin or continue an epoch at the position."""
        self._begun_in = self._passes

    @property
    @abstractmethod
    def state(self) -> ReaderState:
        """The position, with what is needed to know the source again."""

    def state_later(self) -> Callable[[], ReaderState]:
        """Return what makes the state of now, when it is asked for.

        Few of the states that a feed ahead passes on are: to make one takes as long as to read a
        small batch.
        """
        state = self.state
        return lambda: state

    @property
    def finished(self) -> bool:
        """Whether nothing is left to read."""
        return self._limits.passes is not None and self._passes >= self._limits.passes

    @property
    def light(self) -> bool:
        """Whether reading a batch is less work than to have another thread do it."""
        return False

    def more(self, done: int) -> bool:
        """Return whether the epoch has more batches than ``done``."""
        limits, passes = self._limits, self._passes
        if limits.passes is not None and passes >= limits.passes:
            return False
        wanted = limits.batches_per_epoch
        return passes == self._begun_in if wanted is None else done < wanted

    @abstractmethod
    def total(self, done: int) -> int | None:
        """Return how many batches this epoch has in all, ``done`` of which are applied.

        None if that is unknown.
        """

    @abstractmethod
    def next(self) -> Batch:
        """Return the next batch; only while the epoch has ``more``."""

    def next_few(self, done: int) -> list[Batch]:
        """Return one or more of the next batches of the epoch, of which ``done`` are applied.

        Several where they are small parts of arrays in memory.
        """
        return [self.next()]

    @abstractmethod
    def applied(self) -> None:
        """Count the batch of the last ``next`` as read: it was applied."""


class BatchReader(RowReader):
    """Reads batches of a table; ``permutation(pass)`` orders the rows of one, for ``shuffle``."""

    def __init__(
        self,
        pipe: str,
        table: Table,
        limits: Limits,
        state: ReaderState,
        permutation: Callable[[int], Order],
        rewritten: Collection[str] = (),
    ) -> None:
        super().__init__(pipe, table, limits, state, rewritten)
        self.rows = table.rows
        self._table = table
        self._permutation = permutation
        self._order: tuple[int, Order] | None = None
        self._index, self._step = limits.shard
        self._stride = limits.batch * self._step
        least = limits.batch if limits.drop_last else 1
        self._needs = self._index + (least - 1) * self._step + 1
        self._check_share()
        self._check_source()
        self._passes, self._row = self._normal(state.passes, state.row)
        self._few = self._most_at_once()
        self.begin()

    def _most_at_once(self) -> int:
        """Return how many batches are read at once."""
        size = self._table.row_bytes
        if size is None:
            return 1
        return max(1, min(_FEW, _FEW_BYTES // max(1, size * self._limits.batch)))

    def _check_share(self) -> None:
        limits, share = self._limits, self._share(0)
        if limits.drop_last and share < limits.batch:
            raise DataError(
                f"pipe {self._pipe!r}: 'drop_last' with a batch of {limits.batch} leaves nothing "
                f"of {share} rows"
            )
        if share == 0:
            index, count = limits.shard
            raise DataError(
                f"pipe {self._pipe!r}: shard {index} of {count} has none of {self.rows} rows"
            )

    def _share(self, row: int) -> int:
        """Return how many rows of the pass are left for this shard, from position ``row`` on."""
        return max(0, -(-(self.rows - row - self._index) // self._step))

    def _normal(self, passes: int, row: int) -> tuple[int, int]:
        """Return the position with a pass ended as soon as nothing of it is left to read."""
        return (passes, row) if row + self._needs <= self.rows else (passes + 1, 0)

    @property
    def state(self) -> ReaderState:
        """The position, with what is needed to know the source again."""
        return ReaderState(self._passes, self._row, self.rows, self._table.dtypes)

    def state_later(self) -> Callable[[], ReaderState]:
        """See RowReader."""
        passes, row = self._passes, self._row
        return lambda: ReaderState(passes, row, self.rows, self._table.dtypes)

    @property
    def light(self) -> bool:
        """Whether a batch is a view of arrays in memory, or a small copy."""
        size = self._table.row_bytes
        is_view = not self._limits.shuffle and self._step == 1
        return size is not None and (is_view or size * self._limits.batch <= _SMALL_COPY)

    def total(self, done: int) -> int:
        """Return how many batches this epoch has in all, ``done`` of which are applied."""
        per_pass, left_of_pass = (
            self._batches(self._share(0)),
            self._batches(self._share(self._row)),
        )
        if self.finished:
            return done
        if self._limits.batches_per_epoch is None:
            return done + left_of_pass
        wanted = max(self._limits.batches_per_epoch, done)
        if self._limits.passes is None:
            return wanted
        left_in_all = left_of_pass + (self._limits.passes - self._passes - 1) * per_pass
        return min(wanted, done + left_in_all)

    def _batches(self, rows: int) -> int:
        size = self._limits.batch
        return rows // size if self._limits.drop_last else -(-rows // size)

    def next(self) -> Batch:
        """Return the next batch; only while the epoch has ``more``."""
        return self._at(self._row)

    def next_few(self, done: int) -> list[Batch]:
        """Return one or more of the next batches of the epoch, of which ``done`` are applied."""
        few = min(self._few, self._batches(self._share(self._row)))
        if self._limits.batches_per_epoch is not None:
            few = min(few, self._limits.batches_per_epoch - done)
        return [self._at(self._row + number * self._stride) for number in range(few)]

    def _at(self, row: int) -> Batch:
        """Return the batch at the position ``row`` of this pass."""
        low, high = row + self._index, min(row + self._stride, self.rows)
        step = self._step
        if self._limits.shuffle:
            columns = self._table.take(self._pass_order()[low:high:step])
        else:
            columns = self._table.slice(low, high, step)
        return Batch(-(-(high - low) // step), columns)

    def applied(self) -> None:
        """Count the batch of the last ``next`` as read: it was applied."""
        self._row += self._stride
        if self._row + self._needs > self.rows:  # nothing of the pass is left
            self._passes, self._row = self._passes + 1, 0

    def _pass_order(self) -> Order:
        if self._order is None or self._order[0] != self._passes:
            self._order = (self._passes, self._permutation(self._passes))
        return self._order[1]
