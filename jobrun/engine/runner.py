"""JobRunner: runs a job from its current position until it stops.

1. Decide: start afresh, resume, nothing to do, or refuse.  Then lock the run directory and remove
   leftovers of a crash.
2. Run ``setup``, at every start.  Resume: read the checkpoint meanwhile.
3. Fresh: run ``init``, save epoch 0.  Resume: skip ``init``, load a checkpoint verified whole.
4. On resume after an epoch, evaluate the stop conditions before running another.
5. Loop: run ``epoch``, let every stop condition observe, save if due, stop if one is true.
6. Unless the outcome is a failure, run ``download`` and ``exit``; then mark the run finished.

If only ``exit`` is run again, 6 follows 3, and the run keeps its state.

The order of the groups is that of Caffe2's JobRunner.  Two of its errors are avoided: a finished
job that is resumed runs no further epoch, and the states of the conditions are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.checks import check
from jobrun.analysis.graph import make_plan
from jobrun.checkpoint.codecs import import_codecs
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.conditions.parse import build
from jobrun.core.async_exceptions import asynchronous_error
from jobrun.core.events import Report, RunEnded, SaveAsked, Warned, warn
from jobrun.core.masking import masked
from jobrun.core.notices import received_by
from jobrun.core.paths import shown
from jobrun.core.position import Position
from jobrun.engine.attempt import Attempt
from jobrun.engine.history import history_of
from jobrun.engine.in_use import in_use
from jobrun.engine.results import Results
from jobrun.engine.resume_policy import Choice, Request
from jobrun.engine.run import Run
from jobrun.errors import EXIT_SIGINT, JobrunError, SpecError, WorkerLostError
from jobrun.model.job import GROUPS, Job
from jobrun.report.continued_files import ContinuedFiles, keeps_files
from jobrun.session.base import Session
from jobrun.session.local import LocalSession
from jobrun.usercode.reference import forbid_while_importing

__all__ = ["JobRunner"]


class JobRunner:
    """The runner of ``job``, saving it with ``manager`` (None: nothing is written anywhere).

    ``resume_from_epoch`` starts from the checkpoint of that epoch, even if there are later ones;
    ``accept_changes`` resumes the run of a job that has changed since.  ``request`` is what the
    commands ask for, in place of both.
    Without a ``report`` a notebook shows the progress (``progress_report``); elsewhere important
    events, such as a failed save, are Python warnings.
    ``check_inputs`` looks for tasks that change their inputs undeclared.  ``look`` is called
    after each epoch and a few times a second, on the thread that calls ``train``.  The end of the
    last ``train`` is in ``outcome``.  Raises SpecError, with all problems, if the job cannot be.
    """

    def __init__(
        self,
        job: Job,
        manager: CheckpointManager | None = None,
        resume_from_epoch: int | None = None,
        *,
        accept_changes: bool = False,
        report: Report | None = None,
        request: Request | None = None,
        check_inputs: bool = False,
        every_task: bool = False,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        analysis = JobAnalysis(job)
        problems = check(job, analysis)
        if problems:
            raise SpecError(problems)
        request = request or _request(job, resume_from_epoch, accept_changes)
        shows = _usual_report() if report is None else report
        if manager is not None and not keeps_files(shows):
            shows = ContinuedFiles(shows)
        history = history_of(job, manager, request, lambda event: shows(masked(event)))
        self.job = job
        self.outcome: RunEnded | None = None
        self._run = Run(
            analysis,
            manager,
            request,
            history.report,
            build(job, analysis.written),
            {name: make_plan(job, job.groups[name], analysis) for name in GROUPS},
            history,
            every_task,
            look,
        )
        self._check_inputs = check_inputs
        self._attempt: Attempt | None = None
        self._finished: Path | None = None

    def __repr__(self) -> str:
        manager, ended = self._run.manager, self.outcome
        where = "nothing is saved" if manager is None else shown(manager.run_dir)
        how = f", {ended.outcome} after {ended.epoch} epochs" if ended is not None else ""
        return f"JobRunner({self.job!r}, {where}{how})"

    def choose(self) -> Choice:
        """Return what ``train`` would do now; nothing is loaded or written."""
        return self._run.history.choose(self._run.conditions)

    def interrupt(self, signal_name: str) -> None:
        """Start no new work, save, and end the run.  For signal handlers."""
        self._run.interrupt(signal_name)

    def save_soon(self, signal_name: str) -> None:
        """Save at the next place where that is possible.  For signal handlers."""
        if self.job.checkpoint is None or self._run.manager is None:
            self._run.report(Warned(f"{signal_name}: this job writes no checkpoints"))
        elif self._attempt is not None:
            self._attempt.saver.due.requested = True
            self._run.report(SaveAsked(signal_name))

    @property
    def blobs(self) -> Mapping[str, Any]:
        """The blobs after ``train``, read-only, by name; with several nodes, ``node:name``."""
        return Results(self._attempt.session if self._attempt else None, self._finished)

    def train(self, session: Session | None = None) -> int:
        """Run the job on ``session``; return the number of epochs completed in the run.

        Without one it runs in this process, on a ``LocalSession``.

        Raises RunRefusedError if the run on disk is of another job, LockedError if another process
        or ``train`` holds it, UsageError if another ``train`` uses the session, TaskError if a task
        fails, and the other errors of the tree; earlier checkpoints stay.
        """
        forbid_while_importing()
        session = LocalSession() if session is None else session
        with (
            in_use(self, self._run.manager, session),
            received_by(lambda text: self._run.report(Warned(text))),
        ):
            self._finished = None
            attempt = self._attempt = Attempt(self._run, session)
            return self._train(session, attempt)

    def _train(self, session: Session, attempt: Attempt) -> int:
        choice = _checked(self.choose())
        if choice.action == "done":
            return self._nothing_to_do(self._run.history.finish_deletion(choice), attempt)
        if self.job.checkpoint is not None and self._run.manager is not None:
            import_codecs(self.job.checkpoint.compress)  # before tasks import anything
        session.control = attempt.control
        session.open(self.job, self._run.places(check=self._check_inputs), self._run.analysis)
        with self._holding(attempt) as choice:
            if choice.action == "done":
                return self._nothing_to_do(choice, attempt)
            attempt.start(choice)
            self.outcome = self._run_to_the_end(attempt, choice)
        return attempt.progress.position.epochs

    def _run_to_the_end(self, attempt: Attempt, choice: Choice) -> RunEnded:
        """Run the job; if a worker is lost, run it again from the last checkpoint."""
        while True:
            try:
                return self._run_once(attempt, choice)
            except WorkerLostError as error:
                choice = attempt.go_back(error, choice)
                attempt.session.open(
                    self.job, self._run.places(check=self._check_inputs), self._run.analysis
                )

    def _run_once(self, attempt: Attempt, choice: Choice) -> RunEnded:
        attempt.restorer.read_ahead(choice)
        if not attempt.run_group("setup"):
            return attempt.finish()  # nothing is restored into what is not there
        if choice.action == "exit":
            return attempt.exit_again(choice)
        if choice.action == "resume":
            attempt.restorer.resume(choice)
        elif attempt.run_group("init"):
            attempt.save()
        attempt.run_epochs()
        return attempt.finish()

    @contextmanager
    def _holding(self, attempt: Attempt) -> Iterator[Choice]:
        """Hold the run's lock, decide again, and record the end of the attempt if it fails."""
        self._run.history.lock()
        try:
            yield _checked(self.choose())
        except JobrunError as error:
            attempt.wait_for_save()
            self.outcome = attempt.ending.end("error", str(error.message), error.exit_code)
            raise
        except BaseException as error:  # Ctrl-C without a jobrun handler, or a bug
            told = asynchronous_error(error)
            interrupted = isinstance(error, KeyboardInterrupt)
            outcome, code = ("interrupted", EXIT_SIGINT) if interrupted else ("error", 1)
            end = attempt.ending.report_end if told is None else attempt.ending.end
            try:
                attempt.wait_for_save()
            finally:  # also if that is interrupted
                self.outcome = end(outcome, told.message if told else type(error).__name__, code)
            if told is None or interrupted:
                raise
            raise told from error
        finally:
            attempt.session.close()
            attempt.saver.close()
            self._run.history.unlock()
            self._run.interruption = None  # it applies to this attempt, not the next

    def _nothing_to_do(self, choice: Choice, attempt: Attempt) -> int:
        """Report a finished run from its newest checkpoint; nothing is written."""
        history = self._run.history
        record = history.head()
        if record is not None:
            attempt.restorer.restore_progress(record)
            self._finished = history.checkpoint_path(record)
        else:  # ``on_success: delete``, or a job without checkpoints
            attempt.progress.position = Position(history.epochs)
        self.outcome = attempt.ending.report_end(
            "nothing", "\n".join(choice.lines), choice.exit_code
        )
        return attempt.progress.position.epochs


def _checked(choice: Choice) -> Choice:
    """Return the choice, or raise its error if it is a refusal."""
    if choice.action in ("refuse", "new_run"):
        raise choice.refusal()
    return choice


def _request(job: Job, epoch: int | None, accept_changes: bool) -> Request:
    """Return the request to train a job, with the spec that it was loaded from."""
    origin = job.origin
    if origin is None:
        return Request(epoch=epoch, accept_changes=accept_changes)
    return Request(
        epoch=epoch,
        accept_changes=accept_changes,
        folder=origin.folder,
        spec_path=origin.path,
        spec_text=origin.text,
        resolved_text=origin.resolved,
    )


def _usual_report() -> Report:
    """Return what shows the events of a run if nothing else was asked for."""
    from jobrun.report.notebook import in_notebook

    if not in_notebook():
        return warn
    from jobrun.report.python import progress_report

    return progress_report()
