"""A group of a job prepared to run in this process, again and again.

Compiled once: the functions are bound to the blobs, the plan's counters are copied for each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from jobrun.analysis.dataflow import write_mark
from jobrun.analysis.graph import Plan, Unit
from jobrun.analysis.pinned import Pins
from jobrun.analysis.schedule import epochs_between
from jobrun.core.blob_paths import Key
from jobrun.core.events import (
    GroupFinished,
    GroupStarted,
    TaskFailed,
    TaskFinished,
    TasksRunning,
    Warned,
)
from jobrun.core.names import CASE_HINT
from jobrun.core.position import PipeState, Position, ReaderState
from jobrun.errors import JobrunError, TaskError, ValueRefusedError
from jobrun.model.job import Pipe
from jobrun.session.base import Control
from jobrun.session.batch_counts import BatchCounts
from jobrun.session.binding import Binding
from jobrun.session.call import Call
from jobrun.session.call_outputs import Write
from jobrun.session.current import Running, TaskStoppedError, enter
from jobrun.session.dag_run import Dag
from jobrun.session.input_check import check_kept
from jobrun.session.object_order import ObjectOrder
from jobrun.session.object_rules import ObjectRules
from jobrun.session.stores import CallContext, Stores
from jobrun.values.boxes import Value
from jobrun.values.storable import check_storable
from jobrun.values.workspace import Workspace

if TYPE_CHECKING:
    from jobrun.session.pipe.lock_step import Exchange
    from jobrun.session.pipe.run import PipeRun

__all__ = ["Group", "Now", "epoch_of", "slowest_of"]

_SLOW_SECONDS = 0.1
_SLOWEST = 3
_REPORTED = 8
"""The number of running tasks that are reported."""


@dataclass
class Now:
    """The current run: its epoch, its control, and its progress.

    ``seconds`` holds the time each unit took, ``since`` its start if it runs now, else 0.  ``cut``
    are the units cut before their end, which cut all others.  ``batches`` counts the batches, if
    there are pipes.  ``failed`` are the errors of units, ``halted``: nothing new begins, since one
    has failed or the run has ended.
    """

    moment: CallContext
    control: Control
    pipes: dict[str, PipeState]
    readers: dict[str, ReaderState]
    seconds: list[float]
    since: list[float]
    batches: BatchCounts | None
    gathered: dict[int, Any] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    failed: dict[int, BaseException] = field(default_factory=dict)
    halted: bool = False

    def is_cut(self) -> bool:
        """Return whether nothing new begins.

        A cut of one pipe cuts all; and a failure ends the other pipes at their next batch.
        """
        return self.halted or bool(self.cut) or self.control.cut()

    def ended(self, units: Iterable[int]) -> list[int]:
        """Return those of the units that ran which have come to their end."""
        held = () if self.batches is None else self.batches.held
        return [unit for unit in units if unit not in self.cut and unit not in held]

    def first_failure(self, error: BaseException) -> BaseException:
        """Return the error to raise where the run has ended with ``error``.

        Of several units that have failed it is that of the first one in the order of the spec,
        which is the one that fails on one thread, not that of the fastest.
        """
        failed = dict(self.failed)  # a unit that is not waited for may fail now
        return failed[min(failed)] if any(e is error for e in failed.values()) else error


def slowest_of(seconds: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return the slowest of the units, each with its seconds; those that did not run have none."""
    ran = [pair for pair in seconds if pair[1]]
    if len(ran) > _SLOWEST:
        return tuple(nlargest(_SLOWEST, ran, key=itemgetter(1)))
    return tuple(sorted(ran, key=itemgetter(1), reverse=True))  # half as long, the same order


class Group:
    """The units of a plan, bound to the blobs of a session."""

    def __init__(self, binding: Binding, plan: Plan) -> None:
        job = self._job = binding.analysis.job
        self._binding = binding
        self._plan = plan
        self._stores = stores = binding.stores
        self._scheduler = binding.scheduler
        self._persists: dict[Key, bool] = {}
        pins = Pins(binding.analysis)
        self._dag = Dag(
            list(plan.waits),
            [list(s) for s in plan.successors],
            frozenset(plan.gathered_by),
            frozenset(
                i
                for i, unit in enumerate(plan.units)
                if pins.pins(unit) or any(pins.pins(plan.units[n]) for n in unit.gathers)
            ),
        )
        self._objects = ObjectOrder(plan, self._dag, stores.nodes, binding.analysis.live.held_by)
        self._calls: dict[int, Call] = {}
        self._pipes: dict[int, PipeRun] = {}
        self._runs = [self._runner(i, unit) for i, unit in enumerate(plan.units)]
        self._every = [1 if u.gathers else epochs_between(job, u.task, u.node) for u in plan.units]
        self._keys = [unit.key for unit in plan.units]
        self._now: Now | None = None
        self._objects.present()
        self._before = self._dag.before()
        self._rules = ObjectRules(binding.analysis, plan, self._objects, stores.nodes)
        self._warnings = self._rules.at_start()

    # Compiling.

    def _runner(self, number: int, unit: Unit) -> Callable[[Now], None]:
        """Return the function that runs one unit."""
        if unit.gathers and isinstance(unit.task, Pipe):
            return lambda now: self._run_together(number, now)
        if unit.gathers:
            return lambda now: self._gather(unit.gathers, now)
        stores = self._stores_of(number)
        if isinstance(unit.task, Pipe):
            pipe = self._pipes[number] = self._binding.pipe(
                self._plan.group,
                unit.task,
                unit.node,
                stores,
                partial(self._store_all, number=number),
            )
            if number in self._plan.gathered_by:
                return lambda now: None  # it has run with the other copies
            return lambda now: self._run_pipe(pipe, number, now)
        call = self._calls[number] = self._binding.call(
            self._plan.group, unit.task, unit.node, stores
        )
        if number in self._plan.gathered_by:
            return lambda now: self._store_all(
                call.run(now.moment, now.gathered.pop(number)), number
            )
        return lambda now: self._store_all(call.run(now.moment), number)

    def _stores_of(self, number: int) -> Stores:
        """Return the blobs as a unit sees them."""
        return self._stores

    def close(self) -> None:
        """End the worker processes of pipes."""
        for pipe in self._pipes.values():
            pipe.close()

    # Running.

    def run(self, position: Position, control: Control) -> Position:
        """Run the group from ``position`` on; see ``Session.run``."""
        plan = self._plan
        now = self._begin(position, control)
        done = self._done(set(position.tasks))
        control.report(GroupStarted(plan.group, now.moment.epoch, len(plan.units)))
        start = time.perf_counter()
        ran = self._run_units(now, done)
        self._report_finished(now.moment.epoch, time.perf_counter() - start, now)
        if self._job.multi_node:
            control.spent(self.spent(now))
        if len(ran) == len(done) and now.pipes == position.pipes:
            return position
        return Position(
            position.epochs,
            tuple([plan.units[i].key for i in ran if not plan.units[i].gathers]),
            now.pipes,
            now.readers if plan.group == "epoch" else position.readers,
        ).in_order(self._keys)

    def _counts(self, control: Control) -> BatchCounts | None:
        """Return the counts of a new run, None if there are no pipes."""
        if not self._pipes:
            return None
        return BatchCounts(self._before, self._dag.bound, control.batches_left())

    def _begin(self, position: Position, control: Control) -> Now:
        """Return a new run that begins at ``position``."""
        if self._plan.group == "epoch":
            self._stores.written.epoch = epoch_of("epoch", position)
        now = self._now = Now(
            CallContext(epoch_of(self._plan.group, position)),
            control,
            dict(position.pipes),
            dict(position.readers) if self._plan.group == "epoch" else {},
            [0.0] * len(self._plan.units),
            [0.0] * len(self._plan.units),
            self._counts(control),
        )
        warnings, self._warnings = self._warnings, []
        self._warn(warnings)
        return now

    def _run_units(
        self,
        now: Now,
        done: Sequence[int],
        skip: Sequence[int] = (),
        begun: Callable[[], None] = lambda: None,
    ) -> list[int]:
        """Run the units that are not ``done``, see ``Scheduler.run``; return those at their end."""

        def halted() -> None:
            now.halted = True

        try:
            ran = self._scheduler.run(
                self._dag, self._execute, done, now.is_cut, self._look, skip, begun, halted
            )
        except BaseException as error:  # a task may raise anything, and Ctrl-C comes here too
            first = now.first_failure(error)
            now.failed.clear()  # their frames hold batches, and this is kept until the next run
            if first is error:
                raise
            raise first from first.__cause__
        enter(None)  # in a loop this is the thread of the last task
        if self._binding.places.check:
            check_kept(self._plan.group, self._stores.nodes)
        if now.batches is not None:
            now.control.applied(now.batches.longest)
        return now.ended(ran)

    def _done(self, tasks: Collection[str]) -> list[int]:
        """Return the units that need not run again; a gathering is done when its copies are."""
        if not tasks:
            return []
        units = self._plan.units
        done = {i for i, u in enumerate(units) if not u.gathers and u.key in tasks}
        done |= {i for i, u in enumerate(units) if u.gathers and done.issuperset(u.gathers)}
        return sorted(done)

    def _due(self, number: int, epoch: int) -> bool:
        return epoch % self._every[number] == 0

    def _execute(self, number: int) -> None:
        now = self._now
        assert now is not None
        if now.batches is not None and not now.batches.begin(number):
            return
        if self._every[number] > 1 and not self._due(number, now.moment.epoch):
            return  # its number stays: others wait for it, and through it for those before it
        start = now.since[number] = time.perf_counter()
        enter((self, number))
        try:
            self._runs[number](now)
        except TaskStoppedError:
            now.cut.add(number)
            return
        except BaseException as error:
            if now.failed or not now.halted:  # else the run has ended without this unit
                now.failed[number] = error
                now.halted = True
                self._report_failed(number, error, now)
            raise
        finally:
            now.since[number] = 0.0
        seconds = time.perf_counter() - start
        now.seconds[number] += seconds  # a pipe may have run with its other copies
        if seconds > _SLOW_SECONDS or now.control.every_task:
            unit = self._plan.units[number]
            now.control.report(
                TaskFinished(self._plan.group, now.moment.epoch, unit.task.name, unit.node, seconds)
            )

    def _look(self) -> None:
        """Report the running tasks; called a few times a second."""
        now = self._now
        assert now is not None
        now.control.look()
        moment, units = time.perf_counter(), self._plan.units
        running = [(moment - since, i) for i, since in enumerate(now.since) if since]
        tasks = tuple((units[i].key, seconds) for seconds, i in nlargest(_REPORTED, running))
        now.control.report(TasksRunning(self._plan.group, now.moment.epoch, tasks, len(running)))

    def running(self, number: int) -> Running:
        """Return the context of a running unit."""
        now, unit = self._now, self._plan.units[number]
        assert now is not None
        pipe = self._pipes.get(number)

        def bound() -> bool:  # to what cannot run again: other copies, or other steps
            unit = self._plan.units[number]
            if number in self._plan.gathered_by or (isinstance(unit.task, Pipe) and unit.gathers):
                return True
            return pipe is not None and pipe.in_batch

        return Running(
            self._plan.group,
            now.moment.epoch,
            unit.task.name,
            unit.node,
            now.control,
            lambda: now.halted or (now.control.interrupted() and not bound()),
            None if pipe is None else pipe.batches,
        )

    def _report_finished(self, epoch: int, seconds: float, now: Now) -> None:
        now.control.report(
            GroupFinished(
                self._plan.group,
                epoch,
                len(self._plan.units),
                seconds,
                slowest_of(zip(self._keys, now.seconds, strict=True)),
            )
        )

    def spent(self, now: Now) -> dict[str, float]:
        """Return the seconds that the tasks of each node have taken in a run."""
        found: dict[str, float] = {}
        for unit, seconds in zip(self._plan.units, now.seconds, strict=True):
            if not unit.gathers:
                found[unit.node] = found.get(unit.node, 0.0) + seconds
        return found

    def _report_failed(self, number: int, error: BaseException, now: Now) -> None:
        unit = self._plan.units[number]
        message = error.message if isinstance(error, JobrunError) else repr(error)
        now.control.report(
            TaskFailed(self._plan.group, now.moment.epoch, unit.task.name, unit.node, message)
        )

    def _gather(self, copies: tuple[int, ...], now: Now) -> None:
        """Read the inputs of all copies of a task, before any of them writes."""
        moment = replace(now.moment, reduced={}, lists={})
        for number in copies:
            if number in self._calls and self._due(number, now.moment.epoch):
                try:
                    now.gathered[number] = self._calls[number].gather(moment)
                except TaskError as error:
                    raise self._calls[number].placed(error, moment) from error.__cause__

    def _run_together(self, gather: int, now: Now) -> None:
        """Run the copies of a pipe in lock step; ``gather`` is the unit in front of them."""
        from jobrun.session.pipe.lock_step import LockStep

        copies = [n for n in self._plan.units[gather].gathers if self._due(n, now.moment.epoch)]
        if not copies:
            return
        keys = [self._plan.units[number].key for number in copies]
        before = [
            (now.pipes.pop(key, PipeState()), now.readers.get(key, ReaderState())) for key in keys
        ]
        runs = [self._pipes[number] for number in copies]
        task = self._plan.units[gather].task
        assert isinstance(task, Pipe)
        places = [(self, number) for number in copies]
        steps = LockStep(task, runs, self._stores_of(copies[0]), places)
        exchange = self._exchange(gather)
        control = _counting(gather, now)
        reached, seconds = steps.run(now.moment.epoch, before, control, exchange)
        for number, (state, reader), spent in zip(copies, reached, seconds, strict=True):
            now.seconds[number] += spent
            self._end_pipe(number, state, reader, now)
        if any(state is not None for state, _ in reached):
            _note_cut(gather, copies, now)

    def _exchange(self, gather: int) -> Exchange:
        """Return what exchanges messages with the copies of a pipe elsewhere."""
        from jobrun.session.pipe.lock_step import alone

        return alone

    def _run_pipe(self, pipe: PipeRun, number: int, now: Now) -> None:
        key = self._plan.units[number].key
        before = now.pipes.pop(key, PipeState())
        control = _counting(number, now)
        state, reader = pipe.run(
            now.moment.epoch, before, now.readers.get(key, ReaderState()), control
        )
        self._end_pipe(number, state, reader, now)
        if state is not None:
            _note_cut(number, (), now)

    def _end_pipe(
        self, number: int, state: PipeState | None, reader: ReaderState, now: Now
    ) -> None:
        """Record the place that a pipe has reached."""
        key = self._plan.units[number].key
        if state is not None:
            if not state.batches:
                return  # cut before its first batch: it has not begun
            now.pipes[key] = state
        now.readers[key] = reader

    # Storing.

    def _store_all(self, writes: Sequence[Write], number: int) -> None:
        nodes, live = self._stores_of(number).nodes, []
        for key, value in writes:
            if value.kind == "live" and "/" not in key[1]:  # nothing to be checked or ordered
                nodes[key[0]].root[key[1]] = value
                live.append(key)
            else:
                self._store(key, value, number)
        if live:
            self._stores.written.note(*live)

    def _store(self, key: Key, value: Value, number: int) -> None:
        persists = self._persists.get(key)
        if persists is None:
            persists = self._persists[key] = self._binding.persistent.touches(key)
        self._put(key, value, number, persists)
        self._stores.written.note(key)
        if not persists and self._objects.stored(key, value, number, self._add_edge):
            self._warn(self._rules.stored(key))

    def _add_edge(self, before: int, after: int) -> None:
        """Order two units of the run."""
        self._before[after].append(before)
        self._scheduler.add_edge(before, after)

    def _warn(self, lines: Iterable[str]) -> None:
        assert self._now is not None
        for line in lines:
            self._now.control.report(Warned(line))

    def _put(self, key: Key, value: Value, number: int, persists: bool) -> None:
        workspace = self._stores_of(number).nodes[key[0]]
        try:
            if persists:
                check_storable(value, key[1])
                _check_siblings(workspace, key[1])
            workspace.put(key[1], value)
        except TaskError as error:
            task = self._plan.units[number].task
            raise type(error)(
                f"task {task.name!r} of group {self._plan.group!r}: {error.message}",
                where=write_mark(task, key),
                hint=error.hint,
            ) from None


def _counting(unit: int, now: Now) -> Control:
    """Return the control of a pipe that runs as ``unit``."""
    assert now.batches is not None
    return now.batches.control(unit, replace(now.control, cut=now.is_cut))


def _note_cut(unit: int, copies: Iterable[int], now: Now) -> None:
    """Record that the pipe of ``unit``, or of its ``copies``, has not come to its end."""
    assert now.batches is not None
    if now.batches.is_full(unit):
        now.batches.held.add(unit)  # and with it its copies
    else:
        now.cut.update((unit, *copies))


def _check_siblings(workspace: Workspace, path: str) -> None:
    """Raise ValueRefusedError if the blob's tree exists under a name that differs in case only."""
    if "/" in path and (twin := workspace.case_twin(path)):
        raise ValueRefusedError(
            f"blob {path!r} persists, but cannot be saved: it and {twin!r} differ in case only",
            hint=CASE_HINT,
        )


def epoch_of(group: str, position: Position) -> int:
    """Return the epoch of a group's tasks: setup and init are before the first."""
    if group == "epoch":
        return position.epochs + 1
    return 0 if group in ("setup", "init") else position.epochs
