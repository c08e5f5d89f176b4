"""The checkpoint policy applied: a run is saved, and what happens if a save fails.

When a save is due is in ``save_schedule.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.metrics import best_metric, metric_names, reads_best
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import SaveWatch
from jobrun.checkpoint.record import Record, RecordFields
from jobrun.checkpoint.save_result import Saved
from jobrun.checkpoint.save_rules import SaveRules
from jobrun.core.events import (
    CheckpointFailed,
    CheckpointSaved,
    CheckpointsRemoved,
    Report,
    SaveStarted,
    Warned,
)
from jobrun.core.position import Position
from jobrun.engine.disk_room import (
    Room,
    files_warning,
    free_room,
    room_warning,
    share_warning,
)
from jobrun.engine.save_schedule import SaveSchedule
from jobrun.errors import SaveError
from jobrun.model.policy import Best, CheckpointPolicy, Keep
from jobrun.runs.rundir import RunDir
from jobrun.session.base import Session
from jobrun.storage.fs import DEFAULT

__all__ = ["Saver"]

_LOOK = 0.2
"""Seconds between looks while waiting for a save, so that a signal is served that came just
before the wait began."""


@dataclass(frozen=True, slots=True)
class _Save:
    """A save in flight: its content, its result, and the time the run has waited for it.

    ``requested``: by the user, not by the schedule.  ``phases`` are the seconds before it was
    written: of the ``wait`` for the one before, and of the ``snapshot``.
    """

    position: Position
    result: Future[Saved]
    stall: float
    requested: bool
    phases: Mapping[str, float]


class Saver:
    """The saver of a job's state by its policy; it does nothing for a job without checkpoints.

    A save is written in the background while the run continues; one is in flight at a time, the
    next waits for it.  ``collect`` reports its result, or raises.

    ``on_disk`` is the position of the newest checkpoint of this history (None: there is none),
    ``last`` that of the last save, however it ended; ``saved`` counts the saves of this attempt
    that succeeded, ``seconds`` what the run waited for them, and ``longest`` the seconds of the
    slowest from its snapshot to its end.  ``on_saved`` is called after each.
    ``epochs`` is the limit of the run, if it has one; ``watch`` and ``named_now`` are as in
    ``SaveRules``.
    """

    def __init__(
        self,
        analysis: JobAnalysis,
        manager: CheckpointManager | None,
        report: Report,
        on_saved: Callable[[], None] = lambda: None,
        epochs: int | None = None,
        watch: SaveWatch | None = None,
        named_now: Callable[[Record], Record] | None = None,
    ) -> None:
        job = analysis.job
        self._report = report
        self._on_saved = on_saved
        self._epochs = epochs
        self._manager = manager if job.checkpoint is not None else None
        self._policy = job.checkpoint or CheckpointPolicy()
        self._protected: tuple[int, ...] = ()
        self._flying: _Save | None = None
        self.due = SaveSchedule(self._policy)
        self.on_disk: Position | None = None
        self.last: Position | None = None
        self.path: Path | None = None
        self.saved = 0
        self.failed = 0
        self.seconds = 0.0
        self.longest = 0.0
        self._begun = time.perf_counter()
        self._first_epoch = 0
        self._judged = False
        if manager is not None:
            self._rules = replace(
                _rules(analysis, self._policy, manager.rules),
                watch=watch,
                named_now=named_now,
                beside=self._sync_beside,
            )

    @property
    def wanted(self) -> bool:
        """Whether checkpoints are written at all."""
        return self._manager is not None

    def resumed(
        self, id: int, position: Position, path: Path, passed_over: Sequence[int] = ()
    ) -> None:
        """Continue from this checkpoint.

        Until the first save is durable it stays, and so do those that were ``passed_over`` for it.
        """
        self._protected = (id, *passed_over)
        self.on_disk = self.last = position
        self._first_epoch = position.epochs
        self.path = path
        self.due.saved(position.epochs)

    def lost(self) -> None:
        """Note that the state of the run is lost; it has no position until ``resumed``."""
        self._protected = ()
        self.on_disk = self.last = self.path = None
        self.due.forget()

    def removed(self) -> None:
        """Forget checkpoints that something else removed: no removed one is reported."""
        if self.path is not None and DEFAULT.is_gone(self.path):
            self.on_disk = self.path = None

    def save(
        self, session: Session, scratch: Mapping[str, Sequence[str]], fields: RecordFields
    ) -> None:
        """Save the session as it is now, in the background unless the policy says otherwise.

        Deferred to the end of the epoch if some of the ``scratch`` that belongs to it cannot be
        saved.  Raises what ``collect`` does, of the save before.
        """
        assert self._manager is not None
        start = time.perf_counter()
        self.collect(wait=True)
        free = time.perf_counter()
        source = session.snapshot(scratch)
        if source is None:
            self.due.postpone()
            return
        taken = time.perf_counter()
        self.last = fields.position
        requested = self.due.requested
        self.due.saved(fields.position.epochs)
        place = fields.position
        self._report(SaveStarted(self._manager.first_id, place.epochs, place.place))
        result = self._manager.submit(source, fields, self._protected, self._rules)
        phases = {"wait": free - start, "snapshot": taken - free}
        self._flying = _Save(fields.position, result, time.perf_counter() - free, requested, phases)
        if requested or not self._policy.background:  # a request is reported as soon as it is done
            self.collect(wait=True)

    def collect(self, *, wait: bool) -> None:
        """Report the result of the save in flight, if it has ended, or once it has.

        Raises SaveError if by the policy a failure ends the run, and always if there
        would be no whole checkpoint at all.
        """
        flying = self._flying
        if flying is None or not (wait or flying.result.done()):
            return
        start = time.perf_counter()
        try:
            while not wait_for([flying.result], _LOOK).done:
                pass
            self._flying = None  # not before: Ctrl-C may end the waiting
            saved = flying.result.result()
        except SaveError as error:
            self.failed += 1
            if self._policy.on_error == "fail" or self.on_disk is None:
                raise
            failed = self._manager.first_id - 1 if self._manager is not None else 0
            place = flying.position
            self._report(CheckpointFailed(failed, place.epochs, str(error), place.place))
            return
        finally:
            stall = flying.stall + time.perf_counter() - start
            self.seconds += stall
        first = self.on_disk is None
        self.on_disk, self.path = saved.record.position, saved.path
        self.saved += 1
        self.longest = max(self.longest, flying.phases["snapshot"] + sum(saved.seconds.values()))
        self._report_saved(saved, stall, flying)
        if first:
            self._report_room(saved)
        self._report_share()
        self._on_saved()
        if self._protected:
            self._protected = ()
            self._apply_retention()

    def look(self) -> None:
        """Report the save in flight if it has succeeded; ``collect`` reports a failed one."""
        flying = self._flying
        if flying is not None and flying.result.done() and flying.result.exception() is None:
            self.collect(wait=False)

    def _sync_beside(self) -> None:
        """Sync the rows of the epochs that a save covers; a failure is only reported.

        Measured on ext4, pairs with and without in random order: 0.3 ms more for a save of 4 x
        1 KiB, which takes 4.3 ms; within the noise (-31 and +18 ms) for one of 64 x 8 MiB, which
        takes 0.30 s.
        """
        assert self._manager is not None
        try:
            RunDir(self._manager.run_dir, lock=self._manager.lock).sync_covered()
        except OSError as error:
            self._report(Warned(f"a power cut may lose rows of metrics.csv: {error}"))

    def retain(self) -> None:
        """Apply retention at the end of an attempt, where the last save has not.

        If there was nothing to save, the attempt before may have been killed before it did.
        """
        if self._manager is None or self.on_disk is None or self._flying is not None:
            return
        if self.saved:
            self._report_removed(*self._manager.apply_postponed())
        else:
            self._apply_retention()

    def settle(self) -> None:
        """Wait until the files of all removed checkpoints are deleted."""
        if self._manager is not None:
            self._report_removed((), self._manager.settle())

    def close(self) -> None:
        """End the threads, once a save in flight is over and all is deleted; let go of the run."""
        if self._manager is not None:
            if self._flying is None:  # else ``close`` waits for it, and applies it unreported
                self._report_removed(*self._manager.apply_postponed())
            self._manager.close()
            self.settle()

    def _report_saved(self, saved: Saved, stall: float, save: _Save) -> None:
        self._report(
            CheckpointSaved(
                id=saved.id,
                epoch=saved.epoch,
                path=str(saved.path),
                bytes=saved.bytes,
                linked=saved.linked,
                files=saved.files,
                seconds=sum(saved.seconds.values()),
                stall=stall,
                phases={**save.phases, **saved.seconds, **_by_node(saved)},
                place=saved.record.place,
                asked=save.requested,
            )
        )
        self._report_removed(saved.removed, saved.warnings)

    def _report_room(self, saved: Saved) -> None:
        """Warn before epoch 1 if checkpoints are tiny files, or too large for the disk."""
        each = Room(saved.bytes, saved.files)
        texts = [files_warning(each)]
        with suppress(OSError):
            texts.append(room_warning(self._policy, self._epochs, each, free_room(saved.path)))
        for text in filter(None, texts):
            self._report(Warned(text))

    def _report_share(self) -> None:
        """Warn once, while the run can still be changed, if saves take much of the time."""
        elapsed = time.perf_counter() - self._begun
        if self._judged or self.on_disk is None:
            return
        epochs = self.on_disk.epochs - self._first_epoch
        if text := share_warning(self.saved, self.seconds, epochs, elapsed):
            self._judged = True
            self._report(Warned(text))

    def _apply_retention(self) -> None:
        assert self._manager is not None
        self._report_removed(*self._manager.apply_retention(self._protected, self._rules))

    def _report_removed(self, removed: tuple[int, ...], warnings: tuple[str, ...]) -> None:
        if removed:
            self._report(CheckpointsRemoved(removed))
        for warning in warnings:
            self._report(Warned(warning))


def _by_node(saved: Saved) -> dict[str, float]:
    """Return the seconds of each node's part if there are several, so that the slowest shows."""
    if len(saved.parts) < 2:
        return {}
    return {f"write {part.node}": part.seconds for part in saved.parts}


def _rules(analysis: JobAnalysis, policy: CheckpointPolicy, own: SaveRules) -> SaveRules:
    """Return the job's policy where it has one, else the manager's own rules."""
    return SaveRules(
        _keep(analysis, own.keep if policy.keep.all else policy.keep),
        own.link if policy.link == "alternate" else policy.link,
        policy.compress or own.compress,
    )


def _keep(analysis: JobAnalysis, keep: Keep) -> Keep:
    """Return ``keep`` with the direction that the job defines for its best metric.

    A job that reads ``best:`` after the loop keeps the best one, whether or not ``keep`` names it:
    else it would read the best of the few that are left.
    """
    if keep.best is not None:
        smaller = metric_names(analysis).get(keep.best.metric) != "max"
        return replace(keep, best=replace(keep.best, smaller=smaller))
    metric = best_metric(analysis)
    if keep.all or metric is None or not reads_best(analysis):
        return keep
    return replace(keep, best=Best(metric[0], smaller=metric[1] == "min"))
