"""Units that wait for one another, and one run of them: the state that a scheduler's threads share.

The state of a run:

- ``waits[i]``     number of units that unit ``i`` still waits for; 0: it may start
- ``ready``        units that may start and that no worker has taken
- ``ready_first``  those of them that are *pinned*: only the first worker takes them
- ``skipped``      units that are not to run, and those that wait for one
- ``left``         number of units that are neither finished nor skipped
- ``running``      number of workers that are in a unit
- ``stopping``     a cut: no new unit may start but those *bound* to one that has run
- ``error``        the first failure; then nothing starts any more

A unit may also wait for *messages*, from the processes that run the rest of the dag; each counts in
its ``waits`` until it has ``arrived``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

__all__ = ["Dag", "DagRun", "Execute"]

Execute = Callable[[int], None]
"""Runs a unit."""


@dataclass
class Dag:
    """Units by number: how many each waits for, and which wait for it.  Edges may be added.

    ``bound`` units belong to the unit in front of them: once that has run, they run too, before a
    cut.  ``pinned`` units run on the first worker.
    """

    waits: list[int]
    successors: list[list[int]]
    bound: frozenset[int] = frozenset()
    pinned: frozenset[int] = frozenset()

    def before(self) -> list[list[int]]:
        """Return the units that each waits for."""
        found: list[list[int]] = [[] for _ in self.waits]
        for unit, successors in enumerate(self.successors):
            for other in successors:
                found[other].append(unit)
        return found

    def order(self) -> list[int]:
        """Return each unit's place in the order of their numbers, as far as the edges allow."""
        waits, place = list(self.waits), [0] * len(self.waits)
        ready = [unit for unit, n in enumerate(waits) if n == 0]
        for number in range(len(waits)):
            unit = heappop(ready)
            place[unit] = number
            for other in self.successors[unit]:
                waits[other] -= 1
                if waits[other] == 0:
                    heappush(ready, other)
        return place


@dataclass
class DagRun:
    """One run of a dag; see the module's docstring.

    Its methods are called under the lock of the scheduler.
    """

    dag: Dag
    execute: Execute
    cut: Callable[[], bool]
    waits: list[int]
    look: Callable[[], None]
    halted: Callable[[], None]
    over: threading.Event | None
    """Set once it is over, if the caller waits for that; a loop takes part, and has none."""
    done: bytearray = field(init=False)
    skipped: set[int] = field(default_factory=set)
    ready: deque[int] = field(default_factory=deque)
    ready_first: deque[int] = field(default_factory=deque)
    left: int = 0
    running: int = 0
    stopping: bool = False
    error: BaseException | None = None
    is_over: bool = False

    def __post_init__(self) -> None:
        self.done = bytearray(len(self.waits))

    def begin(self, done: Sequence[int], skip: Sequence[int]) -> None:
        """Begin with units that are ``done``, and without those to ``skip``."""
        for unit in done:
            self.done[unit] = 1
            for other in self.dag.successors[unit]:
                self.waits[other] -= 1
        for unit in done:
            self.waits[unit] = -1  # so that no unit before it counts it down to 0
        self.left = len(self.waits) - sum(self.done)
        for unit in skip:
            self.skip(unit)
        for unit in [i for i, n in enumerate(self.waits) if n == 0]:
            self.offer(unit)

    def offer(self, unit: int) -> None:
        """Mark a unit as ready."""
        (self.ready_first if unit in self.dag.pinned else self.ready).append(unit)

    def skip(self, unit: int) -> None:
        """Skip a unit that has not been started, and all that wait for it."""
        found = [unit]
        while found:
            unit = found.pop()
            if unit not in self.skipped and not self.done[unit]:
                self.skipped.add(unit)
                self.left -= 1
                self.waits[unit] = -1  # so that no unit before it counts it down to 0
                found += self.dag.successors[unit]

    def take(self, is_first: bool) -> int:
        """Return a unit for a worker, which is the first or another; -1 if there is none for it."""
        if is_first and self.ready_first:
            return self.ready_first.popleft()
        return self.ready.popleft() if self.ready else -1

    @property
    def has_ready(self) -> bool:
        """Return whether some worker can take a unit."""
        return bool(self.ready or self.ready_first)

    def may_start(self, unit: int) -> bool:
        """Return whether a unit that has become ready may start, which a cut may forbid."""
        return not self.stopping or (self.error is None and unit in self.dag.bound)

    def stop(self) -> None:
        """Cut: of what is ready only bound units may still start."""
        self.stopping = True
        bound = [u for u in (*self.ready, *self.ready_first) if u in self.dag.bound]
        self.ready.clear()
        self.ready_first.clear()
        for unit in bound:
            self.offer(unit)

    def halt(self, error: BaseException) -> None:
        """Start nothing more."""
        self.error = self.error or error
        self.halted()
        self.stopping = True
        self.ready.clear()
        self.ready_first.clear()
