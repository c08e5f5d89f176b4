"""The batches of a run, counted along the graph of its units.

A unit begins with the largest count that the units before it have ended with, and a pipe adds its
own batches.  So the counts, and the places at which ``checkpoint.every.batches`` cuts a run, depend
on the job alone: each pipe is held after as many batches, and what lies behind them is not begun,
while everything else runs on until nothing is left to do.  A sum over all pipes would depend on the
threads: which pipe was how far when the sum was reached.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from jobrun.session.base import Control

__all__ = ["BatchCounts"]


class BatchCounts:
    """The counts of one run, by unit.

    ``before`` has the units that each waits for, as far as they are here.  ``limit`` is the count
    from which on nothing begins (None: no limit), but for ``bound`` units, which belong to the one
    in front of them.  ``held`` are the units that were not begun, or not ended, because of it.
    """

    def __init__(
        self, before: Sequence[Collection[int]], bound: Collection[int], limit: int | None
    ) -> None:
        self._before = before
        self._bound = bound
        self._limit = limit
        self._counts = [0] * len(before)
        self.held: set[int] = set()

    @property
    def longest(self) -> int:
        """The largest count so far."""
        return max(self._counts, default=0)

    def count(self, unit: int) -> int:
        """Return the count of a unit that has begun, or has ended."""
        return self._counts[unit]

    def elsewhere(self, unit: int, count: int, *, held: bool) -> None:
        """Record that a unit of another process, which ``unit`` waits for, has ended or is held."""
        self._counts[unit] = max(count, self._counts[unit])
        if held:
            self.held.add(unit)

    def begin(self, unit: int) -> bool:
        """Return whether a unit may begin, since those before it have ended; else it is held."""
        before = self._before[unit]
        count = max((self._counts[n] for n in before), default=0)
        count = self._counts[unit] = max(count, self._counts[unit])
        if self._limit is None:
            return True
        held = unit in self.held or not self.held.isdisjoint(before)
        if (count < self._limit or unit in self._bound) and not held:
            return True
        self.held.add(unit)
        return False

    def control(self, unit: int, control: Control) -> Control:
        """Return the control of a pipe that runs as ``unit``: it counts, and is held in time."""
        first, counts, limit = self._counts[unit], self._counts, self._limit

        def applied(count: int) -> None:
            counts[unit] = first + count
            control.applied(first + count)

        if limit is None:
            return replace(control, applied=applied)
        cut = control.cut
        return replace(control, applied=applied, cut=lambda: counts[unit] >= limit or cut())

    def is_full(self, unit: int) -> bool:
        """Return whether a pipe that runs as ``unit`` has applied all batches that it may."""
        return self._limit is not None and self._counts[unit] >= self._limit
