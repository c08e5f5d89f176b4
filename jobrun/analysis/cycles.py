"""Cycles in a graph of units: a shortest one, and those that share no unit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

__all__ = ["separate_cycles", "shortest_cycle"]

_MOST_SEARCHED = 100_000
"""The largest number of units from which a shorter cycle is searched."""


def shortest_cycle(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the units of a shortest cycle, or an empty list.

    The search starts only from units that can be on a cycle: those left after removing, repeatedly,
    all without predecessors or successors.  Of very many, only the first are tried, so that the
    time stays linear; the result is then a cycle, but not always a shortest one.
    """
    left = _core(successors)
    best: list[int] = []
    for start in sorted(left):
        if start in successors[start]:
            return [start]
    for start in sorted(left)[: max(1, _MOST_SEARCHED // (len(left) + 1))]:
        path = _path_back(start, successors, left)
        if path and (not best or len(path) < len(best)):
            best = path
            if len(best) <= 2:
                break
    return best


def separate_cycles(successors: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield short cycles that share no unit, each found without the units of those before."""
    gone: set[int] = set()
    while cycle := shortest_cycle(successors):
        yield cycle
        gone.update(cycle)
        successors = [
            [] if unit in gone else [other for other in after if other not in gone]
            for unit, after in enumerate(successors)
        ]


def _core(successors: Sequence[Sequence[int]]) -> set[int]:
    """Return the units that are left after peeling off sources, then sinks."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for unit, after in enumerate(successors):
        for other in after:
            predecessors[other].append(unit)
    left = set(range(len(successors)))
    for into, out in ((predecessors, successors), (successors, predecessors)):
        waits = {u: sum(o in left for o in into[u]) for u in left}
        ready = deque(u for u, n in waits.items() if n == 0)
        while ready:
            unit = ready.popleft()
            left.discard(unit)
            for other in out[unit]:
                if other in left:
                    waits[other] -= 1
                    if waits[other] == 0:
                        ready.append(other)
    return left


def _path_back(start: int, successors: Sequence[Sequence[int]], left: set[int]) -> list[int]:
    """Return the shortest path from ``start`` back to itself, breadth first."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        unit = queue.popleft()
        for other in successors[unit]:
            if other == start:
                path = [unit]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if other in left and other not in came_from:
                came_from[other] = unit
                queue.append(other)
    return []
