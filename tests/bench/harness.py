"""Measure contestants fairly on a machine that is not: interleaved, in random order, over rounds.

A ``Case`` is one piece of work, its ``Contestant``s are ways to do it.  In each round every
contestant works once, in a new random order, so that a busy spell of the machine meets all of them
alike.  Ratios are medians of the ratios *within* rounds; times are medians over rounds.

On disk each repetition gets a directory of its own.  Nothing is deleted before a case is measured,
unless the room for it is used up, and then only between rounds: many deletions slow down what is
created after them (ext4 without a journal passes over inodes that were freed minutes ago).
"""

from __future__ import annotations

import gc
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

__all__ = ["Case", "Contestant", "Measured", "Scale", "Wanted", "faster", "measure", "timed"]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much work: ``quick`` is a small fraction of the real sizes, for a look and for tests."""

    quick: bool = False

    def of(self, full: int, quick: int) -> int:
        """The size to use."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to do the work of a case.

    ``run(directory)`` works once and gives its seconds; what it prepares and checks is its own
    affair and not in them.  ``needs`` are modules without which it is left out, ``at_most`` limits
    the rounds of a slow one.
    """

    name: str
    run: Callable[[Path], float]
    needs: tuple[str, ...] = ()
    at_most: int | None = None

    @property
    def missing(self) -> list[str]:
        """The modules of ``needs`` that are not installed."""
        return [m for m in self.needs if not _installed(m)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A number to reach: ``value(measured)`` is to be at most ``limit``, or ``at_least`` it."""

    what: str
    value: Callable[[Measured], float]
    limit: float
    at_least: bool = False

    def reached(self, value: float) -> bool:
        """Whether ``value`` is as wanted."""
        return value >= self.limit if self.at_least else value <= self.limit


def faster(what: str, own: str, other: str, limit: float = 1.0) -> Wanted:
    """``own`` is to have at least ``limit`` times the speed of ``other``."""
    return Wanted(
        f"{what}: speed of {own} over that of {other}",
        lambda measured: measured.ratio(other, own),
        limit,
        at_least=True,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work: ``items`` of a kind named ``item``, and ``bytes`` in all if these count.

    Ratios are to ``reference``, and to ``floor``, the least that anybody could need.  ``warm`` runs
    everybody once before it counts.  ``disk`` is how many bytes a repetition leaves there; if any,
    each starts with a fresh directory on a disk that has nothing left to write.  ``unit`` is that
    of what a contestant gives: seconds, or ``MB``.
    """

    name: str
    contestants: Sequence[Contestant]
    reference: str
    floor: str
    items: int
    item: str
    rounds: int
    bytes: int = 0
    warm: bool = True
    disk: int = 0
    wanted: Sequence[Wanted] = ()
    unit: str = "s"


@dataclass(frozen=True)
class Measured:
    """The seconds of each contestant by round, and the modules missing of those that took no part.

    ``case`` has let go of its contestants, and so of what they prepared.
    """

    case: Case
    seconds: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, list[str]] = field(default_factory=dict)

    def median(self, name: str) -> float:
        """The median of a contestant's seconds."""
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times the seconds of ``other`` a contestant takes: the median over rounds."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=False)
        return statistics.median(own / theirs for own, theirs in pairs)

    def difference(self, name: str, other: str) -> float:
        """How much more than ``other`` a contestant takes: the median over rounds."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=False)
        return statistics.median(own - theirs for own, theirs in pairs)

    def micros(self, name: str) -> float:
        """The median in microseconds per item."""
        return self.median(name) / self.case.items * 1e6


def timed(call: Callable[[], object]) -> float:
    """The seconds of ``call()``; the garbage of whoever came before is collected first."""
    gc.collect()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(
    case: Case,
    directory: Path,
    rounds: int | None = None,
    seed: int = 0,
    room: float = math.inf,
) -> Measured:
    """Run all contestants of ``case`` for ``rounds`` (or the case's own number) rounds.

    ``directory`` is where the repetitions on disk get theirs.  They are made anew, and deleted only
    where another round would need more than ``room`` bytes in all.
    """
    missing = {c.name: c.missing for c in case.contestants if c.missing}
    present = [c for c in case.contestants if c.name not in missing]
    found = Measured(replace(case, contestants=()), {c.name: [] for c in present}, missing)
    places = _places(directory)
    if case.warm:
        for contestant in present:
            contestant.run(next(places))
    order = random.Random(seed)
    used = 0
    for number in range(rounds or case.rounds):
        running = [c for c in present if c.at_most is None or number < c.at_most]
        used = _make_room(directory, used, case.disk * len(running), room)
        for contestant in order.sample(running, len(running)):
            place = next(places)
            if case.disk:
                place.mkdir(parents=True)
                os.sync()
            found.seconds[contestant.name].append(contestant.run(place))
    return found


def _make_room(directory: Path, used: int, more: int, room: float) -> int:
    """The bytes used once the next round is over; all before it is deleted if they are too many."""
    if not used or used + more <= room:
        return used + more
    shutil.rmtree(directory)
    return more


def _places(directory: Path) -> Iterator[Path]:
    number = 0
    while True:
        yield directory / f"{number:04d}"
        number += 1


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False
