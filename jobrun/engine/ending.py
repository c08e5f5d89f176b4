"""The end of an attempt: what is done after the loop, and how it is recorded and reported."""

from __future__ import annotations

import time

from jobrun.core.events import Event, RunEnded, Uploaded
from jobrun.core.masking import masked
from jobrun.core.resident_memory import memory_now, memory_peak
from jobrun.engine.node_times import NodeTimes
from jobrun.engine.progress import RunProgress
from jobrun.engine.run import Run
from jobrun.engine.saver import Saver
from jobrun.errors import EXIT_NOT_SAVED

__all__ = ["Ending"]


class Ending:
    """The end of an attempt, with what is reported only then.

    ``epochs_run`` counts the epochs of the attempt, ``times`` are the seconds of its nodes.
    """

    def __init__(self, run: Run, progress: RunProgress, saver: Saver) -> None:
        self._run = run
        self._progress = progress
        self._saver = saver
        self.epochs_run = 0
        self.times = NodeTimes()
        self._uploaded = ""
        self._start_time = time.monotonic()
        self._memory_before = memory_now()

    def upload(self) -> bool:
        """Upload checkpoints if the job asks for it; return whether the upload is complete."""
        run = self._run
        if run.job.upload is None or run.history.run is None:
            return True
        from jobrun.engine.uploading import upload  # few jobs need its imports

        stopped = lambda: run.interruption is not None  # noqa: E731
        return upload(run.job, run.history.run, run.places(), self._report_uploaded, stopped)

    def _report_uploaded(self, event: Event) -> None:
        if isinstance(event, Uploaded):
            self._uploaded = event.place
        self._run.report(event)

    def delete_on_success(self) -> None:
        """Remove all checkpoints if the policy says so, once the run is recorded as done."""
        policy = self._run.job.checkpoint
        if policy is not None and policy.on_success == "delete":
            self._run.history.delete_checkpoints()
            self._saver.removed()

    def end(self, outcome: str, reason: str, exit_code: int) -> RunEnded:
        """Record the end of the attempt in run.json and emit RunEnded."""
        return self.report_end(outcome, reason, self.record_end(outcome, reason, exit_code))

    def record_end(self, outcome: str, reason: str, exit_code: int) -> int:
        """Record the end of the attempt; return the exit code, changed if its end is not saved."""
        progress, saver = self._progress, self._saver
        unsaved = saver.wanted and saver.on_disk != progress.position
        state = outcome
        if unsaved and outcome in ("finished", "failed"):
            exit_code, state = EXIT_NOT_SAVED, "error"  # so that the lost epochs are run again
        where = saver.on_disk if unsaved and saver.on_disk is not None else progress.position
        self._run.history.end(state, reason, where.epochs, progress.elapsed)
        return exit_code

    def report_end(self, outcome: str, reason: str, exit_code: int) -> RunEnded:
        """Emit RunEnded for the attempt."""
        progress, saver, history = self._progress, self._saver, self._run.history
        ended = RunEnded(
            outcome=outcome,
            reason=reason,
            exit_code=exit_code,
            epoch=progress.position.epochs,
            ran=self.epochs_run,
            seconds=time.monotonic() - self._start_time,
            elapsed=progress.elapsed,
            metrics=progress.metrics,
            best=dict(progress.best),
            on_disk=saver.on_disk.epochs if saver.on_disk is not None else None,
            checkpoint=str(saver.path) if saver.path else None,
            saved=saver.saved,
            failed_saves=saver.failed,
            checkpoint_seconds=saver.seconds,
            run=history.name,
            run_dir=str(history.path) if history.path else None,
            place=saver.on_disk.place if saver.on_disk is not None else "",
            only=self._run.request.only,
            uploaded=self._uploaded,
            slowest=self.times.slowest(),
            before_failure=history.before_failure(progress.position, progress.fail_names)
            if outcome == "failed"
            else None,
            memory=memory_peak(),
            memory_before=self._memory_before,
        )
        ended = masked(ended)
        self._run.report(ended)
        return ended
