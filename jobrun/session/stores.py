"""The stores that calls read and write: blobs of a session, columns and lists of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobrun.analysis.accesses import Reduced
from jobrun.core.blob_paths import Key
from jobrun.session.generators import Generators
from jobrun.session.live_objects import LiveObjects
from jobrun.session.written_blobs import Written
from jobrun.values.boxes import Value
from jobrun.values.workspace import Workspace

if TYPE_CHECKING:
    from jobrun.values.reduction import Range

__all__ = ["CallContext", "Stores"]


@dataclass(slots=True)
class CallContext:
    """The context of a call: the epoch (0 before the first), the batch, and its columns.

    ``reduced`` are the values reduced over nodes that the copies of a task share, None without;
    ``lists`` the values of patterns, read once for all copies.
    """

    epoch: int = 0
    batch: int | None = None
    columns: dict[str, Value] = field(default_factory=dict)
    reduced: dict[Reduced, Value] | None = None
    lists: dict[tuple[Key, ...], tuple[Value, ...]] | None = None


@dataclass(slots=True)
class Stores:
    """The blobs of all nodes of a session, those of the best checkpoint, and which are new.

    ``live`` are the live objects among them, and ``generators`` the global random generators that
    are saved; None if the job has none.
    """

    nodes: dict[str, Workspace] = field(default_factory=dict)
    best: dict[Key, Value] = field(default_factory=dict)
    written: Written = field(default_factory=Written)
    live: LiveObjects | None = None
    generators: Generators | None = None
    parts: dict[Reduced, dict[Range, Value]] = field(default_factory=dict)
    """The parts that other workers have reduced."""

    def reduced(self, reduction: Reduced, shared: dict[Reduced, Value] | None) -> Value:
        """Return a blob of several nodes reduced to one value, from ``shared`` if it is there."""
        if shared is not None and reduction in shared:
            return shared[reduction]
        keys, parts = reduction.keys, self.parts.get(reduction, {})

        def part(first: int, end: int) -> Value | None:
            found = parts.get((first, end))
            return self.get(keys[first]) if found is None and end == first + 1 else found

        from jobrun.values.reduction import reduced

        value = reduced(reduction.how, [f"{node}:{path}" for node, path in keys], part)
        if shared is not None:
            shared[reduction] = value
        return value

    def get(self, key: Key) -> Value:
        """Return the value of a blob; raises TaskError if it has none."""
        node, path = key
        workspace = self.nodes[node]
        return workspace.root.get(path) or workspace.get(path)

    def get_all(
        self, keys: tuple[Key, ...], shared: dict[tuple[Key, ...], tuple[Value, ...]] | None
    ) -> tuple[Value, ...]:
        """Return the values of blobs, from ``shared`` if they are there."""
        found = None if shared is None else shared.get(keys)
        if found is None:
            found = tuple([self.get(key) for key in keys])
            if shared is not None:
                shared[keys] = found
        return found
