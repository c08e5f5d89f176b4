"""The part of a group that one worker runs, and the messages it waits for from the others.

A worker runs the tasks of its nodes by itself, as fast as a job in one process; workers meet only
where a task of one reads or writes a blob of another, or comes ``after`` its task:

- a *send* on the worker that has the blobs reads their values, in the place of their readers, and
  sends them: one message for all copies of a task on the receiving worker; what writes the blobs
  afterwards waits for the send, not for the readers;
- the readers wait for one message of each worker that they read from;
- a *put* on the worker that is to get a blob stores what another worker's task has written, in the
  place of that task; it waits for one message.

So every blob is only ever used where it lives, in the order of the spec, and the result is the one
of running the spec from top to bottom.  The copies of a task that read what another copy writes
have their sends, and a gathering of their own inputs, before any of their writes.

Copies of a pipe that meet in each batch (see ``pipe/lock_step``) hold a thread while they wait for
each other.  So they start on a worker once those of all workers can: their sends, empty ones too,
wait for all that the copies here wait for.  Several such pipes run one after another, in one order.

Where the batches decide where a run is saved, they are *counted* along the graph of the whole job
(see ``session.batch_counts``), so that a unit must know of the end of all that comes before it, on
any worker: also of a reader whose values have been sent.  So a unit waits for all that it waits for
in one process, for units of another worker by a message about their end; and a gathering here waits
for all that the copies on other workers wait for, as pipes that meet do.

The copies of a task on one worker read the same blobs of other workers, since a name without a node
is a blob of the copy's own node: so a message makes no copy wait for what it does not read.

All workers compute their parts from the same job, and so agree on the messages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from jobrun.analysis.accesses import Access, Reduced
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import BlobUse, Plan, Unit, make_plan, needs_gathering, unit_key
from jobrun.core.blob_paths import Key
from jobrun.model.job import Job, Pipe, Task, TaskGroup
from jobrun.session.dag_run import Dag

__all__ = ["Send", "WorkerPlan", "portion"]

Copies = list[tuple[str, Access]]
"""The copies of a task: node, and accesses there."""


@dataclass(frozen=True, slots=True)
class Send:
    """The values of ``keys``, sent to the worker ``to`` for the copies of ``task`` there.

    Of the blobs in ``reduced`` it gets what they are reduced to here.
    """

    to: str
    task: str
    keys: tuple[Key, ...]
    reduced: tuple[Reduced, ...] = ()


@dataclass(frozen=True)
class WorkerPlan:
    """The units of a group that one worker runs; numbers are those of ``plan.units``.

    ``owners`` has the keys of the job's units that each belongs to, ``messages`` how many messages
    it waits for beside ``plan.waits``.  ``runs`` are the job's own units by key, ``readers`` the
    units that wait for the messages to a task (its gathering, or its copies), ``puts`` the put of
    what another worker's unit has written.  ``outputs`` are the blobs that a run writes on other
    workers, ``meetings`` the sends that wait for all that a gathering waits for.

    Where batches are ``counted``, ``ends`` are the workers that wait for the end of a run, and
    ``awaits`` the units that wait for that of another worker's unit.
    """

    plan: Plan
    owners: tuple[tuple[str, ...], ...]
    messages: tuple[int, ...]
    runs: Mapping[str, int]
    readers: Mapping[str, tuple[int, ...]]
    sends: Mapping[int, Send]
    puts: Mapping[str, int]
    outputs: Mapping[int, Mapping[str, tuple[Key, ...]]]
    counted: bool
    ends: Mapping[int, tuple[str, ...]]
    awaits: Mapping[str, tuple[int, ...]]
    meetings: Mapping[int, tuple[int, ...]]


def portion(
    analysis: JobAnalysis,
    group: TaskGroup,
    nodes: Collection[str],
    peers: Mapping[str, str],
    *,
    counted: bool = False,
) -> WorkerPlan:
    """Return the part of ``group`` that the worker of ``nodes`` runs.

    ``peers`` has the worker of each node, also of its own; ``counted``: the batches are counted
    along the graph of the whole job, if there are pipes.
    """
    counted = counted and any(isinstance(task, Pipe) for task in group.tasks)
    builder = _Builder(analysis, group, frozenset(nodes), peers, counted)
    for task in group.tasks:
        builder.add(task)
    builder.add_after()
    if counted:
        builder.add_order()
    builder.add_turns()
    return builder.portion()


@dataclass
class _Builder:
    """Scans the tasks from top to bottom, as ``graph.make_plan`` does, for one worker.

    ``sources`` are the workers from which the copies of each task here get a message.
    """

    analysis: JobAnalysis
    group: TaskGroup
    nodes: frozenset[str]
    peers: Mapping[str, str]
    counted: bool
    units: list[Unit] = field(default_factory=list)
    owners: list[tuple[str, ...]] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)
    blobs: BlobUse = field(default_factory=BlobUse)
    runs: dict[str, int] = field(default_factory=dict)
    gathered_by: dict[int, int] = field(default_factory=dict)
    readers: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sources: dict[str, set[str]] = field(default_factory=dict)
    sends: dict[int, Send] = field(default_factory=dict)
    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    puts: dict[str, int] = field(default_factory=dict)
    outputs: dict[int, dict[str, tuple[Key, ...]]] = field(default_factory=dict)
    ends: dict[int, dict[str, None]] = field(default_factory=dict)
    awaits: dict[str, dict[int, None]] = field(default_factory=dict)
    meetings: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def whole(self) -> Plan:
        """Return the plan of the group on all nodes."""
        return make_plan(self.job, self.group, self.analysis)

    @property
    def job(self) -> Job:
        """Return the job."""
        return self.analysis.job

    def add(self, task: Task) -> None:
        """Add the units for the copies of a task: first all that reads, then the rest."""
        copies = self.analysis.copies(task)
        here = [(node, found) for node, found in copies if node in self.nodes]
        elsewhere = [(node, found) for node, found in copies if node not in self.nodes]
        by_peer: dict[str, Copies] = {}
        for node, found in elsewhere:
            by_peer.setdefault(self.peers[node], []).append((node, found))
        gathers = needs_gathering([found for _, found in copies])
        meet = bool(here) and (_meets(task, copies) or (self.counted and gathers))
        for peer, there in by_peer.items():
            if meet or self._own(key for _, found in there for key in found.reads):
                self._send(task, peer, there)
        if here:
            self._run(task, here, gathers)
            if meet:
                self._meet(task, by_peer)
        for node, found in elsewhere:
            keys = self._own(found.writes)
            if keys:
                self._put(task, node, keys)

    def _meet(self, task: Task, peers: Iterable[str]) -> None:
        """Let the copies of a task here start once those on all ``peers`` can."""
        (gather,) = self.readers[task.name]
        sends = {self.sent[task.name, peer] for peer in peers}
        self.meetings[gather] = tuple(sorted(sends))
        for send in sends:
            self.before[send] |= self.before[gather] - sends
        self.before[gather] |= sends  # the thread that it holds is not needed for them any more
        self.sources[task.name].update(peers)

    def add_turns(self) -> None:
        """Let pipes that meet in each batch run one after another, on all workers in one order."""
        pipes = [t for t in self.group.tasks if _meets(t, self.analysis.copies(t))]
        if len(pipes) < 2:
            return
        plan = self.whole
        place = Dag([*plan.waits], [[*after] for after in plan.successors]).order()
        first: dict[str, int] = {}
        for number, unit in enumerate(plan.units):
            first.setdefault(unit.task.name, place[number])
        own = [t.name for t in pipes if t.name in self.readers]
        for earlier, later in pairwise(sorted(own, key=first.__getitem__)):
            (before,), (after,) = self.readers[earlier], self.readers[later]
            self.before[after].add(before)

    def _unit(self, unit: Unit, owners: Iterable[str], waits: Iterable[int]) -> int:
        self.units.append(unit)
        self.owners.append(tuple(owners))
        self.before.append(set(waits))
        return len(self.units) - 1

    def _keys(self, task: Task, nodes: Iterable[str]) -> list[str]:
        return [unit_key(self.job, task, node) for node in nodes]

    def _send(self, task: Task, to: str, copies: Copies) -> int:
        """Add the message to the copies of a task on another worker."""
        nodes = [node for node, _ in copies]
        keys = self._own(key for _, found in copies for key in found.reads)
        reduced = dict.fromkeys(r for _, found in copies for r in found.reduced)
        own = tuple(r for r in reduced if self._own(r.keys))
        if isinstance(task, Pipe):  # what it reduces is exchanged in each batch: see lock_step
            own = ()
        unit = Unit(f"send:{nodes[0]}:{task.name}", task, nodes[0], Access(reads=list(keys)))
        number = self._unit(unit, self._keys(task, nodes), self._writers(keys))
        whole = self._own(key for _, found in copies for key in found.read_whole())
        self.sends[number] = Send(to, task.name, whole, own)
        self.sent[task.name, to] = number
        for key in keys:
            self.blobs.read(key, number)
        return number

    def _run(self, task: Task, copies: Copies, gathers: bool) -> None:
        """Add the copies of a task here, and the gathering of their inputs if they need one."""
        first = len(self.units) + gathers
        numbers = tuple(range(first, first + len(copies)))
        owners = self._keys(task, [node for node, _ in copies])
        reads = [self._own(found.reads) for _, found in copies]
        writes = [
            self._own((*found.writes, *self.analysis.live.order(found, node)))
            for node, found in copies
        ]
        waits = [self._writers(keys) for keys in reads]
        for own, keys in zip(waits, writes, strict=True):
            own.update(*(self.blobs.users(key) for key in keys))
        if gathers:
            unit = Unit(f"gather:{task.name}", task, "", Access(), numbers)
            self._unit(unit, owners, set[int]().union(*waits))
            self.gathered_by.update(dict.fromkeys(numbers, first - 1))
            for own in waits:
                own.add(first - 1)
        for (node, found), owner, own in zip(copies, owners, waits, strict=True):
            self._unit(Unit(owner, task, node, found), (owner,), own)
        for number, keys in zip(numbers, reads, strict=True):
            for key in keys:
                self.blobs.read(key, number)
        for number, keys in zip(numbers, writes, strict=True):
            for key in keys:
                self.blobs.write(key, number)
        self.runs.update(zip(owners, numbers, strict=True))
        self.readers[task.name] = (first - 1,) if gathers else numbers
        self.sources[task.name] = {
            self.peers[node]
            for _, found in copies
            for node, _ in found.reads
            if node not in self.nodes
        }
        for number, (_, found) in zip(numbers, copies, strict=True):
            outputs: dict[str, dict[Key, None]] = {}
            for key in found.writes:
                if key[0] not in self.nodes:
                    outputs.setdefault(self.peers[key[0]], {})[key] = None
            self.outputs[number] = {peer: tuple(keys) for peer, keys in outputs.items()}

    def _put(self, task: Task, of: str, keys: tuple[Key, ...]) -> None:
        owner = unit_key(self.job, task, of)
        waits = set[int]().union(*(self.blobs.users(key) for key in keys))
        unit = Unit(f"put:{owner}", task, of, Access(writes=list(keys)))
        number = self._unit(unit, (owner,), waits)
        self.puts[owner] = number
        for key in keys:
            self.blobs.write(key, number)

    def _writers(self, keys: Iterable[Key]) -> set[int]:
        return set[int]().union(*(self.blobs.writers(key) for key in keys))

    def _own(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        """Return the keys of this worker's nodes, each once."""
        return tuple(dict.fromkeys(key for key in keys if key[0] in self.nodes))

    def add_after(self) -> None:
        """Add the order that ``after`` requires; copies on other workers get a message."""
        by_name = {task.name: task for task in self.group.tasks}
        for task in self.group.tasks:
            earlier = [by_name[name] for name in task.after]
            if earlier:
                self._add_after(task, earlier)

    def _add_after(self, task: Task, earlier: Iterable[Task]) -> None:
        keys = {
            (node, unit_key(self.job, other, node))
            for other in earlier
            for node in self.job.nodes_of(other)
        }
        here = {self.runs[key] for node, key in keys if node in self.nodes}
        by_peer: dict[str, list[str]] = {}
        for node in self.job.nodes_of(task):
            by_peer.setdefault(self.peers[node], []).append(node)
        for peer, nodes in by_peer.items():
            if nodes[0] in self.nodes:
                for run in (self.runs[key] for key in self._keys(task, nodes)):
                    self.before[run] |= here
                    if run in self.gathered_by:
                        self.before[self.gathered_by[run]] |= here
                others = {self.peers[node] for node, _ in keys if node not in self.nodes}
                self.sources[task.name] |= others
            elif here:
                send = self.sent.get((task.name, peer))
                if send is None:
                    send = self._send(task, peer, [(node, Access()) for node in nodes])
                self.before[send] |= here

    def add_order(self) -> None:
        """Let all units wait for what they wait for in one process, also on other workers."""
        units = self.whole.units
        for before, following in zip(units, self.whole.successors, strict=True):
            for after in (units[number] for number in following):
                if not before.gathers and not after.gathers:  # else each of the copies waits
                    self._add_order(before, after)

    def _add_order(self, before: Unit, after: Unit) -> None:
        waiting: list[int] = []
        if after.node in self.nodes:
            entry = self.gathered_by.get(self.runs[after.key], self.runs[after.key])
            waiting = [entry, *self.meetings.get(entry, ())]
        if before.node in self.nodes:
            number = self.runs[before.key]
            for unit in waiting:
                self.before[unit].add(number)
            if not waiting:
                self.ends.setdefault(number, {})[self.peers[after.node]] = None
        else:
            for unit in waiting:
                self.awaits.setdefault(before.key, {})[unit] = None

    def portion(self) -> WorkerPlan:
        """Return the finished part."""
        successors: list[list[int]] = [[] for _ in self.units]
        for unit, before in enumerate(self.before):
            for other in sorted(before):
                successors[other].append(unit)
        messages = [0] * len(self.units)
        for name, sources in self.sources.items():
            for number in self.readers[name]:
                messages[number] = len(sources)
        for number in self.puts.values():
            messages[number] = 1
        plan = Plan(
            self.group.name,
            tuple(self.units),
            tuple(len(b) for b in self.before),
            tuple(tuple(s) for s in successors),
            self.gathered_by,
        )
        return WorkerPlan(
            plan,
            tuple(self.owners),
            tuple(messages),
            self.runs,
            self.readers,
            self.sends,
            self.puts,
            self.outputs,
            self.counted,
            {number: tuple(peers) for number, peers in self.ends.items()},
            {key: tuple(numbers) for key, numbers in self.awaits.items()},
            self.meetings,
        )


def _meets(task: Task, copies: Copies) -> bool:
    """Return whether the copies of a task are a pipe's that meet in each batch."""
    return isinstance(task, Pipe) and len(copies) > 1 and any(found.reduced for _, found in copies)
