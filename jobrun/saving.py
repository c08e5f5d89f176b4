"""When a run is saved, and what happens if that fails: the checkpoint policy at work."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobrun.check import metric_names
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part import PartSummary
from jobrun.checkpoint.record import RecordFields
from jobrun.errors import SaveError
from jobrun.events import CheckpointFailed, CheckpointSaved, CheckpointsRemoved, Report, Warned
from jobrun.job import Job
from jobrun.policy import CheckpointPolicy, Keep
from jobrun.session.base import Session, Snapshot

__all__ = ["Saver"]


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


class Saver:
    """Saves a job's state as its policy says; does nothing for a job that wants no checkpoints.

    ``on_disk`` is the epoch of the newest checkpoint of this history (None: there is none),
    ``saved`` counts the saves of this attempt and ``seconds`` what the run waited for them.
    """

    def __init__(self, job: Job, manager: CheckpointManager | None, report: Report) -> None:
        self._nodes = tuple(job.nodes)
        self._report = report
        self._manager = manager if job.checkpoint is not None else None
        self._policy = job.checkpoint or CheckpointPolicy()
        self._protected: tuple[int, ...] = ()
        self.on_disk: int | None = None
        self.path: Path | None = None
        self.saved = 0
        self.seconds = 0.0
        if self._manager is not None and not self._policy.keep.all:
            self._manager.keep = _directed(job, self._policy.keep)

    @property
    def wanted(self) -> bool:
        """Whether there is anything to save to."""
        return self._manager is not None

    def resumed(self, id: int, epoch: int, path: Path) -> None:
        """The run goes on from this checkpoint: it stays until the first save is durable."""
        self._protected = (id,)
        self.on_disk = epoch
        self.path = path

    def due(self, epoch: int) -> bool:
        """Whether the state after ``epoch`` epochs is to be saved, were it not the last."""
        return self.on_disk is None or epoch - self.on_disk >= self._policy.every.epochs

    def save(self, session: Session, fields: RecordFields) -> bool:
        """Save now; gives whether that succeeded.

        Raises SaveError where the policy says that a failure ends the run, and always if there
        would be no whole checkpoint at all.
        """
        if self._manager is None or self.on_disk == fields.position.epochs:
            return False
        start = time.perf_counter()
        token = session.snapshot()
        source = _Source(session, token, self._nodes)
        id = self._manager.first_id
        try:
            saved = self._manager.save_snapshot(source, fields, self._protected)
        except SaveError as error:
            if self._policy.on_error == "fail" or self.on_disk is None:
                raise
            self._report(CheckpointFailed(id, fields.position.epochs, str(error)))
            return False
        finally:
            session.release(token)
            stall = time.perf_counter() - start
            self.seconds += stall
        self._protected = ()
        self.on_disk, self.path = saved.epoch, saved.path
        self.saved += 1
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
        return True


def _directed(job: Job, keep: Keep) -> Keep:
    """``keep`` with the direction that the job gives its best metric."""
    if keep.best is None:
        return keep
    smaller = metric_names(job).get(keep.best.metric) != "max"
    return replace(keep, best=replace(keep.best, smaller=smaller))
