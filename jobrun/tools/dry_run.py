"""The plan of a run, without running it: ``train -n``.

The decision, the blobs that persist, the checkpoints kept, and of each stop condition the first
epoch after which it can be true.  Nothing is loaded or written; the functions run only where the
sizes of the blobs are requested, and then ``setup`` and ``init`` alone, in memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import make_plan
from jobrun.analysis.persistence import persistent
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import Record
from jobrun.conditions.base import Condition
from jobrun.conditions.decision import ConditionState, match_states
from jobrun.conditions.parse import build
from jobrun.core.events import ignore
from jobrun.core.position import Position
from jobrun.engine.disk_room import kept_in_all
from jobrun.engine.history import History
from jobrun.engine.progress import last_seen
from jobrun.engine.resume_policy import Choice, Request
from jobrun.errors import SaveError
from jobrun.model.job import Job
from jobrun.runs.series import fresh_name
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from jobrun.values.boxes import Box, leaves

__all__ = ["DryRun", "Outlook", "Size", "dry_run", "sizes"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """A stop condition: its text and progress, and when it can be true.

    ``earliest`` is the first epoch after which it can be (None: unknown, or never).
    ``can_fire`` is false if something else ends the run before.
    """

    text: str
    fails: bool
    progress: str
    earliest: int | None
    can_fire: bool = True


@dataclass(frozen=True, slots=True)
class Size:
    """A blob that persists: its name, kind, shape and bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class DryRun:
    """The plan of a run: ``choice`` is the action in ``run_dir``, from ``epoch`` on.

    ``persists`` are blobs, ``kept`` is the most checkpoints that exist at once (None:
    unknown), ``epochs`` the limit of the ``epochs`` condition (None: there is none).
    """

    choice: Choice
    run_dir: Path
    epoch: int
    persists: tuple[str, ...]
    epochs: int | None
    kept: int | None
    outlook: tuple[Outlook, ...]


def dry_run(job: Job, request: Request, runs_dir: str, run: Path | None) -> DryRun:
    """Return what ``train`` or ``resume`` would do with the run in ``run`` (None: a fresh one).

    Raises what they raise before anything is started, except for a run that is refused.
    """
    if os.path.lexists(runs_dir) and not os.path.isdir(runs_dir):
        hint = "--runs-dir names another directory for the runs"
        raise SaveError(f"{runs_dir} is not a directory", hint=hint)
    path = run or fresh_name(runs_dir, job.name)
    conditions = build(job)
    history = History(job, CheckpointManager(path), request, ignore)
    choice = history.choose(conditions)
    if choice.action == "new_run" or (request.fresh and os.path.exists(path)):
        path = fresh_name(runs_dir, job.name)
    start = choice.start if isinstance(choice.start, Record) else None
    epoch = start.epoch if start is not None else 0
    watched = _watched(job, conditions, start)
    limits = (c.epoch_limit for c, fails in conditions if not fails)
    limit = min((n for n in limits if n is not None), default=None)
    policy = job.checkpoint
    return DryRun(
        choice,
        path,
        epoch,
        _names(job),
        limit,
        kept_in_all(policy, limit) if policy is not None else 0,
        tuple(_outlook(w, epoch, limit) for w in watched),
    )


def _watched(
    job: Job, conditions: Sequence[tuple[Condition, bool]], start: Record | None
) -> tuple[ConditionState, ...]:
    if start is None:
        return match_states(conditions, [])
    seen = last_seen(job, start) if start.epoch >= 1 else None
    return match_states(conditions, list(start.stops), seen)


def _names(job: Job) -> tuple[str, ...]:
    """Return the blobs that persist, prefixed with ``node:`` if there are several nodes."""
    return tuple(
        f"{node}:{path}" if job.multi_node else path
        for node, paths in persistent(JobAnalysis(job)).items()
        for path in paths
    )


def _outlook(watched: ConditionState, epoch: int, limit: int | None) -> Outlook:
    condition, state = watched.condition, watched.state
    earliest, known = condition.earliest(state, epoch, limit)
    can = earliest is not None if known else True
    if earliest is not None and limit is not None and condition.epoch_limit is None:
        can = can and earliest <= limit
    return Outlook(
        condition.describe(), watched.fails, condition.progress_text(state), earliest, can
    )


def sizes(job: Job, session: LocalSession, places: Places) -> tuple[Size, ...]:
    """Run ``setup`` and ``init`` on ``session``, in memory; every blob that then persists.

    Blobs that only ``epoch`` writes are not known yet and absent.  Raises what the tasks raise.
    """
    session.open(job, places)
    try:
        for group in ("setup", "init"):
            session.run(make_plan(job, job.groups[group]), Position(0), Control())
        taken = session.snapshot()
        assert taken is not None
        return tuple(
            Size(
                f"{node}:{path}" if job.multi_node else path,
                str(box.value.dtype) if box.kind in ("array", "scalar") else box.kind,
                tuple(box.value.shape) if box.kind == "array" else (),
                _bytes(box),
            )
            for node, blobs in taken.blobs.items()
            for name, value in blobs.items()
            for path, box in leaves(value, name)
        )
    finally:
        session.close()


def _bytes(box: Box) -> int:
    """Return the bytes of a value itself, without the overhead of a file."""
    if box.kind in ("array", "scalar"):
        return int(box.value.nbytes)
    if box.kind == "str":
        return len(box.value.encode())
    return {"int": 8, "float": 8, "bool": 1}.get(box.kind, 0)
