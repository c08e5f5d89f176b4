"""A runner's run directory: the decisions made from it, and the writes into it.

Nothing here depends on what the job's tasks do.  Without a manager there is no directory:
``engine/no_history.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from jobrun.analysis.facts import job_facts
from jobrun.analysis.identity import digest
from jobrun.checkpoint.catalog import span
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.publish import clean_leftovers, discard, find_leftovers
from jobrun.checkpoint.record import Record
from jobrun.conditions.base import Condition
from jobrun.core.events import (
    CheckpointSkipped,
    CheckpointsMoved,
    CheckpointsRemoved,
    LeftoversCleaned,
    Report,
    Warned,
)
from jobrun.core.masking import mask
from jobrun.core.paths import file_from, resolved
from jobrun.core.position import Position
from jobrun.core.ranking import before_failure
from jobrun.engine.no_history import NoHistory
from jobrun.engine.registry_hook import RegistryHook
from jobrun.engine.resume_policy import Choice, Request
from jobrun.engine.resume_survey import Chooser, node_maps
from jobrun.engine.weight_files import weight_files
from jobrun.errors import DamagedError, JobrunError, LockedError, SaveError
from jobrun.model.job import Job
from jobrun.runs.node_map import NodeMap, NodeMaps
from jobrun.runs.run_state import RunState, utc_now
from jobrun.runs.rundir import RunDir
from jobrun.usercode.code_hash import digests, loaded_code

__all__ = ["AnyHistory", "History", "history_of"]


def history_of(
    job: Job, manager: CheckpointManager | None, request: Request, report: Report
) -> AnyHistory:
    """Return the history in the manager's directory, or one without a directory."""
    if manager is None:
        return NoHistory(job, request, report)
    return History(job, manager, request, report)


class History:
    """The history of a run in the directory of a manager."""

    def __init__(
        self, job: Job, manager: CheckpointManager, request: Request, report: Report
    ) -> None:
        self._job = job
        self._manager = manager
        self._request = request
        self.catalogue = _catalogue(job, manager, request, report)
        self.report = report if self.catalogue is None else self.catalogue.forward
        """The reporter of all events; it passes them on to the catalogue too."""
        self._report = self.report
        self._named = request.names_checkpoint  # by the user, or by the catalogue
        self._facts = job_facts(job)
        self.digest = digest(self._facts)
        self.run = RunDir(manager.run_dir, lock=manager.lock)
        self._chooser = Chooser(job, self._facts, request, self.run, self.catalogue)
        self._state: RunState | None = None
        self._nodes = request.nodes or NodeMap()
        self._maps = NodeMaps().after(None, sys.maxsize, self._nodes)
        self._skipped: tuple[int, ...] = ()
        self._exit: Mapping[str, Any] | None = None  # the attempt, if it runs only ``exit``
        self._resumed = False

    @property
    def names_checkpoint(self) -> bool:
        """Whether only the named checkpoint may be used.

        Once the run has continued from there, it has newer ones of its own.
        """
        return self._named and not self._resumed

    @property
    def path(self) -> Path:
        """The run directory, absolute."""
        return self.run.path.absolute()

    @property
    def name(self) -> str:
        """The run's name: its directory's."""
        return self.run.name

    @property
    def epochs(self) -> int:
        """The number of epochs completed, from run.json."""
        state = self.run.state()
        return state.epoch if state is not None else 0

    @property
    def attempt(self) -> int:
        """The number of this start of the run, from 1."""
        return self._state.attempts if self._state is not None else 1

    def choose(self, conditions: Sequence[tuple[Condition, bool]]) -> Choice:
        """Return the choice; raises NotFoundError if the request names something missing."""
        choice, self._named = self._chooser.choose(conditions)
        return choice

    def _used_files(self) -> dict[str, str]:
        """Return the files of code and of weights that the job uses, with their digests."""
        folder = self._request.folder
        if folder is None:
            return {}
        weights = weight_files(self._job, self._request, self.run.path)
        return loaded_code(folder) | digests(weights, folder)

    # The lock of the run, and the writes into it.

    def lock(self) -> None:
        """Lock the run for the life of the attempt; raises LockedError."""
        self.run.lock()

    def unlock(self) -> None:
        """Release the lock of the run."""
        self.run.unlock()

    def begin(self, choice: Choice) -> None:
        """Remove leftovers of a crash, and record the start of an attempt."""
        self._exit = None
        self.run.finish_rewind()
        self.clean()
        before = self.run.state()
        if choice.action == "exit" and before is not None:
            self._begin_exit(before, choice)
            return
        if choice.action == "fresh" and before is not None:
            ours = [id for id in self.run.catalog.ids() if self.run.catalog.was_whole(id)]
            self._set_aside(ours, before.attempts)
        self._manager.number_from(self.run.next_id())
        if self._request.spec_text:
            self.run.store_spec(self._request.spec_text, self._request.resolved_text)
        folder = self._request.folder
        base = before or RunState(name=self.run.name, job=self._job.name, attempts=0)
        maps = self._map_from(base, choice, self._manager.first_id)
        self._state = replace(
            base,
            job=self._job.name,
            digest=self.digest,
            facts=self._facts,
            code=self._used_files(),
            folder=str(resolved(folder)) if folder is not None else None,
            folder_relative=_relative(folder, self.run.path),
            spec=_spec(self._request),
            built_in_python=self._request.spec_path is None,
            state="running",
            reason="",
            attempts=base.attempts + 1,
            next_id=self._manager.first_id,
            node_maps=maps.to_json(),
            created=base.created or utc_now(),
            rebuilt=False,
        )
        self._state = self.run.write(self._state)
        self._resumed = choice.action == "fresh"

    def _map_from(self, before: RunState, choice: Choice, below: int) -> NodeMaps:
        """Adopt the maps of nodes that are valid from here on.

        Returns those to record now: all, as long as a rewind has not left later checkpoints.
        """
        self._maps = node_maps(
            self._request, before, choice.start, rewind=choice.rewind, below=below
        )
        if not choice.rewind:
            return self._maps
        return NodeMaps.from_json(before.node_maps).after(sys.maxsize, below, self._nodes)

    def _begin_exit(self, before: RunState, choice: Choice) -> None:
        """Record the attempt; the run itself keeps its state."""
        assert choice.start is not None
        self._map_from(before, choice, sys.maxsize)
        begun = {
            "attempt": before.attempts + 1,
            "epoch": choice.start.epoch,
            "checkpoint": choice.start.id,
            "started": utc_now(),
        }
        self._state = replace(
            before, attempts=before.attempts + 1, exits=(*before.exits, begun), rebuilt=False
        )
        self._exit = begun
        self.run.write(self._state)

    def back(self, choice: Choice) -> Choice:
        """Return the choice that restores the lost state of a run started as ``choice``."""
        if not self._resumed:
            return choice
        head = self.head()
        if choice.action == "exit" or head is None:
            return choice if choice.action == "exit" else Choice("fresh")
        return Choice("resume", start=head)

    def clean(self) -> None:
        """Remove leftovers of a crash or of a failed operation, and report them."""
        try:
            cleaned = [*clean_leftovers(self.run.path), *self.run.clean()]
        except OSError as error:
            self._report(Warned(f"leftovers cannot be cleaned up: {error}"))
            return
        if cleaned:
            self._report(LeftoversCleaned(tuple(cleaned)))

    def head(self) -> Record | None:
        """Return the newest checkpoint of this history, or None."""
        return self.run.head()

    def before_failure(self, place: Position, names: Iterable[str]) -> int | None:
        """Return the epoch to go back to after a failure at ``place``, by conditions on ``names``.

        None if no checkpoint from before it is left, or can be read.
        """
        try:
            catalog = self.run.checkpoints
            records = catalog.listed()
        except JobrunError:
            return None
        last = place.epochs - place.at_boundary
        earlier = [self.mapped(r) for r in records if r.epoch <= last]
        safe = catalog.whole(earlier, lambda left: before_failure(left, names))
        return safe.epoch if safe is not None else None

    def checkpoint_path(self, record: Record) -> Path:
        """Return the path of a checkpoint."""
        return self.run.catalog.path(record.id)

    def candidates(self, choice: Choice) -> Iterator[Record]:
        """Yield the checkpoints to resume from, best first: only one if the user named it.

        One that was whole once and is damaged is reported and skipped.
        """
        if choice.start is None:
            return
        if self.names_checkpoint:
            yield self.run.catalog.check(choice.start.id)
            return
        for id in reversed(self.run.catalog.ids()):
            try:
                record = self.run.catalog.check(id)
            except DamagedError as error:
                if self.run.catalog.is_ours(id):
                    self.skip(id, str(error))
                continue
            yield record

    def parts(self, record: Record) -> dict[str, str]:
        """Return for each node of the job the node of a checkpoint whose part it gets.

        Raises DamagedError or UsageError if nodes differ and no map is given.
        """
        return self._maps.parts(record, tuple(self._job.nodes))

    def mapped(self, record: Record) -> Record:
        """Return the record of a checkpoint with the names of the job's nodes."""
        return self._maps.mapped(record)

    def skip(self, id: int, reason: str) -> None:
        """Mark a damaged checkpoint, to be set aside once the next save is durable."""
        self._skipped = (*self._skipped, id)
        self._report(CheckpointSkipped(id, reason))

    def resume_at(self, record: Record, choice: Choice) -> None:
        """Continue after a loaded checkpoint: later ones belong to another history."""
        self._resumed = True
        if choice.rewind:
            self._manager.known.forget()
            maps = self._maps.to_json()
            if self._state is not None and [*self._state.node_maps] != maps:
                self._state = self.run.write(replace(self._state, node_maps=maps))
            self._report_moved(self.run.rewind(record.id), self._attempt_before)

    @property
    def passed_over(self) -> tuple[int, ...]:
        """The damaged checkpoints that a fallback skipped and that are still in place."""
        return self._skipped

    def saved(self) -> None:
        """Set aside, now that a save is durable, the checkpoints that a fallback skipped.

        A failure is reported, and tried again after the next save.
        """
        if not self._skipped:
            return
        try:
            self._set_aside(self._skipped, self._attempt_before)
            self._skipped = ()
        except SaveError as error:
            self._report(Warned(str(error)))

    @property
    def _attempt_before(self) -> int:
        """The attempt whose checkpoints this one leaves behind."""
        return max(self.attempt - 1, 1)

    def _set_aside(self, ids: Sequence[int], attempt: int) -> None:
        self.run.set_aside(ids, attempt)
        self._manager.known.forget()
        self._report_moved(ids, attempt)

    def _report_moved(self, ids: Sequence[int], attempt: int) -> None:
        if ids:
            self._report(CheckpointsMoved(tuple(ids), str(self.run.attempt_path(attempt))))

    def delete_checkpoints(self) -> list[int]:
        """Remove all checkpoints of the run (``on_success: delete``), the newest last.

        Returns the ids removed.
        """
        removed: list[int] = []
        for record in self.run.records():
            try:
                discard(self.run.path, record.id)
                removed.append(record.id)
            except OSError as error:
                self._report(Warned(f"checkpoint {record.id} was not removed: {error}"))
        self._manager.known.forget()
        if removed:
            self._report(CheckpointsRemoved(tuple(removed)))
        return removed

    def finish_deletion(self, choice: Choice) -> Choice:
        """Remove leftovers of an interrupted ``on_success: delete``, and report them.

        Nothing is done if the job is not the one that was run, a checkpoint is named, or another
        process holds the run.
        """
        if not self._deletion_is_due():
            return choice
        try:
            self.lock()
        except (LockedError, SaveError):
            return choice
        try:
            removed = self.delete_checkpoints() if self._deletion_is_due() else []
            self.clean()
        finally:
            self.unlock()
        if not removed:
            return choice
        line = f"removed what an interrupted deletion had left: checkpoints {span(removed)}"
        return replace(choice, lines=(*choice.lines, line))

    def _deletion_is_due(self) -> bool:
        policy = self._job.checkpoint
        if policy is None or policy.on_success != "delete":
            return False
        state = self.run.state()
        # A rebuilt run.json does not record whether ``exit`` has ended.
        if state is None or state.state != "finished" or state.rebuilt:
            return False
        changes = self._chooser.changes(state)
        if changes.job or changes.free or self._request.names_checkpoint:
            return False
        return self.head() is not None or bool(find_leftovers(self.run.path))

    def end(self, state: str, reason: str, epoch: int, elapsed: float) -> None:
        """Record the end of the attempt; if that cannot be done, it is only reported."""
        if self._state is None:
            return
        reason = mask(reason)
        if self._exit is not None:
            ended = {**self._exit, "ended": utc_now(), "outcome": state, "reason": reason}
            self._state = replace(self._state, exits=(*self._state.exits[:-1], ended))
        else:
            self._state = replace(
                self._state,
                state=state,
                reason=reason,
                epoch=epoch,
                elapsed=elapsed,
                next_id=self._manager.first_id,
            )
        try:
            self.lock()  # held already, unless another process has taken it over
            self.run.write(self._state)
        except (DamagedError, LockedError, SaveError) as error:
            self._report(Warned(f"the end of the run is not recorded in run.json: {error}"))


AnyHistory: TypeAlias = History | NoHistory
"""A history with a directory, or without one; both have the same methods."""


def _catalogue(
    job: Job, manager: CheckpointManager, request: Request, report: Report
) -> RegistryHook | None:
    """Return the catalogue that the job's policy names, or None."""
    policy = job.checkpoint
    if policy is None or policy.catalogue is None:
        return None
    where = job.marks.get("checkpoint.catalogue")
    return RegistryHook(policy.catalogue, manager.run_dir, request.folder, where, report)


def _spec(request: Request) -> str | None:
    """Return the path of the spec, seen from the folder of the code."""
    if request.spec_path is None or request.folder is None:
        return None if request.spec_path is None else request.spec_path.name
    return file_from(request.folder, request.spec_path)


def _relative(folder: Path | None, run_dir: Path) -> str | None:
    return os.path.relpath(resolved(folder), resolved(run_dir)) if folder is not None else None
