"""A pipe on one node: reads batches, runs its ``map`` and ``do`` steps on each, in batch order.

With ``threads``, ``ahead`` or ``processes``, reading and ``map`` steps run ahead of the ``do``
steps; the results are those of one thread, bit for bit, and so is the first error.

The position (batches applied, reader state, reductions so far) is known between any two batches, so
that a run can be cut there and resume with the very next batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jobrun.analysis.accesses import Reduced
from jobrun.analysis.names import StepColumns, resolve, step_names
from jobrun.analysis.schedule import batches_between, epochs_between
from jobrun.core.blob_paths import Key, PathSet, overlaps
from jobrun.core.current_task import enter_batch
from jobrun.core.events import BatchesDone, Report, ignore
from jobrun.core.position import PipeState, ReaderState
from jobrun.data.reader import Batch, RowReader
from jobrun.errors import DataError, TaskError, Where
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.call import Call
from jobrun.session.call_outputs import Write
from jobrun.session.current import TaskStoppedError, enter, here
from jobrun.session.pipe.feed import Feed, InTurn, ReadAhead, ReadAheadInGroups
from jobrun.session.pipe.groups import Groups
from jobrun.session.pipe.map_steps import MapSteps, Prepared
from jobrun.session.pipe.prefetch import Turns
from jobrun.session.pipe.reductions import Reductions
from jobrun.session.pipe.source import PipeReading
from jobrun.session.stores import CallContext, Stores
from jobrun.session.workers.pool import WorkerPool

__all__ = ["PipeEpoch", "PipeRun"]

_PROGRESS_SECONDS = 0.1
_AHEAD_OF_A_THREAD = 2
"""Batches that may be ahead for each thread: one in work, one waiting."""


@dataclass(frozen=True, slots=True)
class _Step:
    call: Call
    batches: int
    epochs: int

    def due(self, epoch: int, batch: int) -> bool:
        """Return whether the step runs on this batch (counted from 1)."""
        return batch % self.batches == 0 and epoch % self.epochs == 0


class PipeRun:
    """A pipe of a job on one node, prepared to run epoch after epoch.

    ``make_call(step, name, puts_columns)`` binds one step; ``store`` writes blobs.
    """

    def __init__(
        self,
        job: Job,
        group: str,
        pipe: Pipe,
        node: str,
        stores: Stores,
        store: Callable[[Sequence[Write]], None],
        make_call: Callable[[Task, str, Collection[str], bool], Call],
        places: Places,
    ) -> None:
        self._job = job
        self._group = group
        self._pipe = pipe
        self.node = node
        self._stores = stores
        self._store = store
        # One call at a time under --check: another step's change would blame the wrong one.
        self._check = places.check
        self._places = places
        names = step_names(pipe)
        self._reading = PipeReading(job, group, pipe, node, stores, make_call, places)
        self._source_columns = self._reading.columns()
        self._workers: WorkerPool | None = None
        self._turns = Turns()
        self._groups = Groups()
        self.in_batch = False
        """Whether a step was applied to the batch: then the others must be applied too."""
        self.batches: int | None = None
        """Batches of an epoch, if their number is known."""
        columns = StepColumns(self._source_columns)
        self._map_calls: list[Call] = []
        for step in pipe.map:
            self._map_calls.append(
                make_call(step, f"{pipe.name}/{names[id(step)]}", columns.copy(), True)
            )
            columns.add(step.outputs.names)
        self._do = [
            _Step(
                make_call(step, f"{pipe.name}/{names[id(step)]}", columns, False),
                batches_between(job, step, node),
                epochs_between(job, step, node),
            )
            for step in pipe.do
        ]
        read = [n for n in dict.fromkeys(self._read_names()) if n in columns]
        self._map = MapSteps(
            job, pipe, self._map_calls, self._source_columns, read, self._read_once(read)
        )
        self._asked = {key for name in pipe.reduce for key in self._keys(name)}
        self._reduced = self._reduced_keys()
        self._used = {key for key in self._reduced if self._is_used(key)}
        self._changing = PathSet(("", path) for path in self._written_paths())

    def _read_names(self) -> Iterator[str]:
        return (a.name for step in self._pipe.do for a in step.inputs)

    def _read_once(self, read: Sequence[str]) -> list[str]:
        """Return the columns of which a ``do`` step is given one object for each batch, in all."""
        reads = Counter(name.partition("/")[0] for name in self._read_names())
        again = {a.name for step in self._pipe.do if step.retries is not None for a in step.inputs}
        return [name for name in read if reads[name] == 1 and name not in again]

    def _reduced_keys(self) -> dict[Key, str]:
        """Return the blobs that are reduced over an epoch, and how.

        Those are the blobs that the ``do`` steps only return, and those that ``reduce`` names.
        """
        put: dict[Key, str] = {}
        for step in self._pipe.do:
            for name in step.outputs.names:
                for key in self._keys(name):
                    put[key] = self._pipe.reduce.get(name, "mean")
        return {k: how for k, how in put.items() if k in self._asked or not self._is_used(k)}

    def _written_paths(self) -> Iterator[str]:
        """Yield the paths of the blobs, of whatever nodes, that the ``do`` steps replace."""
        live = self._stores.live
        for step in self._pipe.do:
            for name in (*step.outputs.names, *(a.name for a in step.updates)):
                for key in self._keys(name):
                    if live is None or key not in live or name in step.outputs.names:
                        yield key[1]

    def _written(self, step: Task) -> set[Key]:
        """Return the blobs that a ``do`` step returns."""
        return {key for name in step.outputs.names for key in self._keys(name)}

    def _is_used(self, key: Key) -> bool:
        """Return whether a ``do`` step reads or updates the blob, so needs each batch's value."""
        return any(
            node == key[0] and overlaps(path, key[1])
            for step in self._pipe.do
            for argument in (*step.inputs, *step.updates)
            for node, path in self._keys(argument.name)
        )

    def _keys(self, name: str) -> tuple[Key, ...]:
        source = resolve(self._job, self.node, name)
        return source.keys if source.form in ("blob", "blobs") else ()

    def open(self, state: ReaderState, report: Report = ignore) -> RowReader:
        """Return the reader at a position; raises DataError for data that cannot be read."""
        return self._reading.open(state, report)

    def run(
        self, epoch: int, state: PipeState, reader_state: ReaderState, control: Control
    ) -> tuple[PipeState | None, ReaderState]:
        """Run the batches of an epoch from ``state`` on.

        Returns the place reached: None instead of a PipeState when the epoch's batches are done.
        """
        with self.begin(epoch, state, reader_state, control) as now:
            feed, cut, applied = now.feed, control.cut, control.applied
            while not cut() and (prepared := feed.next()) is not None:
                if not self._apply(prepared, now):
                    break
                now.applied(prepared[1])
                applied(now.number - state.batches)
            return now.end(feed.ended)

    @contextmanager
    def begin(
        self, epoch: int, state: PipeState, reader_state: ReaderState, control: Control
    ) -> Iterator[PipeEpoch]:
        """Yield the batches of an epoch from ``state`` on."""
        self.in_batch = False
        reader = self.open(reader_state, control.report)
        total = reader.total(state.batches)
        self.batches = self._count("batches_per_epoch") or total
        progress = _Progress(self._pipe.name, self.node, epoch, total, control)
        with self._fed(reader, epoch, state.batches, control) as feed:
            reductions = Reductions(state.reduced)
            yield PipeEpoch(self, epoch, feed, reductions, progress, total, state.batches)

    def store_reduced(self, reductions: Reductions, epoch: int) -> None:
        """Store the reductions of the epoch; raises TaskError for one that cannot be stored."""
        for key, value in reductions.values():
            if isinstance(value, TaskError):
                puts = [s.call for s in self._do if key in self._written(s.call.task)]
                where = self._pipe.mark(f"reduce:{key[1]}", "reduce")
                raise self._of(puts[-1], value, CallContext(epoch), where)
            self._store([(key, value)])

    @contextmanager
    def _fed(self, reader: RowReader, epoch: int, first: int, control: Control) -> Iterator[Feed]:
        """Yield the feed of batches; after a failure, workers are not waited for."""
        feed = self._feed(reader, epoch, first, control)
        try:
            self._begin_steps()
            yield feed
        except BaseException:
            if self._workers is not None:
                self._workers.stop()
            raise
        finally:
            feed.close()
            for step in self._do:
                step.call.end()

    def _begin_steps(self) -> None:
        """Let the steps read once what is the same for all batches; a retry may replace objects."""
        if not any(step.call.task.retries for step in self._do):
            for step in self._do:
                step.call.begin(self._changing)

    def _feed(self, reader: RowReader, epoch: int, first: int, control: Control) -> Feed:
        """Return the feed of batches, which runs ahead of the ``do`` steps if the pipe says so."""
        place, read = here(), self._reading.next_few
        processes, ahead = self._count("processes"), self._count("ahead")
        threads = processes or self._count("threads") or 1

        def prepare(number: int, batch: Batch) -> Prepared:
            enter(place)  # it may run on another thread
            return self._map.run(epoch, number, batch)

        in_turn = processes is None and threads == 1 and ahead is None
        if self._check or in_turn or (reader.light and not self._map_calls):
            return InTurn(reader, read, prepare, first, mapped=bool(self._map_calls))
        window = _AHEAD_OF_A_THREAD * threads
        if processes is None:
            # With one thread the rows may come from what only the thread that made it can use.
            turns, window = self._turns if threads > 1 else None, ahead or window
            return ReadAhead(reader, read, prepare, first, control.cut, threads, window, turns)
        workers, groups = self._begun_workers(), self._groups

        def prepare_group(group: Sequence[tuple[int, Batch]]) -> Iterator[Prepared]:
            enter(place)
            return self._map.run_group(epoch, group, workers)

        window = groups.begin(window, ahead, single=self._reading.calls)
        cut = control.cut
        return ReadAheadInGroups(reader, read, prepare_group, first, cut, threads, window, groups)

    def _begun_workers(self) -> WorkerPool:
        """Return the worker processes, which stay from one epoch to the next."""
        if self._workers is None:
            self._workers = WorkerPool(
                self._job,
                self._pipe,
                self._map_calls,
                self._source_columns,
                self._map.wanted,
                self._places,
            )
        self._workers.begin()
        return self._workers

    def close(self) -> None:
        """End the worker processes."""
        if self._workers is not None:
            self._workers.close()

    def _count(self, field: str) -> int | None:
        """Return a number that configures the run, 1 or more."""
        value = self._reading.number(field)
        if value is not None and value < 1:
            text = f"pipe {self._pipe.name!r}: {field} is {value}, but must be 1 or more"
            raise DataError(text, where=self._pipe.mark(field))
        return value

    def _apply(self, prepared: Prepared, now: PipeEpoch) -> bool:
        """Run the ``do`` steps on a batch, unless no rows are left; False if it is abandoned.

        Only its first step can be ended with the run: then nothing of the batch was applied.
        """
        moment, rows = prepared
        try:
            for step in self._do if rows else ():
                if step.batches == step.epochs == 1 or step.due(now.epoch, now.number + 1):
                    self._apply_step(step.call, now, moment, rows)
                    self.in_batch = True
        except TaskStoppedError:
            if self.in_batch:  # the run has failed, so that nothing resumes from here
                raise
            return False
        self.in_batch = False
        return True

    def is_due(self, number: int, now: PipeEpoch) -> bool:
        """Return whether a ``do`` step runs on the next batch."""
        return self._do[number].due(now.epoch, now.number + 1)

    def apply_step(self, number: int, now: PipeEpoch, moment: CallContext, rows: int) -> None:
        """Run a ``do`` step on a batch."""
        self._apply_step(self._do[number].call, now, moment, rows)

    def _apply_step(self, call: Call, now: PipeEpoch, moment: CallContext, rows: int) -> None:
        enter_batch(now.number + 1)
        left, reduced, add = [], self._reduced, now.reductions.add
        for write in call.run(moment):
            key, value = write
            if key not in reduced:
                left.append(write)
                continue
            try:
                added = add(key, reduced[key], value, rows, asked=key in self._asked)
            except TaskError as error:
                where = call.task.mark(f"out:{key[1]}", "out")
                raise self._of(call, error, moment, where) from None
            if not added or key in self._used:
                left.append(write)
        if left:
            self._store(left)

    def reductions(self, number: int) -> tuple[Reduced, ...]:
        """Return what a ``do`` step reads reduced over nodes."""
        return self._do[number].call.reductions

    def failed_step(self, number: int, error: TaskError, now: PipeEpoch) -> TaskError:
        """Return the error of a ``do`` step whose inputs cannot be had."""
        return self._do[number].call.placed(error, CallContext(now.epoch, now.number))

    @staticmethod
    def _of(call: Call, error: TaskError, moment: CallContext, where: Where | None) -> TaskError:
        """Return the error of a step's output, which stands in the spec at ``where``."""
        return call.placed(TaskError(error.message, where=where, hint=error.hint), moment)


@dataclass
class PipeEpoch:
    """The batches of one epoch of a pipe on one node.

    ``number`` of them are applied, ``rows`` rows by this attempt; ``total`` is their number in all,
    None if that is unknown.  ``prepared`` is the batch to be applied next, once it is read.
    ``seconds`` are counted by who runs several at once.
    """

    run: PipeRun
    epoch: int
    feed: Feed
    reductions: Reductions
    progress: _Progress
    total: int | None
    number: int
    rows: int = 0
    prepared: Prepared | None = None
    seconds: float = 0.0

    def applied(self, rows: int) -> None:
        """Count a batch of ``rows`` rows, the last one of ``feed``, as applied."""
        self.feed.applied()
        self.number += 1
        self.rows += rows
        if time.monotonic() >= self.progress.next:
            self.progress.report(self.number, self.rows)

    def end(self, finished: bool) -> tuple[PipeState | None, ReaderState]:
        """Return the place reached; store the reductions of an epoch that is finished."""
        if not finished:
            return PipeState(self.number, self.reductions.state()), self.feed.state
        self.run.store_reduced(self.reductions, self.epoch)
        return None, self.feed.state


class _Progress:
    """Reports how many batches are done, a few times a second: from the moment ``next`` on."""

    def __init__(
        self, pipe: str, node: str, epoch: int, total: int | None, control: Control
    ) -> None:
        self._event = (pipe, node, epoch)
        self._total = total
        self._report = control.report
        self.next = time.monotonic() + _PROGRESS_SECONDS

    def report(self, batches: int, rows: int) -> None:
        """Report that ``batches`` are applied, and ``rows`` by this attempt."""
        self.next = time.monotonic() + _PROGRESS_SECONDS
        self._report(BatchesDone(*self._event, batches, self._total, rows))
