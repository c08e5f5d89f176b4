"""``--map-node OLD=NEW``: a checkpoint of nodes of other names than the job's.

The parts of the checkpoint go to other nodes, and with them what it says of those: readers, pipes,
metrics, and what the stop conditions have seen.  The maps of a run are kept, since its checkpoints
from before them are still asked for: the best one may be among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobrun.checkpoint.record import Record
from jobrun.core.position import PipeState, Position
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import DamagedError, UsageError

__all__ = ["NodeMap", "NodeMaps", "copied_nodes", "parse_maps", "resized"]


def parse_maps(texts: Iterable[str]) -> NodeMap:
    """Return the map of ``OLD=NEW`` strings; raises UsageError for any other form."""
    pairs = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old:
            hint = "OLD is a node of the checkpoint, NEW one of the job; OLD= drops one"
            raise UsageError(f"--map-node {text}: expected OLD=NEW", hint=hint)
        pairs.append((old, new))
    return NodeMap(tuple(pairs))


def resized(old: Sequence[str], new: Sequence[str]) -> NodeMap:
    """Return the map from the nodes ``old`` to another number of them, ``new``.

    Nodes that stay keep their parts; those that are added get a copy of the first node's.
    """
    added = [node for node in new if node not in old]
    pairs = [(node, "") for node in old if node not in new]
    if added and old:
        pairs += [(old[0], node) for node in (old[0], *added)]
    return NodeMap(tuple(pairs))


def copied_nodes(parts: Mapping[str, str]) -> frozenset[str]:
    """Return the nodes whose part is also another node's: the one of its name, else the first.

    ``parts`` has the part of each node, in their order.
    """
    owner: dict[str, str] = {}
    for node, part in parts.items():
        owner[part] = node if node == part else owner.get(part, node)
    return frozenset(node for node, part in parts.items() if owner[part] != node)


@dataclass(frozen=True, slots=True)
class NodeMap:
    """Pairs of a checkpoint's node and the job's node that gets its part (empty: none does).

    A node that is in no pair goes to the node of its own name.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def lines(self) -> tuple[str, ...]:
        """The changes to the parts, in words."""
        lines = []
        copies = [new for old, new in self.pairs if new not in ("", old)]
        if copies:
            (old,) = dict.fromkeys(old for old, new in self.pairs if new in copies)
            lines.append(f"new: {', '.join(copies)}, with a copy of the part of {old}")
        dropped = [old for old, new in self.pairs if not new]
        if dropped:
            lines.append(f"dropped: {', '.join(dropped)}")
        return tuple(lines)

    def parts(
        self, record: Record, nodes: Sequence[str], earlier: Sequence[NodeMap] = ()
    ) -> dict[str, str]:
        """Return, for each node of the job, the node of the checkpoint whose part it gets.

        ``earlier`` are maps that come before this one.  Raises DamagedError, naming them, where
        nodes differ and no pair says what is meant, and UsageError for a pair that cannot be.
        """
        current = {node: node for node in record.nodes}
        for one in earlier:
            current = one._moved(current)
        for old, new in self.pairs:
            _known(old, tuple(current), f"checkpoint_{record.id} has no node {old!r}")
            if new:
                _known(new, nodes, f"the job has no node {new!r}")
        found = self._moved(current)
        if set(found) != set(nodes):
            raise DamagedError(
                f"checkpoint_{record.id} is of the nodes {', '.join(record.nodes)}, "
                f"but the job has {', '.join(nodes)}",
                hint=_lacking(nodes, current, found),
            )
        return {new: found[new] for new in nodes}

    def _moved(self, parts: Mapping[str, str]) -> dict[str, str]:
        """Return ``{node: part}`` with the nodes' new names."""
        found: dict[str, str] = {}
        for old, part in parts.items():
            for new in self.targets(old):
                if new in found:
                    text = f"--map-node: both {found[new]!r} and {part!r} would go to {new!r}"
                    raise UsageError(text)
                found[new] = part
        return found

    def targets(self, old: str) -> list[str]:
        """Return the nodes that get the part of a checkpoint's node."""
        mapped = [new for o, new in self.pairs if o == old]
        return [new for new in mapped if new] if mapped else [old]

    def mapped(self, record: Record) -> Record:
        """Return the record with the names of the job's nodes."""
        if not self.pairs:
            return record
        return replace(
            record,
            position=self._position(record.position),
            metrics=self._keys(record.metrics),
            stops=tuple(self._anywhere(stop) for stop in record.stops),
            decision=self._anywhere(record.decision),
            extra=self._anywhere(dict(record.extra)),
        )

    def _names(self, name: str) -> list[str]:
        """Return ``OLD:rest`` with the job's names of the node; a name without a node stays."""
        old, colon, rest = name.partition(":")
        return [f"{new}:{rest}" for new in self.targets(old)] if colon else [name]

    def _keys(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {new: value for name, value in values.items() for new in self._names(name)}

    def _position(self, position: Position) -> Position:
        return Position(
            position.epochs,
            tuple(new for key in position.tasks for new in self._names(key)),
            {
                new: PipeState(pipe.batches, self._keys(pipe.reduced))
                for key, pipe in position.pipes.items()
                for new in self._names(key)
            },
            self._keys(position.readers),
        )

    def _anywhere(self, value: Any) -> Any:
        """JSON in which names may stand anywhere.

        In a list and as a key a name becomes all its new ones, elsewhere the first of them.
        """
        if isinstance(value, str):
            return next(iter(self._names(value)), value)
        if isinstance(value, Mapping):
            return self._keys({k: self._anywhere(v) for k, v in value.items()})
        if isinstance(value, list | tuple):
            found = (self._names(v) if isinstance(v, str) else [self._anywhere(v)] for v in value)
            return [item for items in found for item in items]
        return value


@dataclass(frozen=True, slots=True)
class NodeMaps:
    """The maps of a run, the first one first; each is for checkpoints of ids ``below`` one."""

    maps: tuple[tuple[int, NodeMap], ...] = ()

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> NodeMaps:
        """Return the maps in JSON values, as ``to_json`` returns them."""
        return cls(tuple((m["below"], NodeMap(tuple((o, n) for o, n in m["pairs"]))) for m in data))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the maps as JSON values."""
        return [{"below": b, "pairs": [list(pair) for pair in m.pairs]} for b, m in self.maps]

    def after(
        self, start: int | None, below: int, nodes: NodeMap, *, unsaved: bool = False
    ) -> NodeMaps:
        """Return the maps once a run resumes from checkpoint ``start`` (None: the beginning).

        ``nodes`` is for what was saved before now, which has ids ``below``.  Maps that were made
        after ``start`` was saved belong to what is left behind; unless they are ``unsaved``: those
        of an attempt that ended before its first save, which this one repeats.
        """
        kept = [one for one in self.maps if start is not None and (unsaved or one[0] <= start)]
        return NodeMaps((*kept, (below, nodes)) if nodes else tuple(kept))

    def _of(self, record: Record) -> list[NodeMap]:
        return [nodes for below, nodes in self.maps if record.id < below]

    def parts(self, record: Record, nodes: Sequence[str]) -> dict[str, str]:
        """Return what ``NodeMap.parts`` does, by all maps that came after the checkpoint."""
        *earlier, last = self._of(record) or [NodeMap()]
        return last.parts(record, nodes, earlier)

    def mapped(self, record: Record) -> Record:
        """Return the record with the current names of its nodes."""
        for one in self._of(record):
            record = one.mapped(record)
        return record


def _known(name: str, known: Sequence[str], message: str) -> None:
    if name not in known:
        hint = did_you_mean_or_all(name, known)
        raise UsageError(f"--map-node: {message}", hint=hint)


def _lacking(nodes: Sequence[str], parts: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return what ``--map-node`` still needs: a part for each node, and a node for each part."""
    needed = [f"{n}={n}" if n in parts else f"OLD={n}" for n in nodes if n not in found]
    needed += [f"{part}=" for new, part in found.items() if new not in nodes]
    text = "to 'jobrun resume' add " + " ".join(f"--map-node {pair}" for pair in needed)
    if any(pair.startswith("OLD=") for pair in needed):
        text += ", with the part that it gets as OLD, and OLD=OLD if that node keeps its part too"
        text += f"; if the spec gives the number of nodes, --nodes {len(nodes)} copies the first"
    return text
