"""The order of tasks that use one opaque object, under whatever names.

Reading an opaque value counts as updating it, so its readers run one after another, in the order of
the spec.  Which blobs hold one shows only when a value is stored, and two blobs may hold the same
object: order follows the object, not the name.  Blobs that have held the same object are *names of
one object* from then on, and the readers of all of them form one chain.

An edge is added in two ways: while nothing runs, for the objects that are there already; and while
the unit that stores an object runs, before anything that waits for that unit may start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import pairwise

from jobrun.analysis.graph import Plan
from jobrun.core.blob_paths import Key, overlaps
from jobrun.errors import TaskError
from jobrun.session.dag_run import Dag
from jobrun.values.boxes import Box, Value
from jobrun.values.opaque import changeable_objects
from jobrun.values.workspace import Workspace

__all__ = ["ObjectOrder"]

AddEdge = Callable[[int, int], None]


class ObjectOrder:
    """The edges between units of ``plan`` that use one object; they are added to ``dag``.

    ``nodes`` holds the blobs.  ``names`` maps each blob that holds or held an opaque object to all
    the blobs that are names of the same object; ``edges`` are those added so far.  ``held_by``
    returns the live state to which an object of ``setup`` may refer: their users are ordered as
    one.  Every method may be called from any thread.
    """

    def __init__(
        self,
        plan: Plan,
        dag: Dag,
        nodes: Mapping[str, Workspace],
        held_by: Callable[[Key], Collection[Key]] = lambda key: (),
    ) -> None:
        self.names: dict[Key, set[Key]] = {}
        self._held_by = held_by
        self._plan = plan
        self._dag = dag
        self._nodes = nodes
        self._place = dag.order()
        self._readers: dict[Key, list[int]] = {}
        for number, unit in enumerate(plan.units):
            for key in dict.fromkeys(unit.access.reads):
                self._readers.setdefault(key, []).append(number)
        self._since: dict[Key, int] = {}
        """The first unit that stores an object under a name, or -1: its readers come after it."""
        self._keys: dict[int, set[Key]] = {}
        self._ids: dict[Key, tuple[int, ...]] = {}
        """The ids of the objects last seen in each blob; only those still there count."""
        self.edges: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def present(self) -> None:
        """Order the readers of the objects that exist before the group runs."""
        for node, workspace in self._nodes.items():
            for name, value in workspace.root.items():
                for path, _ in changeable_objects(value, name):
                    found = workspace.find(path)
                    assert found is not None
                    self._note((node, path), found, -1)
        for names in {id(n): n for n in self.names.values()}.values():
            held = {key for name in names for key in self._held_by(name)}
            self._chain(names | held, self._add_at_rest)

    def stored(self, key: Key, value: Value, writer: int, add_edge: AddEdge) -> bool:
        """Order the readers of the objects in ``value``, which unit ``writer`` has just stored.

        Return whether that is new: ``key`` held no object before, or is now a name of others.
        Raises TaskError if another blob holds one of them, which the writer was not given, and
        tasks that use it under the two names have no order: they may run already.
        """
        if (type(value) is Box and value.kind != "opaque") or key[0] not in self._nodes:
            return False
        with self._lock:
            names = self._note(key, value, writer)
            if names is None:
                return False
            given = self._plan.units[writer].access.reads
            others = [name for name in names if name != key]
            if not others or any(_overlap(a, b) for a in others for b in given):
                self._chain(names, add_edge)  # the other users have ended, or wait for the writer
            else:
                self._chain(names, lambda before, after: self._prove(key, writer, before, after))
            return True

    def is_older(self, key: Key) -> bool:
        """Return whether an object was under ``key`` before the group ran."""
        return self._since.get(key) == -1

    def readers(self, key: Key) -> list[int]:
        """Return the units that read the blob ``key``, in the order in which they may run."""
        since = self._since.get(key, -1)
        found = {
            number
            for (node, path), numbers in self._readers.items()
            if node == key[0] and overlaps(path, key[1])
            for number in numbers
            if number > since
        }
        return sorted(found, key=self._place.__getitem__)

    # Names of one object.

    def _note(self, key: Key, value: Value, writer: int) -> set[Key] | None:
        """Record the value stored under ``key``; return all its names, or None if nothing changes.

        The value is in the workspace already, so that of two that are stored at the same time, the
        second one sees the first.
        """
        objects = list(changeable_objects(value))
        if not objects:
            return None
        others = {k for _, obj in objects for k in self._held_as(obj) if k != key}
        self._remember(key, tuple(id(obj) for _, obj in objects))
        names = self.names.setdefault(key, {key})
        if others <= names and self._since.get(key, writer + 1) <= writer:
            return None
        self._since[key] = min(self._since.get(key, writer), writer)
        for other in others:
            names |= self.names[other]
        for name in names:
            self.names[name] = names
        return names

    def _held_as(self, obj: object) -> Iterator[Key]:
        """Yield the blobs that hold an object now."""
        for node, path in list(self._keys.get(id(obj), ())):
            value = self._nodes[node].find(path)
            if value is not None and any(o is obj for _, o in changeable_objects(value)):
                yield node, path

    def _remember(self, key: Key, ids: tuple[int, ...]) -> None:
        for old in self._ids.get(key, ()):
            keys = self._keys.get(old, set())
            keys.discard(key)
            if not keys:
                self._keys.pop(old, None)
        self._ids[key] = ids
        for new in ids:
            self._keys.setdefault(new, set()).add(key)

    # Edges.

    def _chain(self, names: set[Key], add: AddEdge) -> None:
        """Order the readers of all ``names`` one after another."""
        users = {number for key in names for number in self.readers(key)}
        place = self._place
        for before, user in pairwise(sorted(users, key=place.__getitem__)):
            entry = self._plan.entry(user, before)
            after = entry if place[entry] > place[before] else user
            if (before, after) not in self.edges:
                self.edges.add((before, after))
                add(before, after)

    def _add_at_rest(self, before: int, after: int) -> None:
        self._dag.successors[before].append(after)
        self._dag.waits[after] += 1

    def _prove(self, key: Key, writer: int, before: int, after: int) -> None:
        if after not in self._reached(before):
            raise self._unordered(key, writer, before, after)

    def _reached(self, unit: int) -> set[int]:
        """Return the units that wait for ``unit``."""
        found: set[int] = set()
        left = [unit]
        while left:
            new = [u for u in self._dag.successors[left.pop()] if u not in found]
            found.update(new)
            left += new
        return found

    def _unordered(self, key: Key, writer: int, before: int, after: int) -> TaskError:
        units = self._plan.units
        task = units[writer].task
        others = sorted(f"{path!r}" for node, path in self.names[key] if (node, path) != key)
        return TaskError(
            f"task {task.name!r} of group {self._plan.group!r} stored under {key[1]!r} an object "
            f"that is {' and '.join(others)} too, and not among its inputs; so tasks "
            f"{units[before].key!r} and {units[after].key!r}, which use it, have no order",
            where=task.mark(f"out:{key[1]}", "out"),
            hint=f"give task {task.name!r} the object under 'in', or let one task alone make it",
        )


def _overlap(a: Key, b: Key) -> bool:
    return a[0] == b[0] and overlaps(a[1], b[1])
