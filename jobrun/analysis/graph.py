"""The plan of a group, from the accesses of its tasks; and the blobs that persist.

Two tasks are ordered if one writes what the other reads or writes (a tree overlaps its leaves), in
the order of the spec, or by ``after``; nothing else orders them.  So every schedule of a plan has
the result of running the spec from top to bottom.

The copies of a task over several nodes are one step: all read before any writes.  If a copy reads
what another writes, a *gather* unit before them collects the inputs of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.names import Access
from jobrun.core.blob_paths import (
    Key,
    PathMap,
    PathSet,
    levels,
    outermost,
    overlaps,
    same_leaves,
    trees_of,
)
from jobrun.core.patterns import touches
from jobrun.core.position import Position
from jobrun.errors import Problem, SpecError
from jobrun.model.job import Job, Task, TaskGroup

__all__ = [
    "BlobUse",
    "Plan",
    "Unit",
    "live_scratch",
    "make_plan",
    "needs_gathering",
    "persistent",
    "ranks",
    "setup_blobs",
    "unit_key",
]


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
    cycles = list(islice(_separate_cycles(plan.successors), _MOST_CYCLES))
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
                    from jobrun.errors import did_you_mean

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


_MOST_CYCLES = 10
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


def _separate_cycles(successors: Sequence[Sequence[int]]) -> Iterator[list[int]]:
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


_MOST_SHOWN = 20


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


def live_scratch(
    plan: Plan, position: Position, watched: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return the scratch still to be read if a group is cut at ``position``, per node.

    That is: what finished tasks wrote and unfinished ones read; all outputs of an unfinished pipe;
    and the ``watched`` paths, which are read at the end of the epoch.
    """
    done = set(position.tasks)
    wanted: dict[str, set[str]] = {node: set(paths) for node, paths in watched.items()}
    written: dict[str, dict[str, None]] = {}
    for unit in plan.units:
        started = unit.key in position.pipes
        if unit.key not in done:
            for node, path in unit.access.reads:
                wanted.setdefault(node, set()).add(path)
        if unit.key in done or started:
            for node, path in unit.access.writes:
                written.setdefault(node, {})[path] = None
                if started:
                    wanted.setdefault(node, set()).add(path)
    return {
        node: [p for p in paths if any(overlaps(p, w) for w in wanted.get(node, ()))]
        for node, paths in written.items()
    }


# What persists.


def setup_blobs(analysis: JobAnalysis) -> dict[str, tuple[str, ...]]:
    """Return the paths that ``setup`` writes, per node."""
    return _minimal(analysis.job, analysis.writes_of("setup"))


def persistent(analysis: JobAnalysis) -> dict[str, tuple[str, ...]]:
    """Return the paths whose values are saved, per node, in the order of the spec.

    What ``state`` names, every blob that ``init`` writes itself or a part of it, every blob of
    ``epoch`` that a later group reads, and what ``checkpoint.include`` adds.  A name that ``epoch``
    writes whole replaces the tree whose parts persist, so it persists in their place.  The rule is
    data flow, never a name.
    """
    job = analysis.job
    later = PathSet(
        k
        for group in ("download", "exit")
        for _, copies in analysis.units_of(group)
        for _, a in copies
        for k in (*a.reads, *a.best)
    )
    include = job.checkpoint.include if job.checkpoint else ()

    def wanted(key: Key) -> bool:
        return later.touches(key) or any(touches(pattern, *key) for pattern in include)

    epoch = dict.fromkeys(analysis.writes_of("epoch"))
    kept = dict.fromkeys((*analysis.writes_of("init"), *filter(wanted, epoch)))
    replaced = {(node, tree) for node, path in kept for tree in trees_of(path)}
    setup = set(analysis.writes_of("setup"))
    whole = (key for key in epoch if key in replaced)
    made = (k for k in (*kept, *whole) if k not in setup)
    return _minimal(job, (*analysis.live.saved, *made))


def ranks(analysis: JobAnalysis) -> dict[str, dict[str, int]]:
    """Per node, the order in which the spec first writes each leaf of a tree."""
    found: dict[str, dict[str, int]] = {n: {} for n in analysis.job.nodes}
    for group in analysis.job.groups:
        for node, path in analysis.writes_of(group):
            for level in reversed([*levels(path)]):
                found[node].setdefault(level, len(found[node]))
    return found


def _minimal(job: Job, keys: Iterable[Key]) -> dict[str, tuple[str, ...]]:
    """Per node the paths without those that lie below another, in order."""
    paths: dict[str, list[str]] = {n: [] for n in job.nodes}
    for node, path in keys:
        paths[node].append(path)
    return {node: outermost(own) for node, own in paths.items()}
