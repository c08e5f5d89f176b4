"""The places in a spec that a later message may point at."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.errors import Where
from jobrun.jobspec.source import SpecNode, SpecSource

__all__ = ["SpecPlaces"]


class SpecPlaces:
    """The places of the keys and names in the tree of a spec."""

    def __init__(self, source: SpecSource) -> None:
        self._source = source

    def of(self, node: SpecNode) -> Where:
        """Return the place of a node."""
        return self._source.where(node)

    def below(self, node: SpecNode, *roles: str) -> dict[str, Where]:
        """Return places by key, and by ``role:name`` for the names below a role."""
        marks: dict[str, Where] = {}
        for key, below in node.value.items():
            marks[key] = self.of(below)
            if key in roles:
                marks.update(self.names(key, below))
        return marks

    def names(self, role: str, below: SpecNode) -> Iterator[tuple[str, Where]]:
        """Yield the names of ``in``, ``update``, ``out`` …: a string, a list, or a mapping."""
        if isinstance(below.value, str):
            yield f"{role}:{below.value}", self.of(below)
        elif isinstance(below.value, list):
            for item in map(_named, below.value):
                yield f"{role}:{item.value}", self.of(item)
        elif isinstance(below.value, dict):
            for key, item in below.value.items():
                at_key = self.of(below.keys[key])
                yield f"{role}:{key}", at_key
                named = _named(item)
                if isinstance(named.value, str):
                    yield f"{role}:{named.value}", self.of(named)

    def of_job(self, path: str) -> Iterator[tuple[str, Where]]:
        """Yield the places of what belongs to no task."""
        for key in ("name", "stop", "fail", "checkpoint", "upload"):
            node = self._source.root.get(key)
            yield key, Where(path) if node is None else self.of(node)
        for section in ("vars", "nodes", "metrics", "constant"):
            node = self._source.root.get(section)
            if node is not None:
                yield from self.names(section, node)
        state = self._source.root.get("state")
        if state is not None:
            yield "state", self.of(state)
            entries = state.value if isinstance(state.value, list) else [state]
            for entry in entries:
                yield from self.names("state", entry)
        for keys in (("keep", "best"), ("include",), ("compress",), ("catalogue",)):
            node = self._source.root.get("checkpoint", *keys)
            if node is not None:
                name = ".".join(("checkpoint", *keys))
                yield name, self.of(node)
                yield from self.names(name, node)


def _named(item: SpecNode) -> SpecNode:
    """Return the node of a name: that of ``of`` in a reduction over nodes."""
    return (item.get("of") or item) if isinstance(item.value, dict) else item
