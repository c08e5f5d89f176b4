"""The history of a run without a directory: every run is a fresh one, and nothing is written.

It has the methods of ``History``, so that nobody who uses one has to ask whether there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobrun.checkpoint.record import Record
from jobrun.conditions.base import Condition
from jobrun.core.events import Report
from jobrun.core.position import Position
from jobrun.engine.resume_policy import Choice, Request
from jobrun.errors import NotFoundError, UsageError
from jobrun.model.job import Job

__all__ = ["NoHistory"]


class NoHistory:
    """The history of a run without a directory; the meaning of each method is in ``History``."""

    run = path = catalogue = None
    names_checkpoint = False
    epochs = 0
    attempt = 1
    passed_over: tuple[int, ...] = ()
    digest = ""

    def __init__(self, job: Job, request: Request, report: Report) -> None:
        self.name = job.name
        self.report = report
        self._request = request

    def choose(self, conditions: Sequence[tuple[Condition, bool]]) -> Choice:
        """Return ``fresh``; raises UsageError if the request names a checkpoint."""
        if self._request.names_checkpoint or self._request.only:
            raise UsageError(
                "a checkpoint is named, but there is no CheckpointManager to find it",
                hint='JobRunner(job, CheckpointManager("runs/name"), epoch)',
            )
        return Choice("fresh")

    def lock(self) -> None:
        """Do nothing: no other process can use the run."""

    def unlock(self) -> None:
        """Do nothing, as ``lock``."""

    def begin(self, choice: Choice) -> None:
        """Do nothing: there is no run.json."""

    def end(self, state: str, reason: str, epoch: int, elapsed: float) -> None:
        """Do nothing, as ``begin``."""

    def back(self, choice: Choice) -> Choice:
        """Return ``choice``: a run whose state is lost starts again."""
        return choice

    def clean(self) -> None:
        """Do nothing: a crash leaves nothing."""

    def head(self) -> None:
        """Return None: there are no checkpoints."""

    def before_failure(self, place: Position, names: Iterable[str]) -> None:
        """Return None, as ``head``."""

    def candidates(self, choice: Choice) -> Iterator[Record]:
        """Yield nothing, as ``head``."""
        return iter(())

    def checkpoint_path(self, record: Record) -> Path:
        """Raise NotFoundError: the record is of another run."""
        raise NotFoundError(f"checkpoint_{record.id} is in no run directory of this run")

    def parts(self, record: Record) -> dict[str, str]:
        """Return each node of the record as its own part."""
        return {node: node for node in record.nodes}

    def mapped(self, record: Record) -> Record:
        """Return the record as it is."""
        return record

    def skip(self, id: int, reason: str) -> None:
        """Do nothing: there are no checkpoints."""

    def resume_at(self, record: Record, choice: Choice) -> None:
        """Do nothing, as ``skip``."""

    def saved(self) -> None:
        """Do nothing: nothing is saved."""

    def delete_checkpoints(self) -> list[int]:
        """Return an empty list: nothing is saved."""
        return []

    def finish_deletion(self, choice: Choice) -> Choice:
        """Return ``choice``: there is nothing to delete."""
        return choice
