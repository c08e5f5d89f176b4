"""The part of a group that one node runs, and the messages it waits for from the others.

Each node runs its part by itself, as fast as a job of one node; nodes meet only where one reads or
writes a blob of another, or comes ``after`` its task:

- a *send* on the node that has the blobs reads their values, in the place of their reader, and
  sends them; what writes them afterwards on that node waits for the send, not for the reader;
- the reader waits for one message of each node that it reads from;
- a *put* on the node that is to get a blob stores what another node's task has written, in the
  place of that task; it waits for one message.

So every blob is only ever used where it lives, in the order of the spec, and the result is the one
of running the spec from top to bottom.  The copies of a task that read what another copy writes
have their sends, and a gathering of their own inputs, before any of their writes.

All nodes compute their parts from the same job, and so agree on the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import BlobUse, Plan, Unit, reads_across, unit_key
from jobrun.analysis.names import Access, Key
from jobrun.model.job import Job, Task, TaskGroup

__all__ = ["NodePlan", "Send", "portion"]


@dataclass(slots=True)
class Send:
    """The values of ``keys``, sent to node ``to`` for the unit of that key there."""

    to: str
    unit: str
    keys: tuple[Key, ...]


@dataclass(frozen=True)
class NodePlan:
    """The units of a group that one node runs; numbers are those of ``plan.units``.

    ``owners`` has the key of the job's unit that each belongs to, ``messages`` how many messages it
    waits for beside ``plan.waits``.  ``runs`` are the job's own units by key, ``waiting`` the unit
    that waits for a run's messages (its gathering, or itself), ``puts`` the put of what another
    node's unit has written.  ``outputs`` are the paths that a run writes on other nodes.
    """

    plan: Plan
    owners: tuple[str, ...]
    messages: tuple[int, ...]
    runs: Mapping[str, int]
    waiting: Mapping[str, int]
    sends: Mapping[int, Send]
    puts: Mapping[str, int]
    outputs: Mapping[int, Mapping[str, tuple[str, ...]]]


def portion(analysis: JobAnalysis, group: TaskGroup, node: str) -> NodePlan:
    """Return the part of ``group`` that ``node`` runs."""
    builder = _Builder(analysis, group, node)
    for task in group.tasks:
        builder.add(task)
    builder.add_after()
    return builder.portion()


@dataclass
class _Builder:
    """Scans the tasks from top to bottom, as ``graph.make_plan`` does, for one node.

    ``sources`` are the nodes from which each of the node's own units gets a message.
    """

    analysis: JobAnalysis
    group: TaskGroup
    node: str
    units: list[Unit] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)
    blobs: BlobUse = field(default_factory=BlobUse)
    runs: dict[str, int] = field(default_factory=dict)
    gathered_by: dict[int, int] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)
    sends: dict[int, Send] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    puts: dict[str, int] = field(default_factory=dict)
    outputs: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=dict)

    @property
    def job(self) -> Job:
        """Add the node's units for the copies of a task: first all that reads, then the rest."""
        return self.analysis.job

    def add(self, task: Task) -> None:
        """Add the order that ``after`` requires; units of other nodes get a message."""
        copies = self.analysis.copies(task)
        for node, found in copies:
            keys = _of(self.node, found.reads)
            if node != self.node and keys:
                self._send(task, node, keys)
        gathers = len(copies) > 1 and reads_across([found for _, found in copies])
        for node, found in copies:
            if node == self.node:
                self._run(task, found, gathers)
        for node, found in copies:
            keys = _of(self.node, found.writes)
            if node != self.node and keys:
                self._put(task, node, keys)

    def _unit(self, unit: Unit, owner: str, waits: Iterable[int]) -> int:
        self.units.append(unit)
        self.owners.append(owner)
        self.before.append(set(waits))
        return len(self.units) - 1

    def _send(self, task: Task, to: str, keys: tuple[Key, ...]) -> int:
        owner = unit_key(self.job, task, to)
        unit = Unit(f"send:{owner}", task, to, Access(reads=list(keys)))
        number = self._unit(unit, owner, self._writers(keys))
        self.sends[number] = Send(to, owner, keys)
        self.sent[owner] = number
        for key in keys:
            self.blobs.read(key, number)
        return number

    def _run(self, task: Task, found: Access, gathers: bool) -> None:
        owner = unit_key(self.job, task, self.node)
        order = self.analysis.live.order(found, self.node)
        reads, writes = _of(self.node, found.reads), _of(self.node, (*found.writes, *order))
        waits = self._writers(reads)
        number = len(self.units) + gathers
        reader = number
        if gathers:
            unit = Unit(f"gather:{owner}", task, "", Access(reads=list(reads)), (number,))
            reader = self._unit(unit, owner, waits)
            self.gathered_by[number] = reader
            waits = {reader}
        for key in reads:
            self.blobs.read(key, reader)
        for key in writes:
            waits |= self.blobs.users(key) - {number}
        self._unit(Unit(owner, task, self.node, found), owner, waits)
        for key in writes:
            self.blobs.write(key, number)
        self.runs[owner] = number
        self.sources[owner] = {node for node, _ in found.reads if node != self.node}
        outputs: dict[str, dict[str, None]] = {}
        for node, path in found.writes:
            if node != self.node:
                outputs.setdefault(node, {})[path] = None
        self.outputs[number] = {node: tuple(paths) for node, paths in outputs.items()}

    def _put(self, task: Task, of: str, keys: tuple[Key, ...]) -> None:
        owner = unit_key(self.job, task, of)
        waits = set[int]().union(*(self.blobs.users(key) for key in keys))
        number = self._unit(Unit(f"put:{owner}", task, of, Access(writes=list(keys))), owner, waits)
        self.puts[owner] = number
        for key in keys:
            self.blobs.write(key, number)

    def _writers(self, keys: Iterable[Key]) -> set[int]:
        return set[int]().union(*(self.blobs.writers(key) for key in keys))

    def add_after(self) -> None:
        """Return the finished part."""
        by_name = {task.name: task for task in self.group.tasks}
        for task in self.group.tasks:
            earlier = [by_name[name] for name in task.after]
            if earlier:
                for node in self.job.nodes_of(task):
                    self._add_after(task, node, earlier)

    def _add_after(self, task: Task, node: str, earlier: Iterable[Task]) -> None:
        owner = unit_key(self.job, task, node)
        of_node = {
            other: {unit_key(self.job, t, other) for t in earlier if other in self.job.nodes_of(t)}
            for other in self.job.nodes
        }
        here = {self.runs[key] for key in of_node[self.node]}
        if node == self.node:
            run = self.runs[owner]
            self.before[run] |= here
            if run in self.gathered_by:
                self.before[self.gathered_by[run]] |= here
            self.sources[owner] |= {n for n, keys in of_node.items() if keys and n != node}
        elif here:
            send = self.sent.get(owner)
            if send is None:
                send = self._send(task, node, ())
            self.before[send] |= here

    def portion(self) -> NodePlan:
        """Return the keys of one node, each once."""
        successors: list[list[int]] = [[] for _ in self.units]
        for unit, before in enumerate(self.before):
            for other in sorted(before):
                successors[other].append(unit)
        waiting = {key: self.gathered_by.get(run, run) for key, run in self.runs.items()}
        messages = [0] * len(self.units)
        for key, sources in self.sources.items():
            messages[waiting[key]] = len(sources)
        for number in self.puts.values():
            messages[number] = 1
        plan = Plan(
            self.group.name,
            tuple(self.units),
            tuple(len(b) for b in self.before),
            tuple(tuple(s) for s in successors),
            self.gathered_by,
        )
        return NodePlan(
            plan,
            tuple(self.owners),
            tuple(messages),
            self.runs,
            waiting,
            self.sends,
            self.puts,
            self.outputs,
        )


def _of(node: str, keys: Iterable[Key]) -> tuple[Key, ...]:
    """The keys of one node, each once."""
    return tuple(dict.fromkeys(key for key in keys if key[0] == node))
