"""JobRunner: runs a job from where it stands to where it stops.

1. Decide: start afresh, resume, nothing to do, or refuse.  Then lock the run directory and clean up
   our own leftovers.
2. Run ``setup``, at every start.
3. Fresh: run ``init``, save epoch 0.  Resume: skip ``init``, load a checkpoint that proves whole.
4. On resume after an epoch, ask the stop conditions before running another.
5. Loop: run ``epoch``, let every stop condition observe, save if due, stop if one says so.
6. Unless the outcome is a failure, run ``download`` and ``exit``; then mark the run finished.

The order of the groups is Caffe2's JobRunner; that a finished job which is resumed runs no further
epoch, and that the states of the conditions are saved, mends what it got wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobrun.best import load_best
from jobrun.check import check, warnings
from jobrun.checkpoint.blobs import load_blobs
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import Record
from jobrun.conditions import build
from jobrun.decide import Choice, Request
from jobrun.errors import (
    EXIT_DONE,
    EXIT_FAILED_BY_CONDITION,
    EXIT_NOT_SAVED,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    DamagedError,
    JobrunError,
    NotFoundError,
    SaveError,
    SpecError,
    TaskError,
)
from jobrun.events import (
    CheckpointLoaded,
    EpochFinished,
    Report,
    RunEnded,
    RunStarted,
    SaveAsked,
    Stopping,
    Warned,
    ignore,
)
from jobrun.graph import live_scratch, make_plan
from jobrun.history import History, asks_verdict
from jobrun.job import GROUPS, Job
from jobrun.metrics import metric_names
from jobrun.position import Position
from jobrun.saving import Due, Saver
from jobrun.session.base import Control, Places, Session
from jobrun.standing import Standing
from jobrun.stop import Epochs
from jobrun.versions import differences

__all__ = ["JobRunner"]


class JobRunner:
    """Runs ``job``, saving it with ``manager`` (None: nothing is written anywhere).

    ``resume_from_epoch`` starts from the checkpoint of that epoch, whatever came after it.  Raises
    SpecError, with all its problems, if the job cannot be.
    """

    def __init__(
        self,
        job: Job,
        manager: CheckpointManager | None = None,
        resume_from_epoch: int | None = None,
        *,
        report: Report = ignore,
        request: Request | None = None,
        check_inputs: bool = False,
        every_task: bool = False,
    ) -> None:
        problems = check(job)
        if problems:
            raise SpecError(problems)
        self.job = job
        self.outcome: RunEnded | None = None
        self._conditions = build(job)
        self._plans = {name: make_plan(job, job.groups[name]) for name in GROUPS}
        self._request = request or Request(epoch=resume_from_epoch)
        self._report = report
        self._check_inputs = check_inputs
        self._manager = manager
        self._history = History(job, manager, self._request, report)
        self._signal: str | None = None
        self._control = Control(
            cut=lambda: self._signal is not None,
            report=report,
            every_task=every_task,
            interrupted=lambda: self._signal is not None,
        )
        self._due: Due | None = None
        self._session: Session | None = None
        self._finished: Path | None = None

    def choose(self) -> Choice:
        """What ``train`` would do now; nothing is loaded or written."""
        return self._history.choose(self._conditions)

    def interrupt(self, signal_name: str) -> None:
        """Start no new work and end the run; what is on disk stays.  For signal handlers."""
        if self._signal is None:
            self._signal = signal_name
            self._report(Stopping(signal_name))

    def save_soon(self, signal_name: str) -> None:
        """Save at the next place where that can be done.  For signal handlers."""
        if self.job.checkpoint is None or self._manager is None:
            self._report(Warned(f"{signal_name}: this job wants no checkpoints"))
        elif self._due is not None:
            self._due.asked = True
            self._report(SaveAsked(signal_name))

    @property
    def blobs(self) -> Mapping[str, Any]:
        """The blobs after ``train``, read-only, by name; with several nodes, ``node:name``."""
        return _Blobs(self._session, self._finished)

    def train(self, session: Session) -> int:
        """Run the job on ``session``; gives the number of epochs that are done in the run.

        How it ended is in ``outcome``.  Raises RunRefusedError if the run on disk is of another
        job, LockedError if another process holds it, TaskError if a task fails, and the other
        errors of the tree; earlier checkpoints stay.
        """
        self._session, self._finished = session, None
        self._standing = Standing(self.job, self._conditions)
        self._saver = Saver(self.job, self._manager, self._report, self._history.saved)
        due = self._due = self._saver.due
        self._epoch_control = replace(
            self._control,
            cut=lambda: self._signal is not None or due.inside(),
            applied=due.applied,
        )
        self._ran = 0
        self._epoch_start = time.perf_counter()
        self._start_time = time.monotonic()
        choice = self._checked(self.choose())
        if choice.action == "done":
            return self._nothing_to_do(choice)
        session.open(self.job, self._places())
        with self._attempt() as choice:
            if choice.action == "done":
                return self._nothing_to_do(choice)
            self._start(choice)
            if isinstance(choice.start, Record):  # so that an end before it is loaded tells of it
                self._stand_at(choice.start)
            self._run_group("setup")
            if choice.action == "resume":
                self._resume(choice)
            elif self._run_group("init"):
                self._save()
            while not self._over():
                self._run_epoch()
            self._finish()
        return self._standing.position.epochs

    def _checked(self, choice: Choice) -> Choice:
        """The choice, unless it is to refuse."""
        if choice.action in ("refuse", "new_run"):
            raise choice.refusal()
        return choice

    def _places(self) -> Places:
        return Places(self._request.folder, self._history.path, self._check_inputs)

    @contextmanager
    def _attempt(self) -> Iterator[Choice]:
        """Hold the run, decide again, and write down how the attempt ends if it fails."""
        assert self._session is not None
        self._history.lock()
        try:
            yield self._checked(self.choose())
        except JobrunError as error:
            self._wait_for_save()
            self._end("error", str(error.message), error.exit_code)
            raise
        finally:
            self._session.close()
            self._saver.close()
            self._history.unlock()

    def _start(self, choice: Choice) -> None:
        assert self._session is not None
        self._history.begin(choice)
        limits = [c.n for c, _ in self._conditions if isinstance(c, Epochs)]
        start = choice.start
        self._report(
            RunStarted(
                job=self.job.name,
                run=self._history.name,
                run_dir=str(self._history.path) if self._history.path else None,
                attempt=self._history.attempt,
                epoch=start.epoch if start else 0,
                checkpoint=start.id if start else None,
                epochs=min(limits, default=None),
                session=self._session.description,
                metrics=metric_names(self.job),
                notes=choice.lines,
                place=start.place if start else "",
            )
        )

        for warning in warnings(self.job):
            at = f"{warning.where}: " if warning.where else ""
            self._report(Warned(f"{at}{warning.message}; {warning.hint}"))

    def _run_group(self, name: str) -> bool:
        """Run a group other than ``epoch``; gives whether all its tasks were run."""
        assert self._session is not None
        plan = self._plans[name]
        if not plan.units or self._signal is not None:
            return self._signal is None
        place = Position(self._standing.position.epochs)
        return plan.finished(self._session.run(plan, place, self._control).tasks)

    def _resume(self, choice: Choice) -> None:
        """Load the newest checkpoint that proves whole, or the one that was named."""
        assert self._session is not None
        failed: DamagedError | None = None
        for record in self._history.candidates(choice):
            start = time.perf_counter()
            path = self._history.checkpoint_path(record)
            try:
                size = sum(self._session.load_part(node, path) for node in self._nodes_of(record))
            except DamagedError as error:
                if self._request.names_checkpoint:
                    raise
                failed = failed or error
                self._history.skip(record.id, str(error))
                continue
            self._session.take_over()
            self._stand_at(record)
            self._history.resume_at(record, choice)
            seconds = time.perf_counter() - start
            self._report(
                CheckpointLoaded(
                    record.id,
                    record.epoch,
                    str(path),
                    size,
                    seconds,
                    differences(record.versions),
                    record.place,
                )
            )
            if asks_verdict(record):
                self._standing.decision = self._standing.verdict()
            return
        where = str(self._history.path)  # they were whole when it was decided, a moment ago
        raise failed or DamagedError("no checkpoint is whole any more", where=where)

    def _stand_at(self, record: Record) -> None:
        """The run stands where a checkpoint stands, which is on disk."""
        self._standing.restore(record)
        path = self._history.checkpoint_path(record)
        self._saver.resumed(record.id, record.position, path, self._history.passed_over)

    def _nodes_of(self, record: Record) -> tuple[str, ...]:
        """The nodes of a checkpoint, which must be those of the job."""
        if set(record.nodes) != set(self.job.nodes):
            raise DamagedError(
                f"checkpoint_{record.id} is of the nodes {', '.join(record.nodes)}, "
                f"but the job has {', '.join(self.job.nodes)}"
            )
        return tuple(record.nodes)

    def _over(self) -> bool:
        return self._standing.decision is not None or self._signal is not None

    def _run_epoch(self) -> None:
        """Run the epoch, or what is left of it, to its end or to a cut, and save if that is due."""
        assert self._session is not None
        plan, standing = self._plans["epoch"], self._standing
        if standing.position.at_boundary:
            self._epoch_start = time.perf_counter()
        reached = self._session.run(plan, standing.position, self._epoch_control)
        self._saver.collect(wait=False)
        if not plan.finished(reached.tasks):
            standing.cut(reached)
            self._save()
            return
        best = standing.finish_epoch(reached, self._session.scalars(standing.names))
        self._session.end_epoch()
        self._ran += 1
        self._report(
            EpochFinished(
                epoch=standing.position.epochs,
                seconds=time.perf_counter() - self._epoch_start,
                elapsed=standing.elapsed,
                metrics=standing.metrics,
                best=best,
                gauges=standing.gauges,
            )
        )
        if self._over() or self._saver.due.after(standing.position.epochs):
            self._save()

    def _save(self) -> None:
        """Save the state of now, between two epochs or within one."""
        assert self._session is not None
        standing, saver = self._standing, self._saver
        if not saver.wanted:
            return
        if saver.last == standing.position:
            saver.due.hold()
            return
        scratch = {}
        if not standing.position.at_boundary:
            scratch = live_scratch(self._plans["epoch"], standing.position, standing.watched_paths)
        token = self._session.snapshot(scratch)
        if token is None:
            saver.due.postpone()
        else:
            saver.save(self._session, token, standing.fields(self.job.name, self._history.digest))

    def _wait_for_save(self) -> None:
        """A save in flight ends before the run does; another error is already being told."""
        try:
            self._saver.collect(wait=True)
        except SaveError as error:
            self._report(Warned(str(error)))

    def _finish(self) -> None:
        """After the loop: the last groups unless the outcome is a failure, and the end."""
        assert self._session is not None
        self._saver.collect(wait=True)
        decision = self._standing.decision
        if self._signal is None and decision is not None:
            self._saver.retain()
            self._saver.settle()
            self._history.clean()
            if decision.outcome == "fail":
                self._end("failed", decision.reason, EXIT_FAILED_BY_CONDITION)
                return
            load_best(self.job, self._session, self._history.run, self._plans)
            if self._run_group("download") and self._run_group("exit"):
                self._end("finished", decision.reason, EXIT_DONE)
                self._delete_on_success()
                return
        code = EXIT_SIGINT if self._signal == "SIGINT" else EXIT_SIGTERM
        self._end("interrupted", self._signal or "", code)

    def _delete_on_success(self) -> None:
        if self.job.checkpoint is not None and self.job.checkpoint.on_success == "delete":
            self._history.delete_checkpoints()

    def _end(self, outcome: str, reason: str, exit_code: int) -> None:
        """Write down and say how the attempt ended."""
        standing, saver = self._standing, self._saver
        unsaved = saver.wanted and saver.on_disk != standing.position
        state = outcome
        if unsaved and outcome in ("finished", "failed"):
            exit_code, state = EXIT_NOT_SAVED, "error"  # so that the lost epochs are run again
        where = saver.on_disk if unsaved and saver.on_disk is not None else standing.position
        self._history.end(state, reason, where.epochs, standing.elapsed)
        self._say_ended(outcome, reason, exit_code)

    def _say_ended(self, outcome: str, reason: str, exit_code: int) -> None:
        standing, saver = self._standing, self._saver
        self.outcome = RunEnded(
            outcome=outcome,
            reason=reason,
            exit_code=exit_code,
            epoch=standing.position.epochs,
            ran=self._ran,
            seconds=time.monotonic() - self._start_time,
            elapsed=standing.elapsed,
            metrics=standing.metrics,
            best=dict(standing.best),
            on_disk=saver.on_disk.epochs if saver.on_disk is not None else None,
            checkpoint=str(saver.path) if saver.path else None,
            saved=saver.saved,
            checkpoint_seconds=saver.seconds,
            run=self._history.name,
            run_dir=str(self._history.path) if self._history.path else None,
            place=saver.on_disk.place if saver.on_disk is not None else "",
        )
        self._report(self.outcome)

    def _nothing_to_do(self, choice: Choice) -> int:
        """A finished run: what is said of it is in its newest checkpoint; nothing is written."""
        record = self._history.head()
        if record is not None:
            self._stand_at(record)
            self._finished = self._history.checkpoint_path(record)
        else:  # ``on_success: delete``, or a job without checkpoints
            self._standing.position = Position(self._history.epochs)
        self._say_ended("nothing", "\n".join(choice.lines), choice.exit_code)
        return self._standing.position.epochs


class _Blobs(Mapping[str, Any]):
    """The blobs of a session; or, of a run that had nothing to do, those of its checkpoint."""

    def __init__(self, session: Session | None, checkpoint: Path | None) -> None:
        self._session = session
        self._checkpoint = checkpoint

    def __getitem__(self, name: str) -> Any:
        try:
            if self._checkpoint is not None:
                return load_blobs(self._checkpoint, [name])[name]
            if self._session is not None:
                return self._session.blob(name)
        except (TaskError, NotFoundError) as error:
            raise KeyError(str(error)) from None
        raise KeyError(f"{name!r}: the job has not been run")

    def __iter__(self) -> Iterator[str]:
        if self._checkpoint is not None:
            return iter(load_blobs(self._checkpoint))
        return iter(self._session.names() if self._session is not None else ())

    def __len__(self) -> int:
        return sum(1 for _ in self)
