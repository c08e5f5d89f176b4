"""One attempt at a run: from its current position until it stops, is stopped, or fails.

``JobRunner.train`` defines the order of the steps; this module implements them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jobrun.analysis.checks import warnings
from jobrun.analysis.graph import Plan, live_scratch, persistent
from jobrun.analysis.metrics import metric_names
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import Record
from jobrun.conditions.base import Condition, ConditionState
from jobrun.conditions.endless import first_none, never_ends
from jobrun.core.events import (
    CheckpointLoaded,
    EpochFinished,
    Event,
    Report,
    RunEnded,
    RunStarted,
    RunWentBack,
    Uploaded,
    Warned,
)
from jobrun.core.masking import masked
from jobrun.core.paths import start_directory
from jobrun.core.position import Position
from jobrun.engine.best import load_best
from jobrun.engine.history import History
from jobrun.engine.node_times import NodeTimes
from jobrun.engine.progress import RunProgress, best_of
from jobrun.engine.resume_policy import Choice, Request
from jobrun.engine.resume_survey import asks_verdict
from jobrun.engine.saver import Saver
from jobrun.errors import (
    EXIT_DONE,
    EXIT_FAILED_BY_CONDITION,
    EXIT_NOT_SAVED,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    DamagedError,
    JobrunError,
    SaveError,
    WorkerLostError,
)
from jobrun.model.job import Job
from jobrun.session.base import Control, Session
from jobrun.usercode.environment import differences

__all__ = ["Attempt", "Run"]

_NOTHING_PERSISTS = (
    "no blob of this job persists, so its checkpoints hold none: what is to be kept is written "
    "in 'init', read in 'download' or 'exit', or named under checkpoint.include"
)

_PLAIN = (bool, int, float, str)


@dataclass
class Run:
    """The state shared by all attempts of a runner.

    ``look`` is called periodically on the main thread.  Relative paths of a job without a spec
    begin at ``start``.
    ``signal`` is the name of the signal that asked the run to end, if any.
    """

    job: Job
    manager: CheckpointManager | None
    request: Request
    report: Report
    conditions: Sequence[tuple[Condition, bool]]
    plans: Mapping[str, Plan]
    history: History
    every_task: bool = False
    look: Callable[[], None] = lambda: None
    start: Path = field(default_factory=start_directory)
    signal: str | None = None

    @cached_property
    def epochs(self) -> int | None:
        """The limit of epochs, if there is one."""
        limits = (c.epoch_limit for c, _ in self.conditions)
        return min((n for n in limits if n is not None), default=None)

    @property
    def walltime(self) -> float | None:
        """The limit of seconds, if there is one."""
        limits = (c.time_limit for c, _ in self.conditions)
        return min((s for s in limits if s is not None), default=None)

    @property
    def may_end_earlier(self) -> bool:
        """Whether there are stop conditions of which nobody knows when they come true."""
        return any(
            c.epoch_limit is None and c.time_limit is None
            for c, fails in self.conditions
            if not fails
        )


class Attempt:
    """One attempt on a session: its progress, and the saves of it."""

    def __init__(self, run: Run, session: Session) -> None:
        self._run = run
        self.session = session
        self.standing = RunProgress(run.job, run.conditions)
        self.saver = Saver(
            run.job,
            run.manager,
            run.report,
            run.history.saved,
            run.epochs,
            watch=run.history.catalogue,
            named_now=run.history.mapped,
        )
        saver, due = self.saver, self.saver.due
        self._times = NodeTimes()
        self._control = Control(
            cut=lambda: run.signal is not None,
            report=run.report,
            every_task=run.every_task,
            interrupted=lambda: run.signal is not None,
            look=self._look,
        )
        self._epoch_control = Control(
            cut=lambda: run.signal is not None or (saver.wanted and due.inside()),
            applied=due.applied,
            batches_left=lambda: due.batches_left() if saver.wanted else None,
            spent=self._times.add,
            report=run.report,
            every_task=run.every_task,
            interrupted=lambda: run.signal is not None,
            look=self._look,
        )
        self._ran = self._restarts = 0
        self._uploaded = ""
        self._loaded: int | None = None
        self._epoch_start = time.perf_counter()
        self._start_time = time.monotonic()

    def _look(self) -> None:
        self.saver.look()
        self._run.look()

    @property
    def over(self) -> bool:
        """Whether no further epoch will be run."""
        return self.standing.decision is not None or self._run.signal is not None

    def start(self, choice: Choice) -> None:
        """Record the start in run.json and emit RunStarted."""
        run, history, start = self._run, self._run.history, choice.start
        try:
            history.begin(choice)
        except JobrunError:
            self._stand_where_it_began(start)
            raise
        if self.saver.wanted and not any(persistent(run.job).values()):
            run.report(Warned(_NOTHING_PERSISTS))
        for warning in warnings(run.job):
            at = f"{warning.where}: " if warning.where else ""
            run.report(Warned(f"{at}{warning.message}; {warning.hint}"))
        run.report(
            RunStarted(
                job=run.job.name,
                run=history.name,
                run_dir=str(history.path) if history.path else None,
                attempt=history.attempt,
                epoch=start.epoch if start else 0,
                checkpoint=start.id if start else None,
                epochs=run.epochs,
                session=self.session.description,
                metrics=metric_names(run.job),
                notes=choice.lines,
                place=start.place if start else "",
                only=run.request.only,
                walltime=run.walltime,
                may_end_earlier=run.may_end_earlier,
                elapsed=start.run_seconds if isinstance(start, Record) else 0.0,
                best=best_of(run.job, history.mapped(start)) if isinstance(start, Record) else {},
                vars={k: v for k, v in run.job.vars.items() if isinstance(v, _PLAIN)},
            )
        )
        if isinstance(start, Record):  # so that an end before the load reports it
            self.stand_at(start)

    def _stand_where_it_began(self, start: object) -> None:
        """Reset the progress to the one on disk, since the attempt achieved nothing."""
        if isinstance(start, Record):
            with suppress(JobrunError):  # the error is being reported already
                self.stand_at(start)

    def run_group(self, name: str) -> bool:
        """Run a group other than ``epoch``; return whether all its tasks were run."""
        plan = self._run.plans[name]
        if not plan.units or self._run.signal is not None:
            return self._run.signal is None
        place = Position(self.standing.position.epochs)
        return plan.finished(self.session.run(plan, place, self._control).tasks)

    def resume(self, choice: Choice) -> None:
        """Load the newest checkpoint that is verified whole, or the named one.

        Raises DamagedError if there is none; an older one never replaces a named one.
        """
        history = self._run.history
        failed: DamagedError | None = None
        for record in history.candidates(choice):
            try:
                self._load(record)
            except DamagedError as error:
                if history.names_checkpoint:
                    raise
                failed = failed or error
                history.skip(record.id, str(error))
                continue
            history.resume_at(record, choice)
            if asks_verdict(record):
                self.standing.decision = self.standing.verdict()
            return
        # They were whole at the decision, a moment ago.
        raise failed or DamagedError("no checkpoint is whole any more", where=str(history.path))

    def _load(self, record: Record) -> None:
        """Verify that a checkpoint is whole, and only then load it."""
        start = time.perf_counter()
        path = self._run.history.checkpoint_path(record)
        loaded = self.session.load_parts(path, self._run.history.parts(record))
        self.session.take_over()
        self.stand_at(record)
        if not record.at_boundary:
            self.session.resume_epoch(record.epoch + 1, self.standing.written)
        self._loaded = record.id
        self._run.report(
            CheckpointLoaded(
                id=record.id,
                epoch=record.epoch,
                path=str(path),
                bytes=sum(size for size, _ in loaded.values()),
                seconds=time.perf_counter() - start,
                differences=differences(record.versions, self.session.versions()),
                place=record.place,
                phases=_by_node(loaded),
            )
        )

    def go_back(self, error: WorkerLostError, choice: Choice) -> Choice:
        """Return the choice that restores the lost state of a run started as ``choice``.

        Raises ``error`` if the session does not restart by itself, or has no restarts left.
        """
        run, most = self._run, self.session.max_restarts
        self.wait_for_save()
        if self._restarts >= most or run.signal is not None:
            times = f"; {most} restart{'' if most == 1 else 's'} did not help" if most else ""
            raise WorkerLostError(error.message + times, hint=error.hint) from error
        self._restarts += 1
        again = run.history.back(choice)
        start = again.start
        self.standing = RunProgress(run.job, run.conditions)
        self.saver.lost()
        run.report(
            RunWentBack(
                error.message,
                self._restarts,
                most,
                start.epoch if start else 0,
                start.id if start else None,
                start.place if start else "",
            )
        )
        if isinstance(start, Record):
            self.stand_at(start)
        return again

    def stand_at(self, record: Record) -> None:
        """Set the progress to that of a checkpoint on disk."""
        self.standing.restore(self._run.history.mapped(record))
        path = self._run.history.checkpoint_path(record)
        self.saver.resumed(record.id, record.position, path, self._run.history.passed_over)

    def run_epoch(self) -> None:
        """Run the epoch, or the rest of it, to its end or to a cut, and save if due."""
        plan, standing = self._run.plans["epoch"], self.standing
        if standing.position.at_boundary:
            self._epoch_start = time.perf_counter()
        reached = self.session.run(plan, standing.position, self._epoch_control)
        self.saver.collect(wait=False)
        self._run.look()  # also if epochs are too short for the session to call it
        if not plan.finished(reached.tasks):
            standing.cut(reached)
            self.save()
            return
        before = standing.watched
        best = standing.finish_epoch(reached, self.session.scalars(standing.names))
        self.session.end_epoch()
        self._ran += 1
        self._run.report(
            EpochFinished(
                epoch=standing.position.epochs,
                seconds=time.perf_counter() - self._epoch_start,
                elapsed=standing.elapsed,
                metrics=standing.metrics,
                best=best,
                gauges=standing.gauges,
            )
        )
        self._warn_of_none(before)
        if self.over or self.saver.due.after(standing.position.epochs):
            self.save()
        endless = None if self.over else never_ends(self._run.job, standing.watched)
        if endless is not None:
            raise endless

    def _warn_of_none(self, before: Sequence[ConditionState]) -> None:
        """Warn once of a metric without a value: intended, or a forgotten ``return``.

        ``before`` are the states of the stop conditions before the epoch.
        """
        told = first_none(self._run.job, before, self.standing.watched)
        for text in told.values():
            self._run.report(Warned(text))
        for name in self.standing.without_value if self._ran == 1 else ():
            if name in told:
                continue
            epoch = self.standing.position.epochs
            text = f"metric {name!r} has no value in epoch {epoch}: it was None, or not written"
            self._run.report(Warned(text))

    def save(self) -> None:
        """Save the current state, between two epochs or within one."""
        standing, saver = self.standing, self.saver
        if not saver.wanted:
            return
        if saver.last == standing.position:
            saver.due.hold()
            return
        scratch: Mapping[str, Sequence[str]] = {}
        if not standing.position.at_boundary:
            plan = self._run.plans["epoch"]
            scratch = live_scratch(plan, standing.position, standing.watched_paths)
            standing.written = self.session.written(standing.names)
        versions = self.session.versions()
        fields = standing.fields(self._run.job.name, self._run.history.digest, versions)
        saver.save(self.session, scratch, fields)

    def finish(self) -> RunEnded:
        """Run the last groups unless the outcome is a failure, and end the run."""
        self.saver.collect(wait=True)
        decision = self.standing.decision
        if self._run.signal is None and decision is not None:
            self.saver.retain()
            self.saver.settle()
            self._run.history.clean()
            if decision.outcome == "fail":
                return self.end("failed", decision.reason, EXIT_FAILED_BY_CONDITION)
            if self.upload() and self._run_last_groups():
                code = self._note_end("finished", decision.reason, EXIT_DONE)
                if code == EXIT_DONE:
                    self._delete_on_success()
                return self.say_ended("finished", decision.reason, code)
        return self._end_interrupted()

    def exit_again(self, choice: Choice) -> RunEnded:
        """Load a checkpoint and run the last groups on it; save nothing.

        The best checkpoint is the best of those up to it, as if the run had ended there.
        """
        self.resume(choice)
        if self._run_last_groups(newest=self._loaded):
            return self.end("finished", "", EXIT_DONE)
        return self._end_interrupted()

    def _run_last_groups(self, newest: int | None = None) -> bool:
        run = self._run
        load_best(run.job, self.session, run.history, run.plans, newest)
        return self.run_group("download") and self.run_group("exit")

    def _end_interrupted(self) -> RunEnded:
        code = EXIT_SIGINT if self._run.signal == "SIGINT" else EXIT_SIGTERM
        return self.end("interrupted", self._run.signal or "", code)

    def upload(self) -> bool:
        """Upload checkpoints if the job asks for it; return whether the upload is complete."""
        run = self._run
        if run.job.upload is None or run.history.run is None:
            return True
        from jobrun.engine.uploading import upload  # few jobs need its imports

        folder = run.request.folder
        stopped = lambda: run.signal is not None  # noqa: E731
        return upload(run.job, run.history.run, folder, self._tell_uploaded, stopped, run.start)

    def _tell_uploaded(self, event: Event) -> None:
        if isinstance(event, Uploaded):
            self._uploaded = event.place
        self._run.report(event)

    def _delete_on_success(self) -> None:
        """Remove all checkpoints if the policy says so, once the run is recorded as done."""
        policy = self._run.job.checkpoint
        if policy is not None and policy.on_success == "delete":
            self._run.history.delete_checkpoints()
            self.saver.removed()

    def wait_for_save(self) -> None:
        """Wait for a save in flight; its failure is only a warning: an error is being raised."""
        try:
            self.saver.collect(wait=True)
        except SaveError as error:
            self._run.report(Warned(str(error)))
        except WorkerLostError:  # the data to save is gone
            return

    def end(self, outcome: str, reason: str, exit_code: int) -> RunEnded:
        """Record the end of the attempt in run.json and emit RunEnded."""
        return self.say_ended(outcome, reason, self._note_end(outcome, reason, exit_code))

    def _note_end(self, outcome: str, reason: str, exit_code: int) -> int:
        """Record the end of the attempt; return the exit code, changed if its end is not saved."""
        standing, saver = self.standing, self.saver
        unsaved = saver.wanted and saver.on_disk != standing.position
        state = outcome
        if unsaved and outcome in ("finished", "failed"):
            exit_code, state = EXIT_NOT_SAVED, "error"  # so that the lost epochs are run again
        where = saver.on_disk if unsaved and saver.on_disk is not None else standing.position
        self._run.history.end(state, reason, where.epochs, standing.elapsed)
        return exit_code

    def say_ended(self, outcome: str, reason: str, exit_code: int) -> RunEnded:
        """Emit RunEnded for the attempt."""
        standing, saver, history = self.standing, self.saver, self._run.history
        ended = RunEnded(
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
            run=history.name,
            run_dir=str(history.path) if history.path else None,
            place=saver.on_disk.place if saver.on_disk is not None else "",
            only=self._run.request.only,
            uploaded=self._uploaded,
            slowest=self._times.slowest(),
            before_failure=history.before_failure(standing.position, standing.fail_names)
            if outcome == "failed"
            else None,
        )
        ended = masked(ended)
        self._run.report(ended)
        return ended


def _by_node(loaded: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return the seconds per node if there are several, so that the slowest shows."""
    if len(loaded) < 2:
        return {}
    return {f"read {node}": seconds for node, (_, seconds) in loaded.items()}
