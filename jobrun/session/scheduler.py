"""A ready-counter scheduler on threads of its own; ``dag_run`` has the state of a run.

A worker that finishes a unit counts down its successors under the lock, and runs one that became
ready itself, without a queue in between; others go into ``ready``.  Workers are daemon threads, so
that leaving never waits for a task in C code; units never run on the main thread, so that signals
are always served.  The first worker is one and the same thread as long as the scheduler
lives: pinned units run on it, before others, so that objects bound to a thread are only used where
they were made.  The idea of the countdown is dask's ``local.py``; the single lock and the direct
hand-over are measured (``make bench``): 2 to 4 µs a unit against about 30 for ``graphlib`` with a
``ThreadPoolExecutor``.

A *loop* of runs (``run_loop``) is itself on the first worker, which takes part in each of them: to
hand a run over to an idle thread, and its end back, takes 90 µs on a virtual machine whose cores
sleep meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field

from jobrun.session.dag_run import Dag, DagRun, Execute

__all__ = ["Scheduler"]

_LOOK = 0.2
"""Seconds between two checks while the caller's thread waits.

A signal that comes just before the wait begins does not end it, and Python serves signals on that
thread alone.
"""
_SOON = 0.01
"""Seconds between two checks whether a loop that is to end has come to do so."""


def _nothing() -> None:
    """Do nothing."""


@dataclass
class _Loop:
    """A function that runs a dag again and again, and its error.

    ``left``: its caller does not wait for its end, so that no further run of it may begin.
    """

    function: Callable[[], None]
    begun: bool = False
    left: bool = False
    error: BaseException | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Call the function."""
        self.begun = True
        try:
            self.function()
        except BaseException as error:
            self.error = self.error or error
        self.over.set()

    def leave(self, error: BaseException) -> None:
        """Let the caller raise ``error`` at once."""
        self.left = True
        self.error = self.error or error
        self.over.set()


class _LeftError(Exception):
    """Ends a loop whose caller has left it."""


class Scheduler:
    """Runs dags on ``threads`` daemon threads, one dag at a time.

    Each thread begins with the context variables of the thread that made the scheduler: what a
    module of the job sets when it is imported (``np.seterr``) holds for all of its tasks.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._context = copy_context()
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
        self._run: DagRun | None = None
        self._loop: _Loop | None = None
        self._looking = threading.Lock()
        """Held while the caller of a loop looks at a run of it, which does not end meanwhile."""
        self._closed = False
        self._workers: list[threading.Thread] = []

    def run(
        self,
        dag: Dag,
        execute: Execute,
        done: Sequence[int],
        cut: Callable[[], bool],
        look: Callable[[], None] = _nothing,
        skip: Sequence[int] = (),
        begun: Callable[[], None] = _nothing,
        halted: Callable[[], None] = _nothing,
    ) -> list[int]:
        """Run all units of ``dag`` but those ``done`` already; return the finished units.

        Once ``cut()`` is true no new unit starts.  ``look()`` is called a few times a second, on
        the thread of the caller, or of that of the loop which calls this; ``halted()`` once an
        error ends the run, maybe before the running units have ended.  Units to ``skip`` do not
        run, nor do those that wait for one, even by an edge that is added during the run.
        ``begun`` is called once ``arrived`` may be called.  Raises the error of the first unit that
        failed, once the running ones have ended, and RuntimeError after ``close``.
        """
        if self._closed:
            raise RuntimeError("this session is closed")
        loop = self._loop if self._workers[:1] == [threading.current_thread()] else None
        over = threading.Event() if loop is None else None
        run = DagRun(dag, execute, cut, [*dag.waits], look, halted, over)
        run.begin(done, skip)
        if run.left and not cut():
            self._start_workers()
            self._run_units(run, begun, loop)
            if loop is not None and loop.left:
                raise _LeftError
        if run.error is not None:
            raise run.error
        return [i for i, finished in enumerate(run.done) if finished]

    def _run_units(self, run: DagRun, begun: Callable[[], None], loop: _Loop | None) -> None:
        """Run the units of ``run``; in a ``loop``, the caller's thread is the first worker."""
        try:
            self._begin(run, loop)
            begun()
            if run.cut():  # requested since the check before
                self.stop()
            if run.over is None:
                self._take_part(run)
            else:
                while not run.over.wait(_LOOK):
                    self._look_at(run)
        except BaseException as error:  # an interrupt on this thread: nothing new starts
            with self._lock:
                run.halt(error)
            raise
        finally:
            with self._looking, self._lock:
                if self._run is run:  # else the caller of a loop has left it, and begun another
                    self._run = None

    def _begin(self, run: DagRun, loop: _Loop | None) -> None:
        """Make ``run`` the current one, and wake workers for it."""
        units = len(run.ready) + len(run.ready_first)
        with self._lock:
            if loop is None:
                self._run = run
                self._wake(run, units)
            elif loop.left:
                raise _LeftError
            else:
                self._run = run
                if units > 1:
                    self._work.notify(units - 1)  # the first worker takes one itself

    def _take_part(self, run: DagRun) -> None:
        """Work as the first worker until ``run`` is over."""
        while True:
            with self._lock:
                while (unit := run.take(True)) < 0:
                    if run.is_over:
                        return
                    self._first_is_free = True
                    self._work_of_first.wait()
                self._first_is_free = False
                run.running += 1
            self._work_on(run, unit, True)

    def _look_at(self, run: DagRun) -> None:
        run.look()
        if run.cut():  # where all units wait for messages, no worker checks
            self.stop()

    def run_loop(self, function: Callable[[], None], look: Callable[[], None]) -> None:
        """Run ``function``, which calls ``run`` again and again, on the first worker.

        ``look()`` is called a few times a second on the caller's thread, and so is that of the
        current run.  Raises what ``function`` raises.  After ``abandon``, and an interrupt on the
        caller's thread, it does not wait for a running unit; the loop ends with that one.
        """
        if self._closed:
            raise RuntimeError("this session is closed")
        self._start_workers()
        loop = _Loop(function)
        with self._lock:
            self._loop = loop
            self._work_of_first.notify()
        try:
            while not loop.over.wait(_LOOK):
                look()
                with self._looking:
                    if self._run is not None:
                        self._look_at(self._run)
        except BaseException as error:  # an interrupt on this thread
            self._leave(loop, error)
            raise
        with self._lock:
            self._loop = None
        if loop.error is not None:
            raise loop.error

    def _leave(self, loop: _Loop, error: BaseException) -> None:
        """Let a loop end, and wait for what it does between two runs, but not for running units."""
        with self._lock:
            loop.left = True
            if self._run is not None:
                self._run.halt(error)
        while self._run is None and not loop.over.wait(_SOON):
            pass

    def arrived(self, unit: int) -> None:
        """Count a message for a unit of the running dag; does nothing if no dag runs."""
        with self._lock:
            run = self._run
            if run is None:
                return
            run.waits[unit] -= 1
            if run.waits[unit] == 0 and run.may_start(unit):
                run.offer(unit)
                self._wake(run, 1)

    def stop(self) -> None:
        """Start no new unit, as after ``cut()``, also where none is running."""
        with self._lock:
            run = self._run
            if run is None:
                return
            if not run.stopping:
                run.stop()
            if run.running == 0 and not run.has_ready:
                self._end(run)

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
        """End the current run, and the loop of it, without waiting for the running units."""
        with self._lock:
            if self._run is not None:
                self._run.halt(error)
                self._end(self._run)
                if self._loop is not None:
                    self._loop.leave(error)

    def _start_workers(self) -> None:
        while len(self._workers) < self.threads:
            name = f"jobrun-{len(self._workers)}"
            is_first = not self._workers
            run = self._context.copy().run
            worker = threading.Thread(
                target=run, args=(self._work_loop, is_first), name=name, daemon=True
            )
            self._workers.append(worker)
            worker.start()

    def close(self) -> None:
        """End the idle workers; one that is in a unit ends after it."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._work_of_first.notify()

    def _wake(self, run: DagRun, units: int) -> None:
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
                if is_first and self._loop is not None and self._loop.begun:
                    self._loop.leave(error)

    def _serve(self, is_first: bool) -> bool:
        """Wait for a unit or a loop, and run it; return whether there may be another."""
        with self._lock:
            while (unit := self._take(is_first)) < 0:
                if self._closed:
                    return False
                if is_first and self._loop is not None and not self._loop.begun:
                    break
                if is_first:
                    self._first_is_free = True
                    self._work_of_first.wait()
                else:
                    self._work.wait()
            if is_first:
                self._first_is_free = False
            run, loop = self._run, self._loop
            if run is not None and unit >= 0:
                run.running += 1
        if run is not None and unit >= 0:
            self._work_on(run, unit, is_first)
        elif loop is not None:
            loop.run()
        return True

    def _take(self, is_first: bool) -> int:
        return -1 if self._run is None else self._run.take(is_first)

    def _work_on(self, run: DagRun, unit: int, is_first: bool) -> None:
        """Run ``unit`` and the units it makes ready, as long as there are some."""
        execute = run.execute
        while unit >= 0:
            try:
                execute(unit)
                unit = self._finish(run, unit, is_first)
            except BaseException as error:  # an error of a task, or one raised into this thread
                self._fail(run, error)
                return

    def _fail(self, run: DagRun, error: BaseException) -> None:
        with self._lock:
            run.halt(error)
            self._count_out(run)

    def _finish(self, run: DagRun, unit: int, is_first: bool) -> int:
        """Count a unit as finished; return the next one for this worker, or -1."""
        waits, pinned = run.waits, run.dag.pinned
        cut = run.cut()
        with self._lock:
            run.done[unit] = 1
            run.left -= 1
            if cut and not run.stopping:
                run.stop()
            following = -1
            offered = 0
            for other in run.dag.successors[unit]:
                waits[other] -= 1
                if waits[other] == 0 and run.may_start(other):
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
                self._count_out(run)
            return following

    def _count_out(self, run: DagRun) -> None:
        """Count this worker out of ``run``, where it has nothing more to do; the lock is held."""
        run.running -= 1
        if run.running <= 0 and not run.has_ready and (run.left == 0 or run.stopping):
            self._end(run)

    def _end(self, run: DagRun) -> None:
        """Let the threads that wait for the end of ``run`` continue; the lock is held."""
        run.is_over = True
        if run.over is not None:
            run.over.set()
        if self._loop is not None:
            self._work_of_first.notify()
