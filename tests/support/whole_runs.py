"""Trains whole runs in a directory, lets them die at a place, and looks at what they leave."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jobrun import CheckpointManager, Job, JobRunner, LocalSession
from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.record import SUCCESS, Record
from jobrun.core.events import CheckpointSaved, Event, RunEnded
from jobrun.engine.resume_policy import Request
from jobrun.report.continued_files import keeps_files
from jobrun.session.base import Session
from jobrun.storage.fs import Fs

E = TypeVar("E", bound=Event)

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder in memory for runs of which it does not matter how durable they are."""


@dataclass
class Ended:
    """A run that has ended: the epochs that ``train`` returned, and all that was said."""

    runner: JobRunner
    session: Session
    events: list[Event] = field(default_factory=list)
    epochs: int = -1

    @property
    def outcome(self) -> RunEnded:
        """How it ended."""
        assert self.runner.outcome is not None
        return self.runner.outcome

    @property
    def blobs(self) -> Mapping[str, Any]:
        """The blobs at its end."""
        return self.runner.blobs

    def said(self, kind: type[E]) -> list[E]:
        """The events of a kind."""
        return [e for e in self.events if isinstance(e, kind)]

    @property
    def saved(self) -> list[int]:
        """The epochs that were saved, in order."""
        return [e.epoch for e in self.said(CheckpointSaved)]


class Died(BaseException):
    """The process ends here without a word."""


def start(
    job: Job,
    run_dir: Path | None = None,
    epoch: int | None = None,
    *,
    threads: int = 1,
    session: Session | None = None,
    manager: CheckpointManager | None = None,
    request: Request | None = None,
    fs: Fs | None = None,
    watch: Callable[[Event], None] = lambda event: None,
) -> Ended:
    """A run that has not been trained yet; ``watch`` sees every event after it was noted."""
    if manager is None and run_dir is not None:
        manager = CheckpointManager(run_dir, **({} if fs is None else {"fs": fs}))

    def report(event: Event) -> None:
        ended.events.append(event)
        watch(event)

    report.keeps_files = keeps_files(watch)  # type: ignore[attr-defined]
    runner = JobRunner(job, manager, epoch, report=report, request=request)
    ended = Ended(runner, session or LocalSession(threads))
    return ended


def train(job: Job, run_dir: Path | None = None, epoch: int | None = None, **how: Any) -> Ended:
    """Train ``job`` to its end, with a session of its own; see ``start``."""
    ended = start(job, run_dir, epoch, **how)
    ended.epochs = ended.runner.train(ended.session)
    return ended


def train_and_die(job: Job, run_dir: Path, after: int, **how: Any) -> Ended:
    """Train until it is said that the checkpoint of epoch ``after`` is saved, and die there."""
    return _die_once(lambda saved: saved.epoch == after, job, run_dir, **how)


def die_after_save(job: Job, run_dir: Path, id: int, **how: Any) -> Ended:
    """Train until it is said that checkpoint ``id`` is saved, wherever that is, and die there."""
    return _die_once(lambda saved: saved.id == id, job, run_dir, **how)


def _die_once(
    is_last: Callable[[CheckpointSaved], bool], job: Job, run_dir: Path, **how: Any
) -> Ended:
    def die(event: Event) -> None:
        if isinstance(event, CheckpointSaved) and is_last(event):
            raise Died

    ended = start(job, run_dir, watch=die, **how)
    try:
        ended.runner.train(ended.session)
    except Died:
        return ended
    raise AssertionError("the run ended before that checkpoint was saved")


class FailingDisk(Fs):
    """Refuses every save whose number among all saves (from 0) is in ``broken``."""

    def __init__(self, *broken: int) -> None:
        self.broken = set(broken)

    def at(self, op: str, path: str) -> None:
        """Refuse to make the partial directory of a save."""
        match = re.search(r"\.checkpoint_(\d+)\.partial-", path)
        if op == "mkdir" and match and int(match[1]) in self.broken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# What is on disk.


def names(run_dir: Path) -> list[str]:
    """What lies in a run directory, and below its attempts, sorted."""
    top = [p.name for p in run_dir.iterdir()]
    moved = [p.relative_to(run_dir).as_posix() for p in run_dir.glob("attempts/*/*")]
    return sorted([*top, *moved])


def state_of_disk(run_dir: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of all there is below a directory."""
    paths = [run_dir, *run_dir.rglob("*")]
    found = {p.relative_to(run_dir).as_posix(): p.lstat() for p in paths}
    return {name: (s.st_ino, s.st_size, s.st_mtime_ns) for name, s in found.items()}


def records(run_dir: Path) -> list[Record]:
    """The records of the listed checkpoints."""
    return Catalog(run_dir).listed()


def ids_and_epochs(run_dir: Path) -> dict[int, int]:
    """The epoch of each listed checkpoint, by id."""
    return {r.id: r.epoch for r in records(run_dir)}


def blob_list(run_dir: Path, record: Record) -> list[str]:
    """The names of all blobs of a checkpoint."""
    path = str(Catalog(run_dir).path(record.id))
    return [
        f"{node}:{entry.path}"
        for node in record.nodes
        for entry in read_manifest(Fs(), path, record, node).entries
        if entry.path
    ]


def bytes_of_checkpoints(run_dir: Path) -> dict[str, bytes]:
    """Every file of every checkpoint but ``_SUCCESS``, which holds times: blobs, kinds, order."""
    return {
        p.relative_to(run_dir).as_posix(): p.read_bytes()
        for p in sorted(run_dir.glob("checkpoint_*/**/*"))
        if p.is_file() and p.name != SUCCESS
    }


def facts_of_checkpoints(run_dir: Path) -> list[tuple[Any, ...]]:
    """What ``_SUCCESS`` of each checkpoint says, without its times."""
    return [
        (r.id, r.position, repr(r.metrics), r.decision, r.digest, dict(r.manifests), repr(r.extra))
        for r in records(run_dir)
    ]
