"""Live state: objects that ``setup`` makes and whose content persists.

``state`` names them; ``init`` and ``epoch`` may change or replace them, and every save reads their
content.  Reading one counts as updating it, since nobody can see whether a call changed it.  An
object may hold references to another one (an optimizer to the parameters of its network), which
only a call that was given both can have made: such objects are *linked*, and ordered as one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from jobrun.analysis.accesses import Access, Accesses
from jobrun.core.blob_paths import Key, PathSet, covers
from jobrun.model.job import GROUPS, Job, Pipe

__all__ = ["LiveState"]


class LiveState:
    """The live state of a job: ``keys`` are the blobs, ``generators`` those of each node.

    ``saved`` is both: what checkpoints hold.  ``constants`` are the blobs that no task may change.
    """

    def __init__(self, accesses: Accesses) -> None:
        job = accesses.job
        written = set(accesses.writes_of("setup")) if job.state or job.constant else set()
        self.keys = _made(job, job.state, written)
        self.constants = _made(job, job.constant, written)
        self.generators = tuple((node, name) for node in job.nodes for name in job.generators)
        self.saved = (*self.generators, *self.keys)
        self._paths = PathSet(self.keys)
        self._own = frozenset(self.keys)
        self._group: dict[Key, Key] = {key: key for key in self.keys}
        for group in GROUPS if self.keys else ():
            for task in job.groups[group].tasks:
                for node in job.nodes_of(task):
                    for step in task.do if isinstance(task, Pipe) else (task,):
                        self._link(accesses.access(step, node))
        self._held = self._held_keys(accesses)

    def __contains__(self, key: Key) -> bool:
        """Return whether a blob is live state."""
        return key in self._own

    def touches(self, key: Key) -> bool:
        """Return whether a blob is live state, or holds or is a part of some."""
        return self._paths.touches(key)

    def used_by(self, found: Access) -> list[Key]:
        """Return the live state that a task is given or writes, each once."""
        if not self.keys:
            return []
        return [key for key in dict.fromkeys((*found.reads, *found.writes)) if key in self._own]

    def linked(self, keys: Iterable[Key]) -> list[Key]:
        """Return all live state that is linked with some of it, in spec order."""
        groups = {self._root(key) for key in keys}
        return [key for key in self.keys if self._root(key) in groups]

    def held_by(self, key: Key) -> list[Key]:
        """Return the live state to which an object that ``setup`` has made may refer.

        That is what the call was given, or made beside it, that made the object.
        """
        for path, held in self._held.get(key[0], {}).items():
            if covers(path, key[1]):
                return self.linked(held)
        return []

    def order(self, found: Access, node: str) -> set[Key]:
        """Return what a task on a node counts as updating, beside the blobs that it writes.

        One name for each group of linked state, and one for the global generators; no blob can have
        such a name.  An object of the best checkpoint counts too: it is a copy of the one of now,
        which nobody may change meanwhile.
        """
        best = (key for key in found.best if key in self._own)
        groups = {self._root(key) for key in (*self.used_by(found), *best)}
        names = {(own, f":{path}") for own, path in groups}
        return names | {(node, ":rng")} if self.generators else names

    def _held_keys(self, accesses: Accesses) -> dict[str, dict[str, list[Key]]]:
        """Per node, the other blobs of ``setup`` with the live state that their calls have seen."""
        found: dict[str, dict[str, list[Key]]] = {}
        for _, copies in accesses.units_of("setup") if self.keys else ():
            for _, access in copies:
                used = self.used_by(access)
                for node, path in access.writes if used else ():
                    if (node, path) not in self._own:
                        found.setdefault(node, {}).setdefault(path, []).extend(used)
        return found

    def _link(self, found: Access) -> None:
        """Join what a call writes with all that it is given: one may refer to another now."""
        written = [key for key in found.writes if key in self._own]
        if written:
            first = self._root(written[0])
            for key in self.used_by(found):
                self._group[self._root(key)] = first

    def _root(self, key: Key) -> Key:
        while self._group[key] != key:
            key = self._group[key]
        return key


def _made(job: Job, names: Iterable[str], written: Container[Key]) -> tuple[Key, ...]:
    """Return the named blobs on each node whose ``setup`` writes them, in spec order."""
    keys = ((node, name) for name in names for node in job.nodes)
    return tuple(key for key in keys if key in written)
