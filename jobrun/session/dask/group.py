"""One worker's part of a group, prepared to run, with the messages from and to other workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from jobrun.analysis.accesses import Reduced
from jobrun.analysis.graph import Unit
from jobrun.analysis.persistence import ranks
from jobrun.analysis.schedule import epochs_between
from jobrun.core.blob_paths import Key
from jobrun.core.position import Position
from jobrun.errors import TaskError
from jobrun.model.job import Pipe
from jobrun.session.base import Control
from jobrun.session.batch_counts import BatchCounts
from jobrun.session.binding import Binding
from jobrun.session.dask.event_queue import NewsQueue
from jobrun.session.dask.mailbox import Mailbox, Mirror
from jobrun.session.dask.messages import Message, Missing, Post, arrived, has_opaque
from jobrun.session.dask.shared_content import SharedMemory
from jobrun.session.dask.step_board import StepBoard
from jobrun.session.dask.step_exchange import StepExchange
from jobrun.session.dask.worker_plan import Send, WorkerPlan
from jobrun.session.pipe.lock_step import Exchange
from jobrun.session.stores import Stores
from jobrun.session.task_group import Group, Now, slowest_of
from jobrun.values.boxes import Value
from jobrun.values.reduction import Range, partial_ranges
from jobrun.values.workspace import Workspace

__all__ = ["WorkerGroup"]


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
        self._ended_before: tuple[str, ...] = ()
        super().__init__(binding, portion.plan)
        self._add_waits()

    def _view(self, own_ranks: Mapping[str, Mapping[str, int]]) -> Stores:
        """Return the blobs of all nodes as seen by a task that uses those of other workers."""
        there = [n for n in self._all_nodes if n not in self._own.nodes]
        mirrors: dict[str, Workspace] = {n: Mirror(own_ranks[n]) for n in there}
        return Stores(
            {**mirrors, **self._own.nodes},
            self._own.best,
            self._own.written,
            live=self._own.live,
            generators=self._own.generators,
        )

    def _add_waits(self) -> None:
        """Let units wait for messages, and the messages of a gathering for users of an object."""
        portion, dag = self._portion, self._dag
        for before, after in self._objects.edges:
            for send in portion.meetings.get(after, ()):
                dag.successors[before].append(send)
                dag.waits[send] += 1
        for number, messages in enumerate(portion.messages):
            dag.waits[number] += messages
        for numbers in portion.awaits.values():
            for number in numbers:
                dag.waits[number] += 1
        gathers = {number for number, unit in enumerate(portion.plan.units) if unit.gathers}
        self._before = [  # the turns of pipes that meet are no order of the job
            [n for n in before if not (number in gathers and n in gathers)]
            for number, before in enumerate(dag.before())
        ]

    def _mirrors(self, task: str) -> Iterable[Mirror]:
        found = self._views[task].nodes.values() if task in self._views else ()
        return (mirror for mirror in found if isinstance(mirror, Mirror))

    def _stores_of(self, number: int) -> Stores:
        return self._views.get(self._plan.units[number].task.name, self._own)

    def _runner(self, number: int, unit: Unit) -> Callable[[Now], None]:
        if number in self._portion.sends:
            send = self._portion.sends[number]
            every = epochs_between(self._job, unit.task, unit.node)
            return lambda now: self._send(number, send, now.moment.epoch % every == 0)
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
            finished = self._run_units(now, done, skip, lambda: self._open_mail(run))
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
        self._ended_before = tuple(key for key in self._portion.awaits if key in tasks)
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

    def is_held(self, now: Now) -> bool:
        """Return whether all that is left here lies behind the batches that may be applied."""
        if now.batches is None:
            return False
        units = range(len(self._portion.owners))
        return now.batches.held.issuperset(set(units).difference(self._finished))

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
        return dict(slowest_of((key, now.seconds[number]) for key, number in runs.items()))

    def stop(self, *, halt: bool = False) -> None:
        """Start nothing new, as at a cut; with ``halt`` pipes end too, since the run has failed."""
        if halt and self._now is not None:
            self._now.halted = True
        self._scheduler.stop()

    def _execute(self, number: int) -> None:
        now = self._now
        assert now is not None
        if number in self._portion.sends or number in self._puts:
            if now.batches is not None and not now.batches.begin(number):
                self._send_held(number)
                return
            try:
                self._runs[number](now)
            except BaseException:
                now.halted = True
                raise
            return
        super()._execute(number)
        if number not in now.cut and not self._plan.units[number].gathers:
            self._put_out(number)

    def _counts(self, control: Control) -> BatchCounts | None:
        """See Group; counted with the units of other workers, where they decide."""
        portion = self._portion
        if not portion.counted:
            return super()._counts(control)
        bound = {*self._dag.bound, *portion.sends, *self._puts}
        return BatchCounts(self._before, bound, control.batches_left())

    def _add_edge(self, before: int, after: int) -> None:
        """See Group; copies that meet on other workers wait for what those here wait for."""
        for unit in (*self._portion.meetings.get(after, ()), after):
            super()._add_edge(before, unit)

    def printed(self, text: str, is_error: bool) -> None:
        """Handle printed text of a task."""
        self._news.printed(text, is_error)

    # Messages.

    def _open_mail(self, run: int) -> None:
        """Handle the messages of a run, and that units have ended before it."""
        self._mailbox.open(run, self._arrive)
        for key in self._ended_before:
            for number in self._waiting(self._portion.awaits[key]):
                self._scheduler.arrived(number)

    def _waiting(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if number not in self._finished]

    def _arrive(self, message: Message) -> None:
        """Handle a message of this run; it comes again when the run continues after a cut."""
        if message.held_in not in (0, self._turn):
            return
        portion = self._portion
        if message.kind == "input":
            waiting = self._waiting(portion.readers[message.unit])
            self._fill_in(message, waiting)
        elif message.kind == "output":
            waiting = self._waiting([portion.puts[message.unit]])
            self._inbox.update(dict.fromkeys(waiting, message.values))
        else:
            waiting = self._waiting(portion.awaits[message.unit])
        batches = self._batches
        for number in waiting:
            if batches is not None:
                batches.elsewhere(number, message.count, held=message.held_in > 0)
            self._scheduler.arrived(number)

    def _fill_in(self, message: Message, waiting: Sequence[int]) -> None:
        """Fill in the inputs of a task, once: since then its copies may have written there."""
        if not waiting or id(message) in self._read:
            return
        self._read[id(message)] = message  # kept, so that its id stays its own
        view = self._views[message.unit]
        for (node, path), value in message.values.items():
            mirror = view.nodes[node]
            assert isinstance(mirror, Mirror)
            mirror.fill(path, value)
        for reduction, parts in message.parts.items():
            own = view.parts.setdefault(reduction, {})
            own |= {place: arrived(part) for place, part in parts.items()}

    @property
    def _batches(self) -> BatchCounts | None:
        return self._now.batches if self._now is not None else None

    def _count(self, number: int) -> int:
        """Return how many batches lie before the end of a unit."""
        return self._batches.count(number) if self._batches is not None else 0

    def _send_held(self, number: int) -> None:
        """Send that the values of a send are held."""
        send = self._portion.sends.get(number)
        if send is not None:
            held = Message(self._run_number, send.task, "input", held_in=self._turn)
            self._post(send.to, held)

    def _send(self, number: int, send: Send, due: bool) -> None:
        """Send the blobs that a task reads on another worker; none if it is not due."""
        values = {key: self._value(key) for key in send.keys} if due else {}
        parts = {r: self._reduced(r, send.task) for r in send.reduced} if due else {}
        count = self._count(number)
        self._post(send.to, Message(self._run_number, send.task, "input", values, parts, count))

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
        """Send what a unit has written on other workers; drop what its task received at its end.

        A unit that is held has not come to it: that is sent in place of the values.
        """
        (key,), run = self._portion.owners[number], self._run_number
        held = self._batches is not None and number in self._batches.held
        count = self._count(number)
        held_in = self._turn if held else 0
        for peer in self._portion.outputs[number]:
            values = {} if held else self.outputs(number, peer)
            self._post(peer, Message(run, key, "output", values, count=count, held_in=held_in))
        for peer in self._portion.ends.get(number, ()):
            self._post(peer, Message(run, key, "end", count=count, held_in=held_in))
        if held:
            return
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
