"""Groups of batches, which are handed over together, as large as their measured time suggests.

To hand something to another process costs both about 100 µs, much of it to wake each other up; to
hand it on within this one costs a few.  So batches that take less time travel together.  How many
do so depends on time, and nothing else does: each batch is prepared by itself, in its place.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["Groups"]

Item = TypeVar("Item")

_SECONDS = 2e-3
"""Seconds of work of a group, at most, unless one batch takes longer."""
_MOST = 64
"""Batches of a group: with a step that does nothing a batch of 4 KiB takes 30 µs with 16, 27 with
32, 22 with 64."""
_BYTES = 256 << 10
"""The bytes of the batches of a group, at most, unless one batch has more."""


class Groups:
    """The size of groups, for one epoch after another."""

    def __init__(self) -> None:
        self._wanted = 1
        self._most = 1

    def begin(self, window: int, ahead: int | None, *, single: bool) -> int:
        """Begin an epoch; return how many groups may be ahead of the consumer.

        These are ``window``; or as many as make ``ahead`` batches, if that is given, which also
        limits their size.  ``single``: no group has two batches, since to read the second one may
        have to wait for what is done with the first.
        """
        self._most = 1 if single else _MOST
        if ahead is None:
            return window
        self._most = max(1, min(self._most, self._wanted, (ahead + 1) // (window + 1)))
        return (ahead + 1) // self._most - 1  # the consumer holds a group, too

    def of(self, items: Iterable[Item]) -> Iterator[list[Item]]:
        """Yield all items in groups; an error of ``items`` is raised after those before it."""
        left, error = iter(items), None
        while error is None:
            group: list[Item] = []
            try:
                self._fill(group, left)
            except BaseException as failed:  # the consumer raises it, whatever it is
                error = failed
            if group:
                yield group
            elif error is None:
                return
        raise error

    def _fill(self, group: list[Item], items: Iterator[Item]) -> None:
        """Add items to a group until it is full, or has waited for them as long as it may take."""
        most, end = min(self._wanted, self._most), time.perf_counter() + _SECONDS
        for item in items:
            group.append(item)
            if len(group) >= most or time.perf_counter() >= end:
                return

    def took(self, batches: int, seconds: float, size: int) -> None:
        """Record the time that a group of ``batches`` took, and the bytes of one of them."""
        by_time = int(_SECONDS * batches / max(seconds, 1e-9))
        self._wanted = max(1, min(by_time, 2 * batches, _BYTES // max(size, 1), _MOST))
