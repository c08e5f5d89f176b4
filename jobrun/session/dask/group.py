"""One worker's part of a group, prepared to run, with the messages from and to other workers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest

from jobrun.analysis.graph import Unit, ranks
from jobrun.analysis.names import Key, Reduced
from jobrun.analysis.schedule import epochs_between
from jobrun.core.position import Position
from jobrun.errors import TaskError
from jobrun.model.job import Pipe
from jobrun.session.base import Control
from jobrun.session.binding import Binding
from jobrun.session.dask.event_queue import NewsQueue
from jobrun.session.dask.messages import Message, Missing, Post, arrived, has_opaque
from jobrun.session.dask.shared_content import SharedMemory
from jobrun.session.dask.step_board import StepBoard
from jobrun.session.dask.step_exchange import StepExchange
from jobrun.session.dask.worker_plan import Send, WorkerPlan
from jobrun.session.pipe.lock_step import Exchange
from jobrun.session.stores import Stores
from jobrun.session.task_group import SLOWEST, Group, Now
from jobrun.values.boxes import Value
from jobrun.values.reduction import Range, partial_ranges
from jobrun.values.workspace import Workspace

__all__ = ["Mailbox", "WorkerGroup"]


class Mailbox:
    """The messages of the current run, and of one that other workers have already begun."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[int, list[Message]] = defaultdict(list)
        self._open: tuple[int, Callable[[Message], None]] | None = None

    def put(self, message: Message) -> None:
        """Add a message."""
        with self._lock:
            self._messages[message.run].append(message)
            if self._open is not None and self._open[0] == message.run:
                self._open[1](message)

    def open(self, run: int, take: Callable[[Message], None]) -> None:
        """Pass each message of a run to ``take``, those that have already come first."""
        with self._lock:
            for message in self._messages[run]:
                take(message)
            self._open = (run, take)

    def close(self) -> None:
        """Keep messages from now on; nothing receives them."""
        with self._lock:
            self._open = None

    def forget(self, before: int) -> None:
        """Drop the messages of runs before this one."""
        with self._lock:
            for run in [r for r in self._messages if r < before]:
                del self._messages[run]


class _Mirror(Workspace):
    """Blobs of a node of another worker, as a task sees them: received ones, and its outputs."""

    def __init__(self, ranks: Mapping[str, int]) -> None:
        super().__init__(ranks)
        self._missing: dict[str, Missing] = {}

    def fill(self, path: str, value: Value | Missing) -> None:
        """Store a received value, or why there is none."""
        if isinstance(value, Missing):
            self._missing[path] = value
        else:
            self.put(path, arrived(value))

    def get(self, path: str) -> Value:
        """See Workspace."""
        missing = self._missing.get(path)
        if missing is not None and self.find(path) is None:
            raise TaskError(missing.message, hint=missing.hint)
        return super().get(path)

    def clear(self) -> None:
        """Drop all blobs."""
        self.root = {}
        self._missing = {}


class WorkerGroup(Group):
    """The units of a worker's part of a group, bound to the blobs of its nodes.

    The copies of a task here see the blobs of other workers through one view, so that each value
    is held once.
    """

    def __init__(
        self,
        portion: WorkerPlan,
        mailbox: Mailbox,
        post: Post,
        news: NewsQueue,
        binding: Binding,
        peers: Mapping[str, str],
        steps: StepBoard,
    ) -> None:
        self._peers = peers
        self._steps = steps
        self._turn = 0
        self._begun: set[int] = set()
        self._exchanges: dict[int, StepExchange] = {}
        self._portion = portion
        self._mailbox = mailbox
        self._post = post
        self._news = news
        self._all_nodes = tuple(binding.analysis.job.nodes)
        self._own = binding.stores
        units = portion.plan.units
        self._copies: dict[str, list[int]] = {}
        for number in portion.runs.values():
            self._copies.setdefault(units[number].task.name, []).append(number)
        own_ranks = ranks(binding.analysis)
        self._views: dict[str, Stores] = {
            name: self._view(own_ranks)
            for name, copies in self._copies.items()
            if any(portion.messages[n] for n in portion.readers[name])
            or any(portion.outputs[n] for n in copies)
        }
        self._puts = {number: key for key, number in portion.puts.items()}
        self._inbox: dict[int, Mapping[Key, Value | Missing]] = {}
        self._read: dict[int, Message] = {}
        self._run_number = 0
        self._finished: list[int] = []
        self._left_of: dict[str, set[int]] = {}
        super().__init__(binding, portion.plan)
        for before, after in self._objects.edges:
            for send in portion.meetings.get(after, ()):
                self._dag.successors[before].append(send)
                self._dag.waits[send] += 1
        for number, messages in enumerate(portion.messages):
            self._dag.waits[number] += messages

    def _view(self, own_ranks: Mapping[str, Mapping[str, int]]) -> Stores:
        """Return the blobs of all nodes as seen by a task that uses those of other workers."""
        there = [n for n in self._all_nodes if n not in self._own.nodes]
        mirrors: dict[str, Workspace] = {n: _Mirror(own_ranks[n]) for n in there}
        return Stores(
            {**mirrors, **self._own.nodes},
            self._own.best,
            self._own.written,
            live=self._own.live,
            generators=self._own.generators,
        )

    def _mirrors(self, task: str) -> Iterable[_Mirror]:
        found = self._views[task].nodes.values() if task in self._views else ()
        return (mirror for mirror in found if isinstance(mirror, _Mirror))

    def _stores_of(self, number: int) -> Stores:
        return self._views.get(self._plan.units[number].task.name, self._own)

    def _runner(self, number: int, unit: Unit) -> Callable[[Now], None]:
        if number in self._portion.sends:
            send = self._portion.sends[number]
            every = epochs_between(self._job, unit.task, unit.node)
            return lambda now: self._send(send, now.moment.epoch % every == 0)
        if number in self._puts:
            return lambda now: self._take_in(number)
        return super()._runner(number, unit)

    # Running.

    def run_portion(
        self,
        run: int,
        turn: int,
        position: Position,
        control: Control,
        only: frozenset[str] | None = None,
    ) -> tuple[Position, Now]:
        """Run the worker's part from ``position`` on; return its own position reached.

        With ``only``, the keys of units, continue what was cut in the same run: what belongs to
        those units runs to its end, unless it waits for what belongs to others.
        """
        self._turn = turn
        self._begun = set()
        if only is None:
            self._start_afresh(run, set(position.tasks))
        owners, done = self._portion.owners, self._finished
        skip: list[int] = []
        if only is not None:
            left = set(range(len(owners))).difference(done)
            skip = [number for number in left if not only.intersection(owners[number])]
        before = self._now
        now = self._begin(position, control)
        if only is not None and before is not None:
            now.gathered.update(before.gathered)  # of copies that were cut after their gathering
        try:
            finished = self._run_units(
                now, done, skip, lambda: self._mailbox.open(run, self._arrive)
            )
            self._cancel_steps(set(finished))
        finally:
            self._mailbox.close()
            self._news.end_lines()
        self._finished = finished
        ended = set(self._finished)
        tasks = tuple(key for key, number in self._portion.runs.items() if number in ended)
        return Position(position.epochs, tasks, now.pipes, now.readers), now

    # Pipes in lock step.

    def _others(self, gather: int) -> list[str]:
        """Return the other workers that have copies of a pipe."""
        nodes = self._job.nodes_of(self._plan.units[gather].task)
        own = {self._peers[node] for node in self._own.nodes}
        return [p for p in dict.fromkeys(self._peers[n] for n in nodes) if p not in own]

    def _exchange(self, gather: int) -> Exchange:
        """See Group: with the copies of a pipe on other workers."""
        now = self._now
        assert now is not None
        self._begun.add(gather)
        return self._exchange_of(gather).begin(self._turn, lambda: now.halted)

    def _exchange_of(self, gather: int) -> StepExchange:
        found = self._exchanges.get(gather)
        if found is None:
            found = self._exchanges[gather] = StepExchange(
                self._plan.units[gather].task.name,
                self._me,
                self._others(gather),
                self._post,
                self._steps,
                self._news.unreached,
                (SharedMemory(), SharedMemory()),
                {},
            )
        return found

    def _cancel_steps(self, ended: set[int]) -> None:
        """Report pipes in lock step that were cut here before they began to the other workers."""
        for number, unit in enumerate(self._plan.units):
            if unit.gathers and isinstance(unit.task, Pipe) and number not in ended | self._begun:
                self._exchange_of(number).cancel(self._turn)

    def close(self) -> None:
        """See Group; the memory of messages is released too."""
        super().close()
        for exchange in self._exchanges.values():
            exchange.close()

    @property
    def _me(self) -> str:
        return self._peers[next(iter(self._own.nodes))]

    def _start_afresh(self, run: int, tasks: set[str]) -> None:
        self._run_number = run
        self._mailbox.forget(run)
        self._inbox = {}
        self._read = {}
        for name in self._views:
            self._clear(name)
        owners = self._portion.owners
        self._finished = [n for n, keys in enumerate(owners) if tasks.issuperset(keys)]
        done = set(self._finished)
        self._left_of = {name: set(self._copies[name]) - done for name in self._views}

    @property
    def left(self) -> frozenset[str]:
        """Return the units for which something is left to do here, of this and of other workers."""
        ended = set(self._finished)
        owners = self._portion.owners
        return frozenset(
            key for number, keys in enumerate(owners) if number not in ended for key in keys
        )

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """Return the pairs of unit keys ordered by an object that both use."""
        owners = self._portion.owners
        return frozenset(
            (first, second)
            for before, after in self._objects.edges
            for first in owners[before]
            for second in owners[after]
            if first != second
        )

    @property
    def owes(self) -> bool:
        """Return whether cut pipes have written on other workers."""
        pipes = self._now.pipes if self._now is not None else ()
        return any(self._portion.outputs[self._portion.runs[key]] for key in pipes)

    def slowest(self, now: Now) -> dict[str, float]:
        """Return the slowest units of this worker, and their seconds."""
        runs = self._portion.runs
        keys = nlargest(SLOWEST, runs, key=lambda key: now.seconds[runs[key]])
        return {key: now.seconds[runs[key]] for key in keys}

    def stop(self, *, halt: bool = False) -> None:
        """Start nothing new, as at a cut; with ``halt`` pipes end too, since the run has failed."""
        if halt and self._now is not None:
            self._now.halted = True
        self._scheduler.stop()

    def _execute(self, number: int) -> None:
        now = self._now
        assert now is not None
        if number in self._portion.sends or number in self._puts:
            try:
                self._runs[number](now)
            except BaseException:
                now.halted = True
                raise
            return
        super()._execute(number)
        if number not in now.cut and not self._plan.units[number].gathers:
            self._put_out(number)

    def _add_edge(self, before: int, after: int) -> None:
        """See Group; copies that meet on other workers wait for what those here wait for."""
        for unit in (*self._portion.meetings.get(after, ()), after):
            super()._add_edge(before, unit)

    def printed(self, text: str, is_error: bool) -> None:
        """Handle printed text of a task."""
        self._news.printed(text, is_error)

    # Messages.

    def _arrive(self, message: Message) -> None:
        """Handle a message of this run; it comes again when the run continues after a cut.

        The inputs of a task are filled in once: since then its copies may have written there.
        """
        if message.is_output:
            number = self._portion.puts[message.unit]
            if number not in self._finished:
                self._inbox[number] = message.values
                self._scheduler.arrived(number)
            return
        waiting = [n for n in self._portion.readers[message.unit] if n not in self._finished]
        if waiting and id(message) not in self._read:
            self._read[id(message)] = message  # kept, so that its id stays its own
            view = self._views[message.unit]
            for (node, path), value in message.values.items():
                mirror = view.nodes[node]
                assert isinstance(mirror, _Mirror)
                mirror.fill(path, value)
            for reduction, parts in message.parts.items():
                own = view.parts.setdefault(reduction, {})
                own |= {place: arrived(part) for place, part in parts.items()}
        for number in waiting:
            self._scheduler.arrived(number)

    def _send(self, send: Send, due: bool) -> None:
        """Send the blobs that a task reads on another worker; none if it is not due."""
        values = {key: self._value(key) for key in send.keys} if due else {}
        parts = {r: self._reduced(r, send.task) for r in send.reduced} if due else {}
        self._post(send.to, Message(self._run_number, send.task, False, values, parts))

    def _reduced(self, reduction: Reduced, task: str) -> dict[Range, Value]:
        """Return what the blobs here are reduced to: the largest ranges of the tree.

        Raises TaskError, as the ``task`` that is to get them would.
        """
        keys = reduction.keys
        names = [f"{node}:{path}" for node, path in keys]
        owned = [node in self._own.nodes for node, _ in keys]
        try:
            return partial_ranges(reduction.how, names, owned, lambda i: self._own.get(keys[i]))
        except TaskError as error:
            found = next(t for t in self._job.groups[self._plan.group].tasks if t.name == task)
            text = f"task {task!r} of group {self._plan.group!r} failed: {error.message}"
            where = error.where or found.mark("in")
            raise type(error)(text, where=where, hint=error.hint) from None

    def _value(self, key: Key) -> Value | Missing:
        try:
            value = self._own.get(key)
        except TaskError as error:
            return Missing(error.message, error.hint)
        if has_opaque(value):
            node, path = key
            text = f"blob {path!r} of node {node!r} cannot be sent to another node"
            return Missing(text, "send arrays, numbers, strings, and dicts and lists of those")
        return value

    def _put_out(self, number: int) -> None:
        """Send what a unit has written on other workers; drop what its task received at its end."""
        for peer in self._portion.outputs[number]:
            (key,) = self._portion.owners[number]
            values = self.outputs(number, peer)
            self._post(peer, Message(self._run_number, key, True, values))
        name = self._plan.units[number].task.name
        left = self._left_of.get(name)
        if left is not None:
            left.discard(number)  # in one step, as copies may end at once
            if not left:
                self._clear(name)

    def _clear(self, task: str) -> None:
        """Drop what a task has received, and what it has written on other workers."""
        self._views[task].parts.clear()
        for mirror in self._mirrors(task):
            mirror.clear()

    def outputs(self, number: int, peer: str) -> dict[Key, Value | Missing]:
        """Return what a unit has written on the nodes of another worker."""
        found: dict[Key, Value | Missing] = {}
        stores = self._stores_of(number)
        for node, path in self._portion.outputs[number][peer]:
            value = stores.nodes[node].find(path)
            if value is not None:
                text = f"blob {path!r} cannot be stored on node {node!r}"
                found[node, path] = Missing(text) if has_opaque(value) else value
        return found

    def partial_outputs(self) -> dict[str, dict[Key, Value | Missing]]:
        """Return what cut pipes have written on other workers so far."""
        found: dict[str, dict[Key, Value | Missing]] = {}
        for key in self._now.pipes if self._now is not None else ():
            number = self._portion.runs[key]
            for peer in self._portion.outputs[number]:
                found.setdefault(peer, {}).update(self.outputs(number, peer))
        return found

    def _take_in(self, number: int) -> None:
        """Store what a unit of another worker has written here."""
        for key, value in self._inbox.pop(number).items():
            if isinstance(value, Missing):
                raise TaskError(value.message, hint=value.hint)
            self._store(key, arrived(value), number)
