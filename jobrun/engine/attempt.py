"""One attempt at a run: from its current position until it stops, is stopped, or fails.

``JobRunner.train`` defines the order of the steps; this module implements them, with
``restoring.py`` for a resume and ``ending.py`` for the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from jobrun.analysis.checks import warnings
from jobrun.analysis.metrics import metric_names
from jobrun.analysis.persistence import live_scratch, persistent
from jobrun.checkpoint.record import Record
from jobrun.conditions.decision import ConditionState
from jobrun.conditions.endless import first_none, never_ends
from jobrun.core.events import EpochFinished, RunEnded, RunStarted, RunWentBack, Warned
from jobrun.core.position import Position
from jobrun.engine.best_metric import load_best
from jobrun.engine.ending import Ending
from jobrun.engine.progress import RunProgress
from jobrun.engine.restoring import Restorer
from jobrun.engine.resume_policy import Choice
from jobrun.engine.run import Run
from jobrun.engine.saver import Saver
from jobrun.engine.slurm import time_to_stop
from jobrun.errors import (
    EXIT_DONE,
    EXIT_FAILED_BY_CONDITION,
    JobrunError,
    SaveError,
    WorkerLostError,
    exit_code_of_signal,
)
from jobrun.session.base import Control, Session

__all__ = ["Attempt"]

_NOTHING_PERSISTS = (
    "no blob of this job persists, so its checkpoints hold none: what is to be kept is written "
    "in 'init', read in 'download' or 'exit', or named under checkpoint.include"
)

_PLAIN = (bool, int, float, str)


class Attempt:
    """One attempt on a session: its progress, and the saves of it."""

    def __init__(self, run: Run, session: Session) -> None:
        self._run = run
        self.session = session
        self.progress = RunProgress(run.analysis, run.conditions)
        self.saver = Saver(
            run.analysis,
            run.manager,
            run.report,
            run.history.saved,
            run.epochs,
            watch=run.history.catalogue,
            named_now=run.history.mapped,
        )
        saver, due = self.saver, self.saver.due
        self.restorer = Restorer(run, session, self.progress, saver)
        self.ending = Ending(run, self.progress, saver)
        run_dir = str(run.history.path or "")
        self.control = Control(
            run_dir=run_dir,
            cut=lambda: run.interruption is not None,
            report=run.report,
            every_task=run.every_task,
            interrupted=lambda: run.interruption is not None,
            look=self._look,
        )
        self._epoch_control = Control(
            run_dir=run_dir,
            cut=lambda: run.interruption is not None or (saver.wanted and due.inside()),
            applied=due.applied,
            batches_left=lambda: due.batches_left() if saver.wanted else None,
            spent=self.ending.times.add,
            report=run.report,
            every_task=run.every_task,
            interrupted=lambda: run.interruption is not None,
            look=self._look,
        )
        self._restarts = 0
        self._epoch_start = time.perf_counter()

    def _look(self) -> None:
        self.saver.look()
        self._run.look()
        self._stop_in_time()

    def _stop_in_time(self) -> None:
        """Interrupt the run while there is time to save it before the Slurm job ends."""
        run = self._run
        end = run.slurm.end
        if end is None or not run.ends_with_slurm or run.interruption is not None:
            return
        if time_to_stop(end, self.saver.longest):
            run.interrupt(run.slurm.end_text)

    @property
    def over(self) -> bool:
        """Whether no further epoch will be run."""
        return self.progress.decision is not None or self._run.interruption is not None

    def start(self, choice: Choice) -> None:
        """Record the start in run.json and emit RunStarted."""
        start = choice.start
        try:
            self._run.history.begin(choice)
        except JobrunError:
            self._reset_progress(start)
            raise
        self._warn_at_start()
        self._run.report(self._started(choice))
        if isinstance(start, Record):  # so that an end before the load reports it
            self.restorer.restore_progress(start)

    def _warn_at_start(self) -> None:
        """Report what a user should know of the job before anything runs."""
        run = self._run
        if self.saver.wanted and not any(persistent(run.analysis).values()):
            run.report(Warned(_NOTHING_PERSISTS))
        for warning in warnings(run.analysis):
            at = f"{warning.where}: " if warning.where else ""
            run.report(Warned(f"{at}{warning.message}; {warning.hint}"))
        if run.ends_with_slurm and run.slurm.end is None:
            run.report(Warned(f"'walltime: slurm' has no effect: {run.slurm.end_text}"))

    def _started(self, choice: Choice) -> RunStarted:
        """Return the event of the start."""
        run, history, start = self._run, self._run.history, choice.start
        record = start if isinstance(start, Record) else None
        return RunStarted(
            job=run.job.name,
            run=history.name,
            run_dir=str(history.path) if history.path else None,
            attempt=history.attempt,
            epoch=start.epoch if start else 0,
            checkpoint=start.id if start else None,
            epochs=run.epochs,
            session=self.session.description,
            metrics=metric_names(run.analysis),
            notes=choice.lines,
            place=start.place if start else "",
            only=run.request.only,
            walltime=run.walltime,
            may_end_earlier=run.may_end_earlier,
            elapsed=record.run_seconds if record else 0.0,
            best=self.progress.best_at(history.mapped(record)) if record else {},
            vars={k: v for k, v in run.job.vars.items() if isinstance(v, _PLAIN)},
            slurm_job=run.slurm.id,
            requeued=run.slurm.requeued,
            spec=str(run.request.spec_path or ""),
            code=str(run.request.folder or "") if run.request.spec_path else "",
        )

    def _reset_progress(self, start: object) -> None:
        """Reset the progress to the one on disk, since the attempt achieved nothing."""
        if isinstance(start, Record):
            with suppress(JobrunError):  # the error is being reported already
                self.restorer.restore_progress(start)

    def run_group(self, name: str) -> bool:
        """Run a group other than ``epoch``; return whether all its tasks were run."""
        plan = self._run.plans[name]
        if not plan.units or self._run.interruption is not None:
            return self._run.interruption is None
        place = Position(self.progress.position.epochs)
        return plan.finished(self.session.run(plan, place, self.control).tasks)

    def go_back(self, error: WorkerLostError, choice: Choice) -> Choice:
        """Return the choice that restores the lost state of a run started as ``choice``.

        Raises ``error`` if the session does not restart by itself, or has no restarts left.
        """
        run, most = self._run, self.session.max_restarts
        self.wait_for_save()
        if self._restarts >= most or run.interruption is not None:
            times = f"; {most} restart{'' if most == 1 else 's'} did not help" if most else ""
            raise WorkerLostError(error.message + times, hint=error.hint) from error
        self._restarts += 1
        again = run.history.back(choice)
        start = again.start
        self.progress.reset()
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
            self.restorer.restore_progress(start)
        return again

    def run_epochs(self) -> None:
        """Run epochs until no further one is to be run."""
        if not self.over:
            self.session.run_loop(self._run_epochs, self._run.look)

    def _run_epochs(self) -> None:
        while not self.over:
            self._run_epoch()

    def _run_epoch(self) -> None:
        """Run the epoch, or the rest of it, to its end or to a cut, and save if due."""
        plan, progress = self._run.plans["epoch"], self.progress
        if progress.position.at_boundary:
            self._epoch_start = time.perf_counter()
        self.saver.due.begin()
        reached = self.session.run(plan, progress.position, self._epoch_control)
        self.saver.collect(wait=False)
        self._look()  # also if epochs are too short for the session to call it
        if not plan.finished(reached.tasks):
            progress.cut(reached)
            self.save()
            return
        before = progress.watched
        best = progress.finish_epoch(reached, self.session.scalars(progress.names))
        self.session.end_epoch()
        self.ending.epochs_run += 1
        self._run.report(
            EpochFinished(
                epoch=progress.position.epochs,
                seconds=time.perf_counter() - self._epoch_start,
                elapsed=progress.elapsed,
                metrics=progress.metrics,
                best=best,
                progress_texts=progress.texts,
            )
        )
        self._warn_of_none(before)
        if self.over or self.saver.due.after(progress.position.epochs):
            self.save()
        endless = None if self.over else never_ends(self._run.job, progress.watched)
        if endless is not None:
            raise endless

    def _warn_of_none(self, before: Sequence[ConditionState]) -> None:
        """Warn once of a metric without a value: intended, or a forgotten ``return``.

        ``before`` are the states of the stop conditions before the epoch.
        """
        reported = first_none(self._run.job, before, self.progress.watched)
        for text in reported.values():
            self._run.report(Warned(text))
        for name in self.progress.without_value if self.ending.epochs_run == 1 else ():
            if name in reported:
                continue
            epoch = self.progress.position.epochs
            text = f"metric {name!r} has no value in epoch {epoch}: it was None, or not written"
            self._run.report(Warned(text))

    def save(self) -> None:
        """Save the current state, between two epochs or within one."""
        progress, saver = self.progress, self.saver
        if not saver.wanted:
            return
        if saver.last == progress.position:
            saver.due.hold()
            return
        scratch: Mapping[str, Sequence[str]] = {}
        if not progress.position.at_boundary:
            plan = self._run.plans["epoch"]
            scratch = live_scratch(plan, progress.position, progress.watched_paths)
            progress.written = self.session.written(progress.names)
        versions = self.session.versions()
        fields = progress.fields(self._run.job.name, self._run.history.digest, versions)
        saver.save(self.session, scratch, fields)

    def finish(self) -> RunEnded:
        """Run the last groups unless the outcome is a failure, and end the run."""
        self.saver.collect(wait=True)
        decision = self.progress.decision
        if self._run.interruption is None and decision is not None:
            self.saver.retain()
            self.saver.settle()
            self._run.history.clean()
            if decision.outcome == "fail":
                return self.ending.end("failed", decision.reason, EXIT_FAILED_BY_CONDITION)
            if self.ending.upload() and self._run_last_groups():
                code = self.ending.record_end("finished", decision.reason, EXIT_DONE)
                if code == EXIT_DONE:
                    self.ending.delete_on_success()
                return self.ending.report_end("finished", decision.reason, code)
        return self._end_interrupted()

    def exit_again(self, choice: Choice) -> RunEnded:
        """Load a checkpoint and run the last groups on it; save nothing.

        The best checkpoint is the best of those up to it, as if the run had ended there.
        """
        self.restorer.resume(choice)
        if self._run_last_groups(newest=self.restorer.loaded):
            return self.ending.end("finished", "", EXIT_DONE)
        return self._end_interrupted()

    def _run_last_groups(self, newest: int | None = None) -> bool:
        run = self._run
        load_best(run.analysis, self.session, run.history, run.plans, newest)
        return self.run_group("download") and self.run_group("exit")

    def _end_interrupted(self) -> RunEnded:
        name = self._run.interruption or ""
        return self.ending.end("interrupted", name, exit_code_of_signal(name))

    def wait_for_save(self) -> None:
        """Wait for a save in flight; its failure is only a warning: an error is being raised."""
        try:
            self.saver.collect(wait=True)
        except SaveError as error:
            self._run.report(Warned(str(error)))
        except WorkerLostError:  # the data to save is gone
            return
