"""Placement of nodes on workers: even shares, on workers that have what the nodes need (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from jobrun.core.suggestions import did_you_mean_or_all
from jobrun.errors import UsageError
from jobrun.model.job import match_nodes

__all__ = [
    "NO_RESOURCES",
    "Avoided",
    "Resources",
    "assign",
    "has_all",
    "needs_of",
    "resources_text",
    "shares",
]

Resources = Mapping[str, float]
"""Amounts by the names of resources, as ``dask worker --resources`` declares them."""

NO_RESOURCES: Mapping[str, Resources] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Avoided:
    """Workers by address: ``lost`` ones, and pairs ``apart``, which do not reach each other.

    ``able`` are those that are known to have jobrun.
    """

    lost: set[str] = field(default_factory=set)
    able: set[str] = field(default_factory=set)
    apart: set[tuple[str, str]] = field(default_factory=set)

    def usable(self, workers: Iterable[str]) -> list[str]:
        """Return the workers that may have nodes together, sorted.

        Of two that are apart, the one that is apart from more others is left out, else the second
        by address.
        """
        found = sorted(set(workers) - self.lost)
        while pairs := [p for p in sorted(self.apart) if set(p) <= set(found)]:
            count = {w: sum(w in pair for pair in pairs) for w in found}
            found.remove(max(found, key=lambda w: (count[w], w)))
        return found


def shares(nodes: Sequence[str], workers: int) -> list[tuple[str, ...]]:
    """Return the nodes of each worker, at most one share for each node."""
    count = min(workers, len(nodes))
    ends = [number * len(nodes) // count for number in range(count + 1)]
    return [tuple(nodes[first:end]) for first, end in pairwise(ends)]


def needs_of(
    nodes: Sequence[str], resources: Mapping[str, Resources]
) -> dict[str, dict[str, float]]:
    """Return what each node needs, by ``resources`` of patterns of nodes; the largest amount wins.

    Raises UsageError for a pattern that no node matches.
    """
    found: dict[str, dict[str, float]] = {}
    for pattern, amounts in resources.items():
        matching = match_nodes(pattern, nodes)
        if not matching:
            text = f"session.resources names {pattern!r}, which no node matches"
            raise UsageError(text, hint=did_you_mean_or_all(pattern, list(nodes)))
        for node in matching:
            own = found.setdefault(node, {})
            for name, amount in amounts.items():
                own[name] = max(amount, own.get(name, 0.0))
    return found


def assign(
    nodes: Sequence[str],
    workers: Sequence[str],
    needs: Mapping[str, Resources],
    has: Mapping[str, Resources],
) -> dict[str, tuple[str, ...]] | str:
    """Return the nodes of each worker, or the first node for which no worker has enough.

    Nodes that have needs come first: each goes to the first worker that has enough left for it and
    less than its share yet, else to any that has enough; the others go where the fewest nodes are.
    """
    share = -(-len(nodes) // len(workers))
    left = {worker: dict(has.get(worker, {})) for worker in workers}
    placed: dict[str, list[str]] = {worker: [] for worker in workers}
    for node in nodes:
        if not (need := needs.get(node, {})):
            continue
        fit = [worker for worker in workers if has_all(left[worker], need)]
        if not fit:
            return node
        worker = next((w for w in fit if len(placed[w]) < share), fit[0])
        placed[worker].append(node)
        for name, amount in need.items():
            left[worker][name] -= amount
    for node in nodes:
        if not needs.get(node):
            placed[min(workers, key=lambda w: len(placed[w]))].append(node)
    order = {node: number for number, node in enumerate(nodes)}
    return {w: tuple(sorted(own, key=order.__getitem__)) for w, own in placed.items() if own}


def has_all(has: Resources, need: Resources) -> bool:
    """Return whether a worker has all that is needed."""
    return all(has.get(name, 0.0) >= amount for name, amount in need.items())


def resources_text(resources: Resources) -> str:
    """Return ``GPU=1, memory=8e+09``; ``no resources`` for none."""
    return ", ".join(f"{k}={v:g}" for k, v in resources.items()) or "no resources"
