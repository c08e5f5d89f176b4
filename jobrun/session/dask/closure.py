"""Units that must have run if some have: a cut of a group is closed under its predecessors."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jobrun.analysis.graph import Plan

__all__ = ["closure"]


def closure(
    plan: Plan,
    done: Collection[str],
    begun: Collection[str],
    edges: Iterable[tuple[str, str]] = (),
) -> frozenset[str]:
    """Return the keys of the units that belong to a cut.

    In the cut, ``done`` are finished and ``begun`` pipes have started: with each unit all that come
    before it belong to the cut, and with a copy of a gathered task all copies.  ``edges`` are pairs
    of keys that the plan does not contain: the first comes before the second.  A begun pipe is
    included only if something that is finished comes after it, or after a copy in lock step.
    """
    numbers = {unit.key: i for i, unit in enumerate(plan.units) if not unit.gathers}
    before: list[list[int]] = [[] for _ in plan.units]
    for number, after in enumerate(plan.successors):
        for other in after:
            before[other].append(number)
    for first, second in edges:
        before[numbers[second]].append(numbers[first])
    found = {numbers[key] for key in done}
    left = list(found)
    for key in begun:
        number = numbers[key]
        gather = plan.gathered_by.get(number, number)  # it would bring the copies, to their ends
        ahead = [i for i in (*before[number], *before[gather]) if i != gather]
        left += [i for i in ahead if i not in found]
        found.update(ahead)
    while left:
        number = left.pop()
        gather = plan.gathered_by.get(number, number)
        copies = plan.units[gather].gathers
        for other in (*before[number], *copies):
            if other not in found:
                found.add(other)
                left.append(other)
    return frozenset(plan.units[i].key for i in found if not plan.units[i].gathers)
