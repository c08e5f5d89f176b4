"""One node's part of a group, prepared to run, with the messages from and to other nodes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest

from jobrun.analysis.graph import Unit, ranks
from jobrun.analysis.names import Key
from jobrun.analysis.schedule import epochs_between
from jobrun.core.position import Position
from jobrun.errors import TaskError
from jobrun.session.base import Control
from jobrun.session.binding import Binding
from jobrun.session.call import Stores
from jobrun.session.dask.event_queue import NewsQueue
from jobrun.session.dask.messages import Message, Missing, arrived, has_opaque
from jobrun.session.dask.node_plan import NodePlan, Send
from jobrun.session.task_group import SLOWEST, Group, Now
from jobrun.values.boxes import Value
from jobrun.values.workspace import Workspace

__all__ = ["Mailbox", "NodeGroup", "Post"]

Post = Callable[[str, Message], None]
"""Sends a message to a node."""


class Mailbox:
    """The messages of the current run, and of one that other nodes have already begun."""

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
    """Blobs of another node, as one unit sees them: received ones, and its own outputs."""

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


class NodeGroup(Group):
    """The units of a node's part of a group, bound to the blobs of their node."""

    def __init__(
        self,
        portion: NodePlan,
        node: str,
        mailbox: Mailbox,
        post: Post,
        news: NewsQueue,
        binding: Binding,
    ) -> None:
        self._portion = portion
        self._node = node
        self._mailbox = mailbox
        self._post = post
        self._news = news
        self._all_nodes = tuple(binding.analysis.job.nodes)
        self._own = binding.stores
        own_ranks = ranks(binding.analysis)
        self._views: dict[int, Stores] = {
            number: self._view(own_ranks)
            for key, number in portion.runs.items()
            if portion.messages[portion.waiting[key]] or portion.outputs[number]
        }
        self._puts = {number: key for key, number in portion.puts.items()}
        self._inbox: dict[int, Mapping[Key, Value | Missing]] = {}
        self._read: dict[int, Message] = {}
        self._run_number = 0
        self._finished: list[int] = []
        super().__init__(binding, portion.plan)
        for number, messages in enumerate(portion.messages):
            self._dag.waits[number] += messages

    def _view(self, own_ranks: Mapping[str, Mapping[str, int]]) -> Stores:
        """Return the blobs of all nodes as seen by a unit that reads or writes those of others."""
        mirrors: dict[str, Workspace] = {n: _Mirror(own_ranks[n]) for n in self._all_nodes}
        return Stores(
            {**mirrors, **self._own.nodes},
            self._own.best,
            live=self._own.live,
            generators=self._own.generators,
        )

    def _mirrors(self, number: int) -> Iterable[_Mirror]:
        found = self._views[number].nodes.values() if number in self._views else ()
        return (mirror for mirror in found if isinstance(mirror, _Mirror))

    def _stores_of(self, number: int) -> Stores:
        return self._views.get(number, self._own)

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
        self, run: int, position: Position, control: Control, only: Collection[str] | None = None
    ) -> tuple[Position, Now]:
        """Run the node's part from ``position`` on; return the node's own position reached.

        With ``only``, the keys of units, continue what was cut in the same run: what belongs to
        those units runs to its end, unless it waits for what belongs to others.
        """
        if only is None:
            self._start_afresh(run, set(position.tasks))
        owners, done = self._portion.owners, self._finished
        skip: list[int] = []
        if only is not None:
            left = set(range(len(owners))).difference(done)
            skip = [number for number in left if owners[number] not in only]
        before = self._now
        now = self._begin(position, control)
        if only is not None and before is not None:
            now.gathered.update(before.gathered)  # of copies that were cut after their gathering
        try:
            finished = self._run_units(
                now, done, skip, lambda: self._mailbox.open(run, self._arrive)
            )
        finally:
            self._mailbox.close()
            self._news.end_lines()
        self._finished = [number for number in finished if number not in now.cut]
        ended = set(self._finished)
        tasks = tuple(key for key, number in self._portion.runs.items() if number in ended)
        return Position(position.epochs, tasks, now.pipes, now.readers), now

    def _start_afresh(self, run: int, tasks: Collection[str]) -> None:
        self._run_number = run
        self._mailbox.forget(run)
        self._inbox = {}
        self._read = {}
        for number in self._views:
            for mirror in self._mirrors(number):
                mirror.clear()
        self._finished = [n for n, owner in enumerate(self._portion.owners) if owner in tasks]

    @property
    def left(self) -> frozenset[str]:
        """Return the units for which something is left to do here, of this and of other nodes."""
        ended = set(self._finished)
        owners = self._portion.owners
        return frozenset(owner for number, owner in enumerate(owners) if number not in ended)

    @property
    def edges(self) -> frozenset[tuple[str, str]]:
        """Return the pairs of unit keys ordered by an object that both use."""
        owners = self._portion.owners
        pairs = {(owners[before], owners[after]) for before, after in self._objects.edges}
        return frozenset(pair for pair in pairs if pair[0] != pair[1])

    @property
    def owes(self) -> bool:
        """Return whether cut pipes have written on other nodes."""
        pipes = self._now.pipes if self._now is not None else ()
        return any(self._portion.outputs[self._portion.runs[key]] for key in pipes)

    def slowest(self, now: Now) -> dict[str, float]:
        """Return the slowest units of this node, and their seconds."""
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

    def printed(self, text: str, is_error: bool) -> None:
        """Handle printed text of a task."""
        self._news.printed(text, is_error)

    # Messages.

    def _arrive(self, message: Message) -> None:
        """Handle a message of this run; it comes again when the run continues after a cut.

        A unit's inputs of other nodes are filled in once: since then the unit may have written
        there.
        """
        if message.is_output:
            number = waiting = self._portion.puts[message.unit]
        else:
            number = self._portion.runs[message.unit]
            waiting = self._portion.waiting[message.unit]
        if number in self._finished:
            return
        if message.is_output:
            self._inbox[number] = message.values
        elif id(message) not in self._read:
            self._read[id(message)] = message  # kept, so that its id stays its own
            for (node, path), value in message.values.items():
                mirror = self._views[number].nodes[node]
                assert isinstance(mirror, _Mirror)
                mirror.fill(path, value)
        self._scheduler.arrived(waiting)

    def _send(self, send: Send, due: bool) -> None:
        """Send the blobs that another node's unit reads; an empty message if that is not due."""
        values = {key: self._value(key) for key in send.keys} if due else {}
        self._post(send.to, Message(self._run_number, send.unit, False, values))

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
        """Send what a unit of this node has written on others, and drop what it received."""
        for node in self._portion.outputs[number]:
            values = self.outputs(number, node)
            key = self._portion.owners[number]
            self._post(node, Message(self._run_number, key, True, values))
        for mirror in self._mirrors(number):
            mirror.clear()

    def outputs(self, number: int, node: str) -> dict[Key, Value | Missing]:
        """Return what a unit has written on another node."""
        found: dict[Key, Value | Missing] = {}
        for path in self._portion.outputs[number][node]:
            value = self._views[number].nodes[node].find(path)
            if value is not None:
                text = f"blob {path!r} cannot be stored on node {node!r}"
                found[node, path] = Missing(text) if has_opaque(value) else value
        return found

    def partial_outputs(self) -> dict[str, dict[Key, Value | Missing]]:
        """Return what cut pipes have written on other nodes so far."""
        found: dict[str, dict[Key, Value | Missing]] = {}
        for key in self._now.pipes if self._now is not None else ():
            number = self._portion.runs[key]
            for node in self._portion.outputs[number]:
                found.setdefault(node, {}).update(self.outputs(number, node))
        return found

    def _take_in(self, number: int) -> None:
        """Store what a unit of another node has written here."""
        for key, value in self._inbox.pop(number).items():
            if isinstance(value, Missing):
                raise TaskError(value.message, hint=value.hint)
            self._store(key, arrived(value), number)
