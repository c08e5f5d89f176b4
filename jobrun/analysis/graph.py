"""The plan of a group, from the accesses of its tasks.

Two tasks are ordered if one writes what the other reads or writes (a tree overlaps its leaves), in
the order of the spec, or by ``after``; nothing else orders them.  So every schedule of a plan has
the result of running the spec from top to bottom.

The copies of a task over several nodes are one step: all read before any writes.  If a copy reads
what another writes, a *gather* unit before them collects the inputs of all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from jobrun.analysis.accesses import Access
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.cycles import separate_cycles
from jobrun.core.blob_paths import (
    Key,
    PathMap,
    same_leaves,
)
from jobrun.errors import Problem, SpecError
from jobrun.model.job import Job, Task, TaskGroup

__all__ = ["BlobUse", "Plan", "Unit", "make_plan", "needs_gathering", "unit_key"]

_MOST_CYCLES = 10
_MOST_SHOWN = 20
"""The largest number of units of a cycle that are named."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A task on one node; or, with ``gathers``, the gathering of inputs for those units.

    ``key`` is unique in the job's group: the task's name, behind ``node:`` if there are several.
    """

    key: str
    task: Task
    node: str
    access: Access
    gathers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The order of a group's units: unit ``i`` starts when ``waits[i]`` earlier units are done.

    ``successors[i]`` are the units that wait for ``i``.  Units are in the order of the spec.
    """

    group: str
    units: tuple[Unit, ...]
    waits: tuple[int, ...]
    successors: tuple[tuple[int, ...], ...]
    gathered_by: Mapping[int, int] = field(default_factory=dict)

    def finished(self, tasks: Collection[str]) -> bool:
        """Return whether ``tasks``, keys of units, are all that there are."""
        done = frozenset(tasks)  # a position has them as a tuple
        return all(u.gathers or u.key in done for u in self.units)

    def entry(self, unit: int, before: int) -> int:
        """Return the unit that must wait if ``unit`` is to come after ``before``.

        The copies of a step read before any of them writes: what comes before one of them comes
        before their gathering, unless it is another copy of the same step, or the gathering itself.
        """
        gather = self.gathered_by.get(unit, unit)
        return unit if self.gathered_by.get(before, before) == gather else gather


def unit_key(job: Job, task: Task, node: str) -> str:
    """Return the key of a task's unit on a node."""
    return f"{node}:{task.name}" if job.multi_node else task.name


def make_plan(job: Job, group: TaskGroup, analysis: JobAnalysis | None = None) -> Plan:
    """Return the plan of a group; raises SpecError for a cycle, an unknown name, or no node."""
    builder = _Builder(analysis or JobAnalysis(job), group)
    for task in group.tasks:
        builder.add(task)
    builder.add_after()
    plan = builder.plan()
    cycles = list(islice(separate_cycles(plan.successors), _MOST_CYCLES))
    if cycles:
        raise SpecError([_cycle_problem([plan.units[i] for i in cycle]) for cycle in cycles])
    return plan


class _Builder:
    """A scan of the tasks from top to bottom, with the last writers and readers of each blob."""

    def __init__(self, analysis: JobAnalysis, group: TaskGroup) -> None:
        self.analysis = analysis
        self.job = analysis.job
        self.group = group
        self.units: list[Unit] = []
        self.before: list[set[int]] = []
        self.by_task: dict[str, list[int]] = {}
        self.gathered_by: dict[int, int] = {}
        self.blobs = BlobUse()

    def add(self, task: Task) -> None:
        """Add the copies of a task: first what they wait for, then their own accesses."""
        copies = self.analysis.copies(task)
        orders = [self.analysis.live.order(a, node) for node, a in copies]
        waits = [self._waits(a, order) for (_, a), order in zip(copies, orders, strict=True)]
        gather = needs_gathering([a for _, a in copies])
        first = len(self.units) + gather
        if gather:
            key = f"gather:{task.name}"
            copy_numbers = tuple(range(first, first + len(copies)))
            self._unit(Unit(key, task, "", Access(), copy_numbers), set().union(*waits))
        for (node, found), wait in zip(copies, waits, strict=True):
            if gather:
                self.gathered_by[len(self.units)] = first - 1
                wait = wait | {first - 1}
            self.by_task.setdefault(task.name, []).append(len(self.units))
            self._unit(Unit(unit_key(self.job, task, node), task, node, found), wait)
        for number, ((_, found), order) in enumerate(zip(copies, orders, strict=True), first):
            self._leave(found, order, number)

    def _unit(self, unit: Unit, waits: set[int]) -> None:
        self.units.append(unit)
        self.before.append(set(waits))

    def _waits(self, found: Access, order: Collection[Key]) -> set[int]:
        waits: set[int] = set()
        for key in found.reads:
            waits |= self.blobs.writers(key)
        for key in (*found.writes, *order):
            waits |= self.blobs.users(key)
        return waits

    def _leave(self, found: Access, order: Collection[Key], unit: int) -> None:
        for key in found.reads:
            self.blobs.read(key, unit)
        for key in (*found.writes, *order):
            self.blobs.write(key, unit)

    def add_after(self) -> None:
        """Add the edges of ``after``; an unknown name is a problem."""
        problems = []
        for task in self.group.tasks:
            for name in task.after:
                if name not in self.by_task:
                    from jobrun.core.suggestions import did_you_mean

                    hint = did_you_mean(name, list(self.by_task))
                    text = f"no task {name!r} in group {self.group.name!r} to come after"
                    problems.append(Problem(text, task.mark(f"after:{name}", "after"), hint))
                    continue
                for unit in self.by_task[task.name]:
                    self.before[unit].update(self.by_task[name])
                    if unit in self.gathered_by:
                        self.before[self.gathered_by[unit]].update(self.by_task[name])
        if problems:
            raise SpecError(problems)

    def plan(self) -> Plan:
        """Return the finished plan."""
        successors: list[list[int]] = [[] for _ in self.units]
        for unit, before in enumerate(self.before):
            for other in sorted(before):
                successors[other].append(unit)
        return Plan(
            self.group.name,
            tuple(self.units),
            tuple(len(b) for b in self.before),
            tuple(tuple(s) for s in successors),
            self.gathered_by,
        )


def needs_gathering(copies: Sequence[Access]) -> bool:
    """Return whether the inputs of the copies of a task are collected before any of them runs.

    What is reduced over nodes is computed there, once for all copies.
    """
    return len(copies) > 1 and (any(a.reduced for a in copies) or reads_across(copies))


def reads_across(copies: Sequence[Access]) -> bool:
    """Return whether a copy reads what another copy of the same task writes."""
    writers: dict[str, set[int]] = {}
    for number, found in enumerate(copies):
        for node, _ in found.writes:
            writers.setdefault(node, set()).add(number)
    return any(
        other != number and any(same_leaves(k, w) for w in copies[other].writes)
        for number, found in enumerate(copies)
        for k in found.reads
        for other in writers.get(k[0], ())
    )


class BlobUse:
    """The last writers of each blob and its readers since, as numbers of units."""

    def __init__(self) -> None:
        self._writers: PathMap[int] = PathMap()
        self._readers: PathMap[set[int]] = PathMap()

    def writers(self, key: Key) -> set[int]:
        """Return the last writers of whatever overlaps ``key``."""
        return set(self._writers.overlapping(key))

    def users(self, key: Key) -> set[int]:
        """Return the last writers, and the readers since, of whatever overlaps ``key``."""
        return self.writers(key).union(*self._readers.overlapping(key))

    def read(self, key: Key, unit: int) -> None:
        """Record that ``unit`` reads ``key``."""
        readers = self._readers.get(key)
        if readers is None:
            self._readers[key] = {unit}
        else:
            readers.add(unit)

    def write(self, key: Key, unit: int) -> None:
        """Record that ``unit`` writes ``key``, and forget what it waited for."""
        self._readers.drop(key)
        self._writers.drop(key)
        self._writers[key] = unit


def _cycle_problem(units: Sequence[Unit]) -> Problem:
    """Return the problem of a cycle, with the reason why each unit waits for the one before."""
    names = [u.key for u in units[:_MOST_SHOWN]]
    more = [f"{len(units) - _MOST_SHOWN} more"] if len(units) > _MOST_SHOWN else []
    text = " -> ".join([*names, *more, names[0]])
    pairs = list(zip(units, [*units[1:], units[0]], strict=True))[:_MOST_SHOWN]
    reasons = [f"{_named(unit)} {_reason(unit, before)}" for before, unit in pairs]
    waits = next((unit for before, unit in pairs if before.task.name in unit.task.after), units[0])
    message = f"these tasks wait for each other: {text}"
    return Problem(message, waits.task.mark("after"), ", ".join(reasons))


def _named(unit: Unit) -> str:
    return f"{unit.key} (line {unit.task.where.line})" if unit.task.where else unit.key


def _reason(unit: Unit, before: Unit) -> str:
    """Return why a unit waits for another one, in words."""
    if before.task.name in unit.task.after:
        return f"is 'after' {before.key}"
    for key in (*unit.access.reads, *unit.access.writes):
        for other in (*before.access.writes, *before.access.reads):
            if same_leaves(key, other):
                return f"uses {key[1]!r} after {before.key}"
    return f"waits for {before.key}"
