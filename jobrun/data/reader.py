"""A reader: the arithmetic of batches, and the position in the data.

A position is (whole passes, rows used of the current pass).  An epoch may cross the end of a pass;
a batch never does.  Only batches that were applied count as read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.data.sources import Columns, check_rows
from jobrun.errors import DataError
from jobrun.position import ReaderState

__all__ = ["Batch", "BatchReader", "Limits"]

Permutation = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Limits:
    """How a pipe reads, with all numbers known; see ``jobrun.job.Reader``."""

    batch: int
    shuffle: bool = False
    drop_last: bool = False
    batches_per_epoch: int | None = None
    passes: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the source: read-only arrays by column."""

    rows: int
    columns: Columns


class BatchReader:
    """Reads batches from ``columns``, from ``state`` on.

    ``permutation(pass)`` gives the order of the rows in a pass, for ``shuffle``.  ``next`` gives
    the next batch of the epoch, ``applied`` counts it as read.  Raises DataError for limits that
    cannot be, an empty source, and a source that is not the one of ``state``.
    """

    def __init__(
        self,
        pipe: str,
        columns: Columns,
        limits: Limits,
        state: ReaderState,
        permutation: Callable[[int], Permutation],
    ) -> None:
        self.rows = check_rows(columns, pipe)
        self._pipe = pipe
        self._columns = columns
        self._limits = limits
        self._permutation = permutation
        self._order: tuple[int, Permutation] | None = None
        self._dtypes = {c: a.dtype.str for c, a in columns.items()}
        self._check_limits()
        self._check_source(state)
        self._passes, self._row = self._normal(state.passes, state.row)

    def _check_limits(self) -> None:
        limits = self._limits
        for name in ("batch", "batches_per_epoch", "passes"):
            value = getattr(limits, name)
            if value is not None and value < 1:
                raise DataError(f"pipe {self._pipe!r}: {name} is {value}, but must be 1 or more")
        if limits.drop_last and self.rows < limits.batch:
            raise DataError(
                f"pipe {self._pipe!r}: 'drop_last' with a batch of {limits.batch} leaves nothing "
                f"of {self.rows} rows"
            )

    def _check_source(self, state: ReaderState) -> None:
        if state.rows is not None and state.rows != self.rows:
            raise DataError(
                f"pipe {self._pipe!r}: the source has {self.rows} rows, "
                f"but had {state.rows} when this run was saved",
                hint="bring the old data back, or start afresh with --fresh",
            )
        for column, dtype in state.dtypes.items():
            now = self._dtypes.get(column, dtype)
            if now != dtype:
                raise DataError(
                    f"pipe {self._pipe!r}: column {column!r} is of dtype {now}, "
                    f"but was {dtype} when this run was saved",
                    hint="bring the old data back, or start afresh with --fresh",
                )

    def _normal(self, passes: int, row: int) -> tuple[int, int]:
        """The position with a pass ended as soon as nothing of it is left to read."""
        left = self.rows - row
        if left <= 0 or (self._limits.drop_last and left < self._limits.batch):
            return passes + 1, 0
        return passes, row

    @property
    def state(self) -> ReaderState:
        """The position, with what is needed to know the source again."""
        return ReaderState(self._passes, self._row, self.rows, self._dtypes)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to read."""
        return self._limits.passes is not None and self._passes >= self._limits.passes

    def total(self, done: int) -> int:
        """How many batches this epoch has in all, ``done`` of which are applied."""
        size = self._limits.batch
        per_pass = self.rows // size if self._limits.drop_last else -(-self.rows // size)
        left = self.rows - self._row
        left_of_pass = left // size if self._limits.drop_last else -(-left // size)
        if self.finished:
            return done
        if self._limits.batches_per_epoch is None:
            return done + left_of_pass
        wanted = max(self._limits.batches_per_epoch, done)
        if self._limits.passes is None:
            return wanted
        left_in_all = left_of_pass + (self._limits.passes - self._passes - 1) * per_pass
        return min(wanted, done + left_in_all)

    def next(self) -> Batch:
        """The next batch; only while the epoch's ``total`` is not reached."""
        low = self._row
        high = min(low + self._limits.batch, self.rows)
        if self._limits.shuffle:
            chosen = self._pass_order()[low:high]
            columns = {c: _taken(a, chosen) for c, a in self._columns.items()}
        else:
            columns = {c: a[low:high] for c, a in self._columns.items()}
        return Batch(high - low, columns)

    def applied(self) -> None:
        """The batch of the last ``next`` was applied: it counts as read."""
        high = min(self._row + self._limits.batch, self.rows)
        self._passes, self._row = self._normal(self._passes, high)

    def _pass_order(self) -> Permutation:
        if self._order is None or self._order[0] != self._passes:
            self._order = (self._passes, self._permutation(self._passes))
        return self._order[1]


def _taken(array: npt.NDArray[Any], rows: Permutation) -> npt.NDArray[Any]:
    chosen = np.take(array, rows, axis=0)
    chosen.setflags(write=False)
    return chosen
