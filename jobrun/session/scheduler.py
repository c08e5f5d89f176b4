"""A ready-counter scheduler on threads of its own.

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

A worker that finishes a unit counts down its successors under the lock, and runs one that became
ready itself, without a queue in between; others go into ``ready``.  Workers are daemon threads, so
that leaving never waits for a task in C code; units never run on the caller's thread, so that
signals are always served.  The first worker is one and the same thread as long as the scheduler
lives: pinned units run on it, before others, so that objects bound to a thread are only used where
they were made.  The idea of the countdown is dask's ``local.py``; the single lock and the direct
hand-over are measured (``make bench``): 2 to 4 µs a unit against about 30 for ``graphlib`` with a
``ThreadPoolExecutor``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

__all__ = ["Dag", "Scheduler"]

Execute = Callable[[int], None]

_LOOK = 0.2
"""Seconds between two checks while the caller's thread waits.

A signal that comes just before the wait begins does not end it, and Python serves signals on that
thread alone.
"""


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
class _Run:
    """One run of a dag; see the module's docstring."""

    dag: Dag
    execute: Execute
    cut: Callable[[], bool]
    waits: list[int]
    done: bytearray
    skipped: set[int] = field(default_factory=set)
    ready: deque[int] = field(default_factory=deque)
    ready_first: deque[int] = field(default_factory=deque)
    left: int = 0
    running: int = 0
    stopping: bool = False
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)

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


class Scheduler:
    """Runs dags on ``threads`` daemon threads, one dag at a time."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._work_of_first = threading.Condition(self._lock)
        self._first_is_free = True
        """Whether the first worker will look for a unit, or waits and has not been woken.

        A unit is given to it before it is given to another idle worker, so that tasks of which one
        runs at a time stay on one thread: torch's OpenMP has a pool of threads for each thread that
        calls it, and with a second one an epoch of a small CNN took 110 ms instead of 58, on two
        cores.
        """
        self._run: _Run | None = None
        self._closed = False
        self._workers: list[threading.Thread] = []

    def run(
        self,
        dag: Dag,
        execute: Execute,
        done: Sequence[int],
        cut: Callable[[], bool],
        look: Callable[[], None] = lambda: None,
        skip: Sequence[int] = (),
        begun: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Run all units of ``dag`` but those ``done`` already; return the finished units.

        Once ``cut()`` is true no new unit starts.  ``look()`` is called a few times a second, on
        the caller's thread.  Units to ``skip`` do not run, nor do those that wait for one, even by
        an edge that is added during the run.  ``begun`` is called once ``arrived`` may be
        called.  Raises the error of the first unit that failed, once the running ones have ended,
        and RuntimeError after ``close``.
        """
        if self._closed:
            raise RuntimeError("this session is closed")
        run = self._new_run(dag, execute, done, cut, skip)
        if run.left and not cut():
            self._start_workers()
            with self._lock:
                self._run = run
                self._wake(run, len(run.ready) + len(run.ready_first))
            try:
                begun()
                if cut():  # requested since the check above
                    self.stop()
                while not run.over.wait(_LOOK):
                    look()
                    if cut():  # where all units wait for messages, no worker checks
                        self.stop()
            except BaseException as error:  # an interrupt on this thread: nothing new starts
                with self._lock:
                    self._halt(run, error)
                raise
            finally:
                with self._lock:
                    self._run = None
        if run.error is not None:
            raise run.error
        return [i for i, finished in enumerate(run.done) if finished]

    def _new_run(
        self,
        dag: Dag,
        execute: Execute,
        done: Sequence[int],
        cut: Callable[[], bool],
        skip: Sequence[int],
    ) -> _Run:
        waits = list(dag.waits)
        finished = bytearray(len(waits))
        for unit in done:
            finished[unit] = 1
            for other in dag.successors[unit]:
                waits[other] -= 1
        for unit in done:
            waits[unit] = -1  # so that no unit before it counts it down to 0
        run = _Run(dag, execute, cut, waits, finished)
        run.left = len(waits) - sum(finished)
        for unit in skip:
            run.skip(unit)
        for unit in [i for i, n in enumerate(waits) if n == 0]:
            run.offer(unit)
        return run

    def arrived(self, unit: int) -> None:
        """Count a message for a unit of the running dag; does nothing if no dag runs."""
        with self._lock:
            run = self._run
            if run is None:
                return
            run.waits[unit] -= 1
            if run.waits[unit] == 0 and self._may_start(run, unit):
                run.offer(unit)
                self._wake(run, 1)

    def stop(self) -> None:
        """Start no new unit, as after ``cut()``, also where none is running."""
        with self._lock:
            run = self._run
            if run is None:
                return
            if not run.stopping:
                self._stop(run)
            if run.running == 0 and not run.has_ready:
                run.over.set()

    def add_edge(self, before: int, after: int) -> None:
        """Order two units of the running dag; ``after`` must not have been started."""
        with self._lock:
            run = self._run
            assert run is not None
            run.dag.successors[before].append(after)
            run.dag.waits[after] += 1
            if before in run.skipped:
                run.skip(after)
            elif not run.done[before] and after not in run.skipped:
                run.waits[after] += 1

    def abandon(self, error: BaseException) -> None:
        """End the current run with an error, without waiting for the running units."""
        with self._lock:
            if self._run is not None:
                self._halt(self._run, error)
                self._run.over.set()

    def _start_workers(self) -> None:
        while len(self._workers) < self.threads:
            name = f"jobrun-{len(self._workers)}"
            is_first = not self._workers
            worker = threading.Thread(
                target=self._work_loop, args=(is_first,), name=name, daemon=True
            )
            self._workers.append(worker)
            worker.start()

    def close(self) -> None:
        """End the idle workers; one that is in a unit ends after it."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._work_of_first.notify()

    def _wake(self, run: _Run, units: int) -> None:
        """Wake workers for ``units`` units that became ready; the lock is held."""
        if self._first_is_free and run.has_ready:
            self._first_is_free = False
            self._work_of_first.notify()
            units -= 1
        self._work.notify(units)

    def _work_loop(self, is_first: bool) -> None:
        """Work until ``close``; what a task raises in this thread too late ends the run alone."""
        while True:
            try:
                if not self._serve(is_first):
                    return
            except BaseException as error:
                self.abandon(error)

    def _serve(self, is_first: bool) -> bool:
        """Wait for a unit and run it; return whether there may be another."""
        with self._lock:
            while (unit := self._take(is_first)) < 0:
                if self._closed:
                    return False
                if is_first:
                    self._first_is_free = True
                    self._work_of_first.wait()
                else:
                    self._work.wait()
            if is_first:
                self._first_is_free = False
            run = self._run
            assert run is not None
            run.running += 1
        self._work_on(run, unit, is_first)
        return True

    def _take(self, is_first: bool) -> int:
        return -1 if self._run is None else self._run.take(is_first)

    def _work_on(self, run: _Run, unit: int, is_first: bool) -> None:
        """Run ``unit`` and the units it makes ready, as long as there are some."""
        execute = run.execute
        while unit >= 0:
            try:
                execute(unit)
                unit = self._finish(run, unit, is_first)
            except BaseException as error:  # an error of a task, or one raised into this thread
                self._fail(run, error)
                return

    def _fail(self, run: _Run, error: BaseException) -> None:
        with self._lock:
            self._halt(run, error)
            self._leave(run)

    def _halt(self, run: _Run, error: BaseException) -> None:
        """Start nothing more; the lock is held."""
        run.error = run.error or error
        run.stopping = True
        run.ready.clear()
        run.ready_first.clear()

    def _finish(self, run: _Run, unit: int, is_first: bool) -> int:
        """Count a unit as finished; return the next one for this worker, or -1."""
        waits, pinned = run.waits, run.dag.pinned
        cut = run.cut()
        with self._lock:
            run.done[unit] = 1
            run.left -= 1
            if cut and not run.stopping:
                self._stop(run)
            following = -1
            offered = 0
            for other in run.dag.successors[unit]:
                waits[other] -= 1
                if waits[other] == 0 and self._may_start(run, other):
                    if following < 0 and (is_first or other not in pinned):
                        following = other
                    else:
                        run.offer(other)
                        offered += 1
            if is_first and following >= 0 and run.ready_first and following not in pinned:
                run.offer(following)  # others may run it: the pinned units wait for this worker
                following, offered = -1, offered + 1
            if offered:
                self._wake(run, offered)
            if following < 0:
                following = run.take(is_first)
            if following < 0:
                self._first_is_free |= is_first
                self._leave(run)
            return following

    def _stop(self, run: _Run) -> None:
        """Cut: of what is ready only bound units may still start; the lock is held."""
        run.stopping = True
        bound = [u for u in (*run.ready, *run.ready_first) if u in run.dag.bound]
        run.ready.clear()
        run.ready_first.clear()
        for unit in bound:
            run.offer(unit)

    def _may_start(self, run: _Run, unit: int) -> bool:
        return not run.stopping or (run.error is None and unit in run.dag.bound)

    def _leave(self, run: _Run) -> None:
        """Count this worker out of ``run``, where it has nothing more to do; the lock is held."""
        run.running -= 1
        if run.running <= 0 and not run.has_ready and (run.left == 0 or run.stopping):
            run.over.set()
