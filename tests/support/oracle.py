"""Runs a spec from top to bottom, on plain copies: what every schedule of it must give.

Nothing here knows of boxes, plans or threads.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

State = dict[str, dict[str, Any]]
"""The blobs of each node."""

BATCHES = ([0, 1], [2, 3], [4])
"""What a pipe of the oracle reads: 0 to 4, two rows at a time."""


@dataclass(frozen=True)
class Step:
    """A task: what it reads, updates and puts out, on which nodes; or a pipe around it."""

    number: int
    reads: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    node: str = "main"
    every: int = 1
    pipe: bool = False
    after: tuple[int, ...] = ()

    def __call__(self, *args: Any) -> Any:
        """What the task does: its results depend on each bit, and each key's place, of its inputs.

        Updates are the last arguments and are changed in place.
        """
        digest = _digest(args) ^ (self.number * 2654435761)
        for updated in args[len(args) - len(self.updates) :]:
            _change(updated, digest, self.number)
        made = [self._made(name, digest + k) for k, name in enumerate(self.outs)]
        return tuple(made) if made else None

    def _made(self, name: str, digest: int) -> Any:
        array = np.array([digest % 1009, digest % 17, digest % 3], np.float64)
        if name.rpartition(":")[2] != "t":
            return array
        tree = {"x": array, "y": array * 2, f"own{self.number}": [array[:1].copy(), digest % 5]}
        return dict(reversed(tree.items())) if digest % 2 else tree


def _digest(value: Any) -> int:
    crc = 0
    for part in _parts(value):
        crc = zlib.crc32(part, crc)
    return crc


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key.encode()
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, np.ndarray):
        yield value.dtype.str.encode() + value.tobytes()
    else:
        yield repr(value).encode()


def _change(value: Any, digest: int, number: int) -> None:
    if isinstance(value, np.ndarray):
        value += digest % 11
        value *= 0.5
        return
    for item in value.values():
        if isinstance(item, np.ndarray):
            item -= digest % 5
    value[f"u{number}"] = digest % 100


class Oracle:
    """The blobs of a job, and its epochs one task after the other."""

    def __init__(self, steps: list[Step], state: State, first: tuple[str, ...]) -> None:
        self.steps = steps
        self.state = copy.deepcopy(state)
        self.ranks = {node: _ranks(steps, node, first) for node in state}

    def epoch(self, epoch: int) -> None:
        """Run all tasks."""
        for step in self.steps:
            if epoch % step.every == 0:
                for batch in BATCHES if step.pipe else (None,):
                    self._run(step, batch)

    def _run(self, step: Step, batch: list[int] | None) -> None:
        nodes = [n for n in self.state if fnmatchcase(n, step.node)]
        gathered = [[self._read(node, name) for name in step.reads] for node in nodes]
        for node, reads in zip(nodes, gathered, strict=True):
            if batch is not None:
                reads = [np.array(batch), *reads]
            updates = [self._read(node, name) for name in step.updates]
            result = step(*reads, *updates)
            for name, value in zip(step.outs, result or (), strict=True):
                self._write(node, name, _listed(copy.deepcopy(value)))
            for name, value in zip(step.updates, updates, strict=True):
                self._write(node, name, value)

    def _read(self, node: str, name: str) -> Any:
        prefix, colon, path = name.rpartition(":")
        if "*" in prefix:
            return [self._read(n, path) for n in self.state if fnmatchcase(n, prefix)]
        value: Any = self.state[prefix if colon else node]
        for key in path.split("/"):
            value = value[key]
        return copy.deepcopy(value)

    def _write(self, node: str, name: str, value: Any) -> None:
        prefix, colon, name = name.rpartition(":")
        node = prefix if colon else node
        *parents, key = name.split("/")
        level, prefix = self.state[node], ""
        for parent in parents:
            level, prefix = level[parent], f"{prefix}{parent}/"
        fresh = key not in level
        level[key] = value
        if fresh and parents:
            # The keys at the end of the tree that the spec writes later stay behind the new one.
            ranks, later = self.ranks[node], []
            for other in list(level)[-2::-1]:
                if ranks.get(prefix + other, -1) <= ranks[prefix + key]:
                    break
                later.insert(0, other)
            for other in later:
                level[other] = level.pop(other)


def _ranks(steps: list[Step], node: str, first: tuple[str, ...]) -> dict[str, int]:
    """The order in which a node's blobs are first written in the spec."""
    ranks: dict[str, int] = {}
    here = [n for s in steps for n in (*s.updates, *s.outs) if _is_written(n, node, s)]
    for name in (*first, *(n.rpartition(":")[2] for n in here)):
        for end in (*(i for i, c in enumerate(name) if c == "/"), len(name)):
            ranks.setdefault(name[:end], len(ranks))
    return ranks


def _is_written(name: str, node: str, step: Step) -> bool:
    """Whether a step writes a name on a node."""
    prefix, colon, _ = name.rpartition(":")
    return prefix == node if colon else fnmatchcase(node, step.node)


def _listed(value: Any) -> Any:
    """Tuples are lists once they are blobs."""
    if isinstance(value, dict):
        return {k: _listed(v) for k, v in value.items()}
    return [_listed(v) for v in value] if isinstance(value, list | tuple) else value
