"""Loading a checkpoint: the blobs into the session, the progress into the attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping

from jobrun.checkpoint.record import Record
from jobrun.core.events import CheckpointLoaded
from jobrun.engine.progress import RunProgress
from jobrun.engine.resume_policy import Choice
from jobrun.engine.resume_survey import evaluates_stops
from jobrun.engine.run import Run
from jobrun.engine.saver import Saver
from jobrun.errors import DamagedError, JobrunError
from jobrun.runs.node_map import copied_nodes
from jobrun.session.base import Session
from jobrun.usercode.environment import differences

__all__ = ["Restorer"]


class Restorer:
    """Restores an attempt from its checkpoints; ``loaded`` is the id of the last one."""

    def __init__(self, run: Run, session: Session, progress: RunProgress, saver: Saver) -> None:
        self._run = run
        self._session = session
        self._progress = progress
        self._saver = saver
        self.loaded: int | None = None

    def read_ahead(self, choice: Choice) -> None:
        """Let the session read the checkpoint of a resume while ``setup`` runs.

        Errors are left to ``resume``.
        """
        record, history = choice.start, self._run.history
        if choice.action == "fresh" or not isinstance(record, Record):
            return
        try:
            parts = history.parts(record)
        except JobrunError:
            return
        self._session.read_ahead(history.checkpoint_path(record), parts.values(), record.bytes)

    def resume(self, choice: Choice) -> None:
        """Load the newest checkpoint that is verified whole, or the named one.

        Raises DamagedError if there is none; an older one never replaces a named one.
        """
        history = self._run.history
        failed: DamagedError | None = None
        for record in history.candidates(choice):
            try:
                loaded = self._load(record)
            except DamagedError as error:
                if history.names_checkpoint:
                    raise
                failed = failed or error
                history.skip(record.id, str(error))
                continue
            history.resume_at(record, choice)
            self._run.report(loaded)  # now later epochs are undone
            if evaluates_stops(record):
                self._progress.decision = self._progress.verdict()
            return
        # They were whole at the decision, a moment ago.
        raise failed or DamagedError("no checkpoint is whole any more", where=str(history.path))

    def _load(self, record: Record) -> CheckpointLoaded:
        """Verify that a checkpoint is whole, and only then load it; return the event of that."""
        start = time.perf_counter()
        path = self._run.history.checkpoint_path(record)
        parts = self._run.history.parts(record)
        loaded = self._session.load_parts(path, parts, copied_nodes(parts))
        self._session.take_over()
        self.restore_progress(record)
        if not record.at_boundary:
            self._session.resume_epoch(record.epoch + 1, self._progress.written)
        self.loaded = record.id
        return CheckpointLoaded(
            id=record.id,
            epoch=record.epoch,
            path=str(path),
            bytes=sum(size for size, _ in loaded.values()),
            seconds=time.perf_counter() - start,
            differences=differences(record.versions, self._session.versions()),
            place=record.place,
            phases=_by_node(loaded),
        )

    def restore_progress(self, record: Record) -> None:
        """Set the progress to that of a checkpoint on disk."""
        self._progress.restore(self._run.history.mapped(record))
        path = self._run.history.checkpoint_path(record)
        self._saver.resumed(record.id, record.position, path, self._run.history.passed_over)


def _by_node(loaded: Mapping[str, tuple[int, float]]) -> dict[str, float]:
    """Return the seconds per node if there are several, so that the slowest shows."""
    if len(loaded) < 2:
        return {}
    return {f"read {node}": seconds for node, (_, seconds) in loaded.items()}
