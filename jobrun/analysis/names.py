"""Names in a spec, in their one namespace: what each means.

A name is a column of the pipe, a blob, a var, or reserved (``epoch``, ``rng``, ``node``,
``best:…``).  ``node:blob`` is a blob of another node; a glob in the node means one of each.
Two meanings of one name in one place are a problem.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jobrun.core.blob_paths import Key, covers
from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.model.job import Job, Pipe, match_nodes

__all__ = ["NameOrigin", "StepColumns", "key_of", "resolve", "step_names"]


@dataclass(frozen=True, slots=True)
class NameOrigin:
    """The origin of the value of a name.

    ``form`` is ``blob`` (``keys[0]``), ``blobs`` (a list, one of each key), ``column``, ``var``
    (``value``), ``epoch``, ``rng``, ``node``, or ``best`` (``keys[0]`` of the best checkpoint).
    """

    form: str
    keys: tuple[Key, ...] = ()
    value: Any = None


def resolve(job: Job, node: str, name: str, columns: Collection[str] | None = None) -> NameOrigin:
    """Return what ``name`` means for a task on ``node``; ``columns`` are those of its pipe.

    Raises LookupError with the text of the problem for an unknown name.
    """
    if columns is not None and name in columns:
        return NameOrigin("column", value=name)
    prefix, colon, path = name.partition(":")
    if colon:
        return _of_node(job, prefix, path)
    if name in ("epoch", "rng", "node"):
        return NameOrigin(name, value=node)
    if name == "best":
        raise LookupError("'best' needs a blob: best:model")
    for own in (job.nodes[node], job.vars):
        if name in own:
            return NameOrigin("var", value=own[name])
    return NameOrigin("blob", ((node, name),))


def key_of(job: Job, name: str) -> Key:
    """Return the blob of a name as used for metrics: ``loss`` or ``trainer_0:loss``.

    Without a node, the blob of the first one.
    """
    node, colon, path = name.rpartition(":")
    return (node if colon else next(iter(job.nodes)), path)


def _of_node(job: Job, prefix: str, path: str) -> NameOrigin:
    if prefix == "best":
        return NameOrigin("best", (("", path),))
    nodes = match_nodes(prefix, job.nodes)
    if not nodes:
        hint = did_you_mean_or_all(prefix, list(job.nodes))
        raise LookupError(f"no node {prefix!r} in {prefix}:{path}; {hint}")
    keys = tuple((n, path) for n in nodes)
    return NameOrigin("blob" if prefix in job.nodes else "blobs", keys)


def step_names(pipe: Pipe) -> dict[int, str]:
    """Return a name per step, by ``id``, unique in the pipe: ``scale``, ``step``, ``step_2``."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for step in (*pipe.map, *pipe.do):
        name, number = step.name, numbers.get(step.name, 1)
        while name in taken:
            number += 1
            name = f"{step.name}_{number}"
        numbers[step.name] = number
        taken.add(name)
        names[id(step)] = name
    return names


class StepColumns(Collection[str]):
    """The columns that a step of a pipe sees, and the parts of those that ``map`` steps add.

    Those may be trees: ``parts/low`` is the leaf ``low`` of ``parts``.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names: dict[str, None] = dict.fromkeys(names)
        self._made: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Add columns that a ``map`` step returns, for the steps after it."""
        self.names |= dict.fromkeys(names)
        self._made.update(names)

    def copy(self) -> StepColumns:
        """Return a copy."""
        found = StepColumns(self.names)
        found._made = set(self._made)
        return found

    def __contains__(self, name: object) -> bool:
        if name in self.names:
            return True
        text = str(name)
        return "/" in text and any(covers(made, text) for made in self._made)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
