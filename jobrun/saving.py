"""When a run is saved, and what happens if that fails: the checkpoint policy at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from jobrun.check import metric_names
from jobrun.checkpoint.manager import CheckpointManager, Saved
from jobrun.checkpoint.part import PartSummary
from jobrun.checkpoint.record import RecordFields
from jobrun.errors import SaveError
from jobrun.events import CheckpointFailed, CheckpointSaved, CheckpointsRemoved, Report, Warned
from jobrun.job import Job
from jobrun.policy import CheckpointPolicy, Keep
from jobrun.position import Position
from jobrun.session.base import Session, Snapshot

__all__ = ["Due", "Saver"]


class Due:
    """Whether a save is due, by what has happened since the last one.

    ``applied`` and ``inside`` may be called from any thread while an epoch runs; a batch that is
    counted late is seen at the next look.
    """

    def __init__(self, policy: CheckpointPolicy) -> None:
        self._every = policy.every
        self._batches = 0
        self._epoch: int | None = None
        self._time = time.monotonic()
        self._postponed = False
        self.asked = False
        """Somebody wants a save at the next place where one can be made."""

    def saved(self, epoch: int) -> None:
        """A save was made with ``epoch`` epochs completed: everything counts from here."""
        self._batches = 0
        self._epoch = epoch
        self._time = time.monotonic()
        self._postponed = self.asked = False

    def postpone(self) -> None:
        """It cannot be saved here: it will be after the epoch."""
        self._postponed = True

    def applied(self) -> None:
        """One more batch was applied."""
        self._batches += 1

    def inside(self) -> bool:
        """Whether to save inside an epoch."""
        every = self._every
        if self._postponed:
            return False
        if self.asked:
            return True
        if every.batches is not None and self._batches >= every.batches:
            return self._gap_over()
        if every.seconds is not None and time.monotonic() - self._time >= every.seconds:
            return self._gap_over()
        return False

    def after(self, epoch: int) -> bool:
        """Whether to save now that ``epoch`` epochs are completed."""
        if self._epoch is None or self._postponed or self.inside():
            return True
        epochs = self._every.epochs
        return epochs is not None and epoch - self._epoch >= epochs and self._gap_over()

    def _gap_over(self) -> bool:
        return time.monotonic() - self._time >= self._every.min_gap


@dataclass(frozen=True, slots=True)
class _Source:
    """The blobs of a session at an instant, as the manager asks for them."""

    session: Session
    token: Snapshot
    nodes: Sequence[str]

    def write(self, node: str, directory: str, id: int) -> PartSummary:
        """Let the session write a node's part."""
        return self.session.save_part(self.token, node, Path(directory), id)

    def saved(self, id: int) -> None:
        """The values of the snapshot are in checkpoint ``id``."""
        self.session.saved(self.token, id)


@dataclass(frozen=True, slots=True)
class _Save:
    """A save in flight: what it is of, how it ends, and what the run has waited for it so far."""

    position: Position
    result: Future[Saved]
    stall: float


class Saver:
    """Saves a job's state as its policy says; does nothing for a job that wants no checkpoints.

    A save is written in the background while the run goes on; one is in flight at a time, and the
    next waits for it.  How it ended is said, or raised, by ``collect``.

    ``on_disk`` is the position of the newest checkpoint of this history (None: there is none),
    ``last`` that of the last save, however it ended; ``saved`` counts the saves of this attempt
    that succeeded and ``seconds`` what the run waited for them.  ``on_saved`` is called after each.
    """

    def __init__(
        self,
        job: Job,
        manager: CheckpointManager | None,
        report: Report,
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._nodes = tuple(job.nodes)
        self._report = report
        self._on_saved = on_saved
        self._manager = manager if job.checkpoint is not None else None
        self._policy = job.checkpoint or CheckpointPolicy()
        self._protected: tuple[int, ...] = ()
        self._writer = ThreadPoolExecutor(1, "jobrun-save")
        self._flying: _Save | None = None
        self.due = Due(self._policy)
        self.on_disk: Position | None = None
        self.last: Position | None = None
        self.path: Path | None = None
        self.saved = 0
        self.seconds = 0.0
        if self._manager is not None and not self._policy.keep.all:
            self._manager.keep = _directed(job, self._policy.keep)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to save to."""
        return self._manager is not None

    def resumed(self, id: int, position: Position, path: Path) -> None:
        """The run goes on from this checkpoint: it stays until the first save is durable."""
        self._protected = (id,)
        self.on_disk = self.last = position
        self.path = path
        self.due.saved(position.epochs)

    def save(self, session: Session, token: Snapshot, fields: RecordFields) -> None:
        """Save a snapshot, in the background unless the policy says otherwise.

        Raises what ``collect`` does, of the save before.
        """
        assert self._manager is not None
        self.collect(wait=True)
        start = time.perf_counter()
        self.last = fields.position
        self.due.saved(fields.position.epochs)
        source = _Source(session, token, self._nodes)
        result = self._writer.submit(self._write, session, token, source, fields)
        self._flying = _Save(fields.position, result, time.perf_counter() - start)
        if not self._policy.background:
            self.collect(wait=True)

    def _write(
        self, session: Session, token: Snapshot, source: _Source, fields: RecordFields
    ) -> Saved:
        assert self._manager is not None
        try:
            return self._manager.save_snapshot(source, fields, self._protected)
        finally:
            session.release(token)

    def collect(self, *, wait: bool) -> None:
        """Say how the save in flight ended, if it has, or once it has.

        Raises SaveError where the policy says that a failure ends the run, and always if there
        would be no whole checkpoint at all.
        """
        flying = self._flying
        if flying is None or not (wait or flying.result.done()):
            return
        self._flying = None
        start = time.perf_counter()
        try:
            saved = flying.result.result()
        except SaveError as error:
            if self._policy.on_error == "fail" or self.on_disk is None:
                raise
            failed = self._manager.first_id - 1 if self._manager is not None else 0
            self._report(CheckpointFailed(failed, flying.position.epochs, str(error)))
            return
        finally:
            stall = flying.stall + time.perf_counter() - start
            self.seconds += stall
        self._protected = ()
        self.on_disk, self.path = saved.record.position, saved.path
        self.saved += 1
        self._say_saved(saved, stall)
        self._on_saved()

    def close(self) -> None:
        """End the writer thread, once a save in flight is over."""
        self._writer.shutdown()

    def _say_saved(self, saved: Saved, stall: float) -> None:
        self._report(
            CheckpointSaved(
                id=saved.id,
                epoch=saved.epoch,
                path=str(saved.path),
                bytes=saved.bytes,
                files=saved.files,
                seconds=sum(saved.seconds.values()),
                stall=stall,
                phases=dict(saved.seconds),
            )
        )
        if saved.removed:
            self._report(CheckpointsRemoved(saved.removed))
        for warning in saved.warnings:
            self._report(Warned(warning))


def _directed(job: Job, keep: Keep) -> Keep:
    """``keep`` with the direction that the job gives its best metric."""
    if keep.best is None:
        return keep
    smaller = metric_names(job).get(keep.best.metric) != "max"
    return replace(keep, best=replace(keep.best, smaller=smaller))
