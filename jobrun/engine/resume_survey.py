"""The input of ``decide``, read from the run directory, the catalogue, and the user's code.

Nothing is written; only records are loaded, and the manifest of a checkpoint for a changed job.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.identity import compare, digest
from jobrun.checkpoint.integrity import read_manifest
from jobrun.checkpoint.loading import none_whole
from jobrun.checkpoint.node_parts import unequal_blobs
from jobrun.checkpoint.record import Record
from jobrun.conditions.base import Condition
from jobrun.conditions.decision import Decision, decide_stop, match_states
from jobrun.core.blob_paths import trees_of
from jobrun.core.paths import shown
from jobrun.core.ranking import before_failure
from jobrun.core.suggestions import listed
from jobrun.engine.progress import last_seen
from jobrun.engine.registry_hook import RegistryHook
from jobrun.engine.resume_policy import Changes, Choice, Request, Start, decide
from jobrun.engine.weight_files import weight_files
from jobrun.errors import DamagedError, NotFoundError, RunRefusedError
from jobrun.model.job import Job, TaskGroup
from jobrun.runs.node_map import NodeMap, NodeMaps
from jobrun.runs.run_state import RunState
from jobrun.runs.rundir import RunDir
from jobrun.storage.fs import DEFAULT
from jobrun.usercode.code_hash import changed_code, names_of

__all__ = ["Chooser", "evaluates_stops", "node_maps", "refuse_missing_blobs"]


class Chooser:
    """The decision on a request for the run in a directory; ``facts`` are the job's."""

    def __init__(
        self,
        job: Job,
        facts: Mapping[str, Any],
        request: Request,
        run: RunDir,
        catalogue: RegistryHook | None,
    ) -> None:
        self._job = job
        self._facts = facts
        self._request = request
        self._run = run
        self._catalogue = catalogue
        self._nodes = request.nodes or NodeMap()

    def choose(self, conditions: Sequence[tuple[Condition, bool]]) -> tuple[Choice, bool]:
        """Return the choice, and whether the user, or the catalogue, names a checkpoint for it.

        Raises NotFoundError or DamagedError if that is not there, DamagedError if there are
        checkpoints, but none that is whole, or one that is of other nodes than the job has, and
        UsageError for a map of nodes that cannot be.
        """
        state = self._run.state()
        head = self._run.head()
        if head is None and not self._request.fresh:
            self._refuse_damaged()
        start = head
        request, said = self._ask_catalogue(state, head)
        if request.names_checkpoint:
            start = self._run.checkpoint(epoch=request.epoch, id=request.id)
        if self._request.only and start is None:
            raise NotFoundError(
                "the run has no checkpoint on which 'exit' could be run", where=self._run.shown()
            )
        changes = self.changes(state)
        rewind = head is not None and start is not None and start.id != head.id
        maps = node_maps(request, state, start, rewind=rewind)
        choice = decide(
            request,
            state,
            head,
            changes,
            _verdict(self._job, conditions, maps.mapped(start) if start else None),
            start=start,
            back=self._before_failure(state),
            run=self._run.shown(),
        )
        if start is not None and choice.action in ("resume", "exit"):
            parts = maps.parts(start, tuple(self._job.nodes))
            if changes.job:
                self._refuse_missing_blobs(start, parts)
        if self._request.resized and self._nodes and start and choice.action == "resume":
            self._refuse_within_pass(start)
            said = (*said, *self._nodes.lines, *self._unequal(start))
        return replace(choice, lines=(*said, *choice.lines)), request.names_checkpoint

    def _ask_catalogue(
        self, state: RunState | None, head: Record | None
    ) -> tuple[Request, tuple[str, ...]]:
        """Return the request, with the catalogue's epoch if the user names none, and a message.

        It is not asked about a run that is over and has no checkpoints left.  Raises NotFoundError
        or DamagedError if what it names is not there.
        """
        request = self._request
        if self._catalogue is None:
            return request, ()
        self._catalogue.open()
        over = head is None and state is not None and state.over
        epoch = None if request.fresh or over else self._catalogue.latest()
        if epoch is None or epoch == request.epoch:
            return request, ()
        if request.names_checkpoint:
            asked = f"epoch {request.epoch}" if request.id is None else f"checkpoint_{request.id}"
            return request, (f"the catalogue names epoch {epoch}, but {asked} was requested",)
        if head is not None and head.epoch == epoch:
            return request, ()
        self._find_named(epoch)
        newest = "there is none" if head is None else f"the newest checkpoint is of {head.place}"
        return replace(request, epoch=epoch), (f"the catalogue names epoch {epoch}; {newest}",)

    def _find_named(self, epoch: int) -> None:
        """Raise NotFoundError, or DamagedError, unless the epoch of the catalogue exists."""
        try:
            self._run.checkpoint(epoch=epoch)
        except (NotFoundError, DamagedError) as error:
            text = f"the catalogue names epoch {epoch} of {self._run.shown()}: {error.message}"
            ways = ["--epoch names another one"]
            ways += [f"to start a new run: {self._request.afresh}"] if self._request.afresh else []
            raise type(error)(text, where=error.where, hint="; ".join(ways)) from error

    def _refuse_damaged(self) -> None:
        """Raise DamagedError if no checkpoint is whole: neither a fresh start nor an end."""
        if lost := self._run.damaged():
            afresh = self._request.afresh
            hint = f"to start a new run: {afresh}" if afresh else ""
            raise none_whole(((i.id, i.reason) for i in lost), self._run.shown(), hint)

    def _before_failure(self, state: RunState | None) -> int | None:
        """Return the epoch to go back to, if the run has ended as a failure and it is there."""
        if state is None or state.state != "failed":
            return None
        catalog = self._run.checkpoints
        earlier = [r for r in catalog.listed() if r.epoch < state.epoch]
        safe = catalog.whole(earlier, before_failure)
        return safe.epoch if safe is not None else None

    def _refuse_missing_blobs(self, start: Record, parts: Mapping[str, str]) -> None:
        """Raise RunRefusedError if the checkpoint lacks blobs that the accepted job needs."""
        path = self._run.catalog.path(start.id)
        refuse_missing_blobs(self._job, path, start, parts, self._request.afresh)

    def _refuse_within_pass(self, start: Record) -> None:
        """Raise RunRefusedError unless all readers of the checkpoint stand where a pass begins."""
        if _begins_pass(start):
            return
        there = [str(r.epoch) for r in self._run.records() if _begins_pass(r)]
        raise RunRefusedError(
            "the number of nodes can change only where a pass over the data ends, and "
            f"{start.place} is within one",
            hint=f"--epoch {' or '.join(there[-3:])} names such a checkpoint"
            if there
            else "train until a pass ends, and change their number then",
        )

    def _unequal(self, start: Record) -> tuple[str, ...]:
        """Return which blobs differ between nodes: to copy or drop one's part is to choose."""
        if len(start.nodes) == 1 or not self._nodes:
            return ()
        names = unequal_blobs(self._run.catalog.path(start.id), start)
        if not names:
            return ("all nodes of the checkpoint hold the same values",)
        return (f"differ between the nodes of the checkpoint: {', '.join(names)}",)

    def changes(self, state: RunState | None) -> Changes:
        """Return the differences between the job on disk and the current job."""
        if state is None:
            return Changes()
        files = self._changed_files(state)
        if not state.facts:
            if state.digest in ("", digest(self._facts)):
                return files
            return replace(files, job=("the job (run.json was lost, so details are not known)",))
        diff = compare(state.facts, self._facts)
        if self._request.only:  # they are run again because they have changed
            diff = diff.freed(("download", "exit"))
        if self._request.resized:
            diff = diff.freed(("nodes",))
        return replace(files, job=diff.job, free=diff.free, never=diff.never)

    def _changed_files(self, state: RunState) -> Changes:
        """Return the files of code and weights whose content has changed since the last start."""
        folder = self._request.folder
        if folder is None:
            return Changes()
        changed = changed_code(state.code, folder)
        places = (self._job, self._request, self._run.path)
        read = names_of(weight_files(*places), folder)
        used = {*_files_of(self._job.init), *names_of(weight_files(*places, "init"), folder)}
        return Changes(
            code=tuple(file for file in changed if file not in read),
            weights=tuple(file for file in changed if file in read),
            init=tuple(file for file in changed if file in used),
        )


def node_maps(
    request: Request,
    state: RunState | None,
    start: Start | None,
    *,
    rewind: bool,
    below: int = sys.maxsize,
) -> NodeMaps:
    """Return the maps of nodes of a run that resumes from ``start``; ``below`` is the next id.

    Those of an attempt that ended before its first save are repeated, unless others are requested.
    """
    known = NodeMaps.from_json(state.node_maps if state is not None else ())
    unsaved = not (rewind or request.names_nodes)
    start_id = start.id if start is not None else None
    return known.after(start_id, below, request.nodes or NodeMap(), unsaved=unsaved)


def _begins_pass(record: Record) -> bool:
    """Return whether all copies of each pipe are about to begin the same pass."""
    passes: dict[str, set[int]] = {}
    for key, reader in record.position.readers.items():
        passes.setdefault(key.partition(":")[2], set()).add(reader.passes)
    begin = not any(reader.row for reader in record.position.readers.values())
    return record.at_boundary and begin and all(len(found) == 1 for found in passes.values())


def _files_of(group: TaskGroup) -> frozenset[str]:
    """Return the code files, relative to the folder, that hold the functions of a group."""
    modules = {t.fn.partition(":")[0] for t in group.tasks if isinstance(t.fn, str)}
    paths = [module.replace(".", "/") for module in modules]
    return frozenset(name for path in paths for name in (f"{path}.py", f"{path}/__init__.py"))


def evaluates_stops(record: Record) -> bool:
    """Return whether the stop conditions are evaluated on a resume from a checkpoint.

    Only where an uninterrupted run does: after an epoch, and at the cut at which one has stopped.
    """
    return (record.epoch >= 1 and record.at_boundary) or record.decision is not None


def _verdict(
    job: Job, conditions: Sequence[tuple[Condition, bool]], start: Record | None
) -> Decision | None:
    """Return the verdict of the current stop conditions on a checkpoint, if it applies."""
    if start is None or not evaluates_stops(start):
        return None
    return decide_stop(match_states(conditions, list(start.stops), last_seen(job, start)))


def refuse_missing_blobs(
    job: Job, checkpoint: Path, record: Record, parts: Mapping[str, str], afresh: str = ""
) -> None:
    """Raise RunRefusedError if blobs that ``init`` of ``job`` writes are not in ``checkpoint``.

    ``init`` runs once.  A run that continues with another job takes what ``init`` writes from the
    checkpoint, so a blob that was added there, or has another name now, would be missing in its
    first epoch.

    ``parts`` names for each node of the job the node of the checkpoint whose part it gets,
    ``afresh`` the command that starts a new run.
    """
    held = {
        node: {e.path: None for e in read_manifest(DEFAULT, str(checkpoint), record, part).entries}
        for node, part in parts.items()
    }
    analysis = JobAnalysis(job)
    written = dict.fromkeys(analysis.writes_of("init"))
    replaced = set(analysis.writes_of("epoch"))
    missing = [
        f"{node}:{path}" if job.multi_node else path
        for node, path in written
        if path not in held.get(node, ())
        # A tree that an epoch has written whole replaces the one that 'init' made.
        and not any((node, t) in replaced and t in held.get(node, ()) for t in trees_of(path))
    ]
    if missing:
        names = ", ".join(map(repr, missing))
        top = dict.fromkeys(path.partition("/")[0] for paths in held.values() for path in paths)
        there = listed([name for name in top if name]) or "there are no blobs"
        ways = f"; to start a new run: {afresh}" if afresh else ""
        raise RunRefusedError(
            f"the run cannot resume with the changes: 'init' now writes {names}, which "
            f"{shown(checkpoint)} does not hold",
            hint=f"'init' is not run again, and {there}{ways}",
        )
