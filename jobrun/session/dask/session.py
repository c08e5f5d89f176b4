"""DaskSession: a job on a dask.distributed cluster, each node an actor on one of its workers.

A run of a group is one request to each node; they meet only where they exchange blobs (see
``portion``).  The cut of a run over several nodes: all are told to start nothing new, and say what
they have finished.  What has run may have overtaken what should have run before it on another node,
since nobody waits for a reader that has been sent its values; so the nodes then run what is missing
until what is finished is closed: with each unit, all that come before it in the plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import count
from pathlib import Path
from queue import Empty
from typing import Any

import jobrun
from jobrun.access import key_of
from jobrun.bind import bind_job
from jobrun.checkpoint.fs import DEFAULT
from jobrun.checkpoint.part import PartSummary
from jobrun.checkpoint.verify import check_written
from jobrun.code import loaded_code
from jobrun.errors import (
    DamagedError,
    NotFoundError,
    SaveError,
    TaskError,
    UsageError,
    WorkerLostError,
)
from jobrun.events import Event, GroupFinished, GroupStarted, TasksRunning, Warned
from jobrun.graph import Plan
from jobrun.job import Job
from jobrun.policy import Compress
from jobrun.position import Position
from jobrun.session.base import NO_SCRATCH, Control, Places, Session, Snapshot
from jobrun.session.dask.closure import closure
from jobrun.session.dask.cluster import place_nodes
from jobrun.session.dask.code import CodeMissingError, archive, packed_job, with_lines
from jobrun.session.dask.messages import (
    Applied,
    News,
    Outcome,
    Printed,
    RunRequest,
    Setup,
    arrived,
)
from jobrun.session.dask.nodes import Nodes
from jobrun.session.group import SLOWEST, epoch_of
from jobrun.values import plain
from jobrun.versions import differences

__all__ = ["DaskSession"]

_LOOK = 0.02
"""Seconds between two looks whether a cut is wanted."""

_SHOWN = 8
"""How many of the tasks that run are said."""

_LOOK_AT_REST = 0.2
"""Seconds after which ``look`` is called again while a group runs."""

_PARTS = 64
"""Parts of a checkpoint that are waited for at a time."""

_FAREWELL = 2.0
"""Seconds that actors which are not needed any more are given to end."""


@dataclass(frozen=True, slots=True)
class _Token(Snapshot):
    """A snapshot that the nodes keep under a number."""

    number: int = 0


class DaskSession(Session):
    """Runs a job on the cluster of ``client``, a ``distributed.Client``.

    ``threads`` are those of each node; by default its share of its worker's.  If a worker is lost,
    the run goes back to its last checkpoint by itself, ``max_restarts`` times at most, and waits up
    to ``wait`` seconds for a worker if none is left.  A worker that gives no sign of life for
    ``timeout`` seconds is taken for lost.  With ``owned`` the cluster ends with the session.
    Raises UsageError for a client that cannot be used.
    """

    def __init__(
        self,
        client: Any,
        *,
        threads: int | None = None,
        max_restarts: int = 3,
        timeout: float = 300.0,
        wait: float = 60.0,
        owned: bool = False,
    ) -> None:
        if getattr(client, "asynchronous", False):
            raise UsageError("DaskSession needs a client that is not asynchronous")
        self.client = client
        self.max_restarts = max_restarts
        self._threads = threads
        self._timeout = timeout
        self._wait = wait
        self._owned = owned
        self._nodes: Nodes | None = None
        self._lost: set[str] = set()
        self._runs, self._snapshots = count(1), count(1)
        self._watched: tuple[str, ...] = ()
        self._scalars: dict[str, Any] | None = None
        self._forget: set[str] = set()
        self._units: dict[str, dict[str, set[str]]] = {}
        self._versions: dict[str, dict[str, str]] = {}
        self._said_odd = False
        self._next_look = 0.0
        self._tasks_running: dict[str, TasksRunning] = {}

    @property
    def description(self) -> str:
        """``dask, 4 workers``."""
        workers = len(self.client.nthreads())
        return f"dask, {workers} worker{'' if workers == 1 else 's'}"

    # Opening.

    def open(self, job: Job, places: Places) -> None:
        """Bind the functions of ``job`` here and on the workers, and make a node on them for each.

        Raises BindError, ClusterLostError if there is no worker, UsageError for a worker without
        jobrun.
        """
        bind_job(job, places.spec_dir)
        self._leave_nodes()
        self._job = job
        self._places = places
        for tries_left in reversed(range(self.max_restarts + 1)):
            try:
                self._place()
                break
            except WorkerLostError:
                if not tries_left:
                    raise
                self._leave_nodes()
        self._scalars = None
        self._forget = set()
        self._units = {}

    def _place(self) -> None:
        """Make the nodes on workers, and tell them what they are."""
        job, places = self._job, self._places
        placed = place_nodes(self.client, tuple(job.nodes), self._lost, self._wait, self._timeout)
        nodes = self._nodes = Nodes(self.client, placed, self._timeout)
        threads = self.client.nthreads()
        on_worker: dict[str, int] = {}
        for one in placed.values():
            on_worker[one.address] = on_worker.get(one.address, 0) + 1
        packed = packed_job(job)
        code = loaded_code(places.spec_dir) if places.spec_dir is not None else {}
        peers = {node: (one.address, one.key) for node, one in placed.items()}
        setups = {}
        for node, one in placed.items():
            share = max(1, threads.get(one.address, 1) // on_worker[one.address])
            own = self._threads or share
            setups[node] = Setup(packed, places, node, own, peers, code, jobrun.__version__)
        nodes.listen()
        self._versions = self._open_nodes(nodes, setups)

    def _open_nodes(self, nodes: Nodes, setups: Mapping[str, Setup]) -> dict[str, dict[str, str]]:
        """Tell the nodes what they are, and send the code to those that do not see it.

        Gives the versions of their libraries.
        """
        found = {}
        futures = {node: nodes.call(node, "open", setup) for node, setup in setups.items()}
        packed: bytes | None = None
        for node, future in futures.items():
            try:
                found[node] = nodes.result(future)
            except CodeMissingError:
                folder = self._places.spec_dir
                assert folder is not None
                packed = packed or archive(self._job, folder)
                again = replace(setups[node], archive=packed)
                found[node] = nodes.result(nodes.call(node, "open", again))
        return found

    def versions(self) -> Mapping[str, str]:
        """The libraries with which the tasks of the first node are run."""
        return next(iter(self._versions.values()))

    def _say_odd(self, control: Control) -> None:
        """Warn once of nodes whose libraries differ, since their numbers may."""
        first, *others = self._versions
        for node in others if not self._said_odd else ():
            for line in differences(self._versions[first], self._versions[node]):
                control.report(
                    Warned(f"the workers of nodes {first!r} and {node!r} differ: {line}")
                )
        self._said_odd = True

    @property
    def nodes(self) -> Nodes:
        """The nodes; raises TaskError before there is a job."""
        if self._nodes is None:
            raise TaskError("the session has not been opened")
        return self._nodes

    @property
    def where(self) -> dict[str, str]:
        """The address of each node's worker."""
        return self.nodes.addresses

    # Running.

    def run(self, plan: Plan, position: Position, control: Control) -> Position:
        """Run a group from ``position`` on; see ``Session.run``."""
        units = self._units.get(plan.group)
        if units is None:
            units = self._units[plan.group] = _keys_by_node(plan)
        control.report(GroupStarted(plan.group, epoch_of(plan.group, position), len(plan.units)))
        self._say_odd(control)
        start = time.perf_counter()
        outcomes: dict[str, Outcome] = {}
        if units and not control.cut() and not plan.finished(position.tasks):
            outcomes = self._run(plan, position, control, units)
        seconds = {key: s for one in outcomes.values() for key, s in one.seconds.items()}
        slowest = nlargest(SLOWEST, seconds.items(), key=lambda item: item[1])
        control.report(
            GroupFinished(
                plan.group,
                epoch_of(plan.group, position),
                len(plan.units),
                time.perf_counter() - start,
                tuple(slowest),
            )
        )
        return _reached(plan, position, outcomes)

    def _run(
        self, plan: Plan, position: Position, control: Control, units: Mapping[str, set[str]]
    ) -> dict[str, Outcome]:
        nodes = self.nodes
        self._scalars = None
        self._tasks_running = {}
        run, left = next(self._runs), control.batches_left()
        for node, own in units.items():
            request = RunRequest(
                run,
                plan.group,
                _part_of(position, own),
                left,
                control.every_task,
                self._watched,
                node in self._forget,
            )
            self._forget.discard(node)
            nodes.follow(node, "run", request)
        outcomes = self._follow(run, units, control)
        if not any(one.left for one in outcomes.values()):
            self._remember(outcomes)
            return outcomes
        return self._close_cut(plan, position, control, outcomes)

    def _close_cut(
        self,
        plan: Plan,
        position: Position,
        control: Control,
        outcomes: dict[str, Outcome],
    ) -> dict[str, Outcome]:
        """Let the nodes run what must have run beside what has."""
        done = {*position.tasks, *(key for one in outcomes.values() for key in one.tasks)}
        begun = {key for one in outcomes.values() for key in one.pipes}
        wanted = closure(plan, done, begun)
        open_nodes = {node for node, one in outcomes.items() if one.left & wanted}
        turn = next(self._runs)
        for node in open_nodes:
            one = outcomes[node]
            place = Position(position.epochs, one.tasks, one.pipes, one.readers)
            self.nodes.follow(node, "go_on", turn, place, wanted)
        outcomes.update(self._follow(turn, open_nodes, control, may_cut=False))
        owing = [node for node, one in outcomes.items() if one.owes]
        self.nodes.ask(dict.fromkeys(owing, ("flush",)))
        return outcomes

    def _follow(
        self, turn: int, wanted: Collection[str], control: Control, *, may_cut: bool = True
    ) -> dict[str, Outcome]:
        """Wait for the outcomes of nodes; tell of what happens, and pause them if a cut is wanted.

        Raises the first error, once all have ended.
        """
        nodes = self.nodes
        outcomes: dict[str, Outcome] = {}
        error: BaseException | None = None
        paused, interrupted = not may_cut, not may_cut
        while len(outcomes) < len(wanted):
            try:
                happened = nodes.happened.get(timeout=_LOOK)
            except Empty:
                happened = None
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + _LOOK_AT_REST
                control.look()
            if happened is not None and happened.news is not None:
                self._tell(happened.node, happened.news, control)
            elif happened is not None and happened.answer is not None:
                answer = happened.answer
                if answer.error is not None:
                    self._note_lost(answer.error)
                    raise answer.error
                outcome = outcomes[happened.node] = answer.value
                if outcome.error is not None and error is None:
                    error = outcome.error
                    self._pause(turn, wanted, interrupted=True, halt=True)
                elif outcome.left and not paused:  # it has cut itself
                    paused = True
                    self._pause(turn, wanted)
            if not paused and control.cut():
                paused = True
                interrupted = control.interrupted()
                self._pause(turn, wanted, interrupted=interrupted)
            elif paused and not interrupted and control.interrupted():
                interrupted = True
                self._pause(turn, wanted, interrupted=True)
        self._hear_all(outcomes, control)
        if isinstance(error, TaskError):
            raise with_lines(error, self._job)
        if error is not None:
            raise error
        if self._job.multi_node:
            control.spent({node: one.spent for node, one in outcomes.items() if one.spent})
        return outcomes

    def _tell(self, node: str, news: News, control: Control) -> None:
        """Pass on what a node has said; what runs on all nodes together."""
        if isinstance(news, TasksRunning):
            self._tasks_running[node] = news
            control.report(_joined(self._tasks_running, news))
        else:
            _tell(news, control)

    def _pause(
        self, turn: int, wanted: Iterable[str], *, interrupted: bool = False, halt: bool = False
    ) -> None:
        for node in wanted:
            self.nodes.call(node, "pause", turn, interrupted, halt)

    def _hear_all(self, outcomes: Mapping[str, Outcome], control: Control) -> None:
        """Tell of all that was said until the outcomes."""
        nodes = self.nodes
        while True:
            waiting = not all(nodes.heard(node, one.told) for node, one in outcomes.items())
            try:
                happened = nodes.happened.get(timeout=_LOOK if waiting else 0)
            except Empty:
                if not waiting:
                    return
                continue
            if happened.news is not None:
                self._tell(happened.node, happened.news, control)
            elif happened.answer is not None and happened.answer.error is not None:
                self._note_lost(happened.answer.error)
                raise happened.answer.error

    def _remember(self, outcomes: Mapping[str, Outcome]) -> None:
        """Keep the scalars that were told of at the end of a group."""
        if all(key_of(self._job, name)[0] in outcomes for name in self._watched):
            self._scalars = {k: v for one in outcomes.values() for k, v in one.scalars.items()}

    def end_epoch(self) -> None:
        """Forget the scratch of the epoch: what is neither persistent nor of ``setup``."""
        self._scalars = None
        self._forget = set(self.nodes)

    def _forget_now(self) -> None:
        nodes, self._forget = self._forget, set()
        self._do(dict.fromkeys(nodes, ("end_epoch",)))

    def _do(self, calls: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Call methods of the nodes' holders: ``{node: (name, *args)}``."""
        return self.nodes.ask({node: ("do", *call) for node, call in calls.items()})

    # Scalars and blobs, by name.

    def scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of one-element blobs by name; those without a value are absent.

        Raises TaskError, naming it, for one with more than one element.
        """
        wanted = tuple(names)
        if self._scalars is None or not set(wanted) <= set(self._watched):
            self._watched = wanted
            self._forget_now()
            own = {key_of(self._job, name)[0] for name in wanted} & set(self.nodes)
            told = self._do(dict.fromkeys(own, ("own_scalars", wanted)))
            self._scalars = {k: v for one in told.values() for k, v in one.items()}
        found = {name: self._scalars[name] for name in wanted if name in self._scalars}
        for value in found.values():
            if isinstance(value, TaskError):
                raise value
        return found

    def blob(self, name: str) -> Any:
        """A blob's value (read-only) by name, brought here; raises TaskError if there is none."""
        node = key_of(self._job, name)[0]
        self._reachable()
        self._forget_now()
        if node not in set(self.nodes):
            raise TaskError(f"there is no blob {name!r}")
        return plain(arrived(self._do({node: ("value_of", name)})[node]))

    def names(self) -> list[str]:
        """The names of all blobs, with ``node:`` in front if there are several nodes."""
        self._reachable()
        self._forget_now()
        told = self._do(dict.fromkeys(self.nodes, ("names",)))
        return [name for node in self.nodes for name in told[node]]

    def _reachable(self) -> None:
        if self.client.status != "running":
            raise TaskError(
                "the blobs were on a cluster that is closed",
                hint="load_blobs reads those of a checkpoint",
            )

    # Checkpoints.

    def snapshot(self, scratch: Mapping[str, Iterable[str]] = NO_SCRATCH) -> Snapshot | None:
        """The persistent blobs of now, by reference, and the named scratch that has values.

        None if some of that scratch cannot be saved.
        """
        number = next(self._snapshots)
        paths = {node: tuple(scratch.get(node, ())) for node in self.nodes}
        taken = self._do({node: ("take_snapshot", number, own) for node, own in paths.items()})
        if all(taken.values()):
            return _Token(number=number)
        self._end_snapshot(number, None)
        return None

    def save_parts(
        self,
        token: Snapshot,
        directory: Path,
        id: int,
        share_with: Sequence[str] = (),
        compress: Sequence[Compress] = (),
    ) -> list[PartSummary]:
        """Let each node write its part of a snapshot, and see that they are there; durable then.

        Raises SaveError where the directory is not one that the nodes' workers see too.
        """
        assert isinstance(token, _Token)
        call = ("save_snapshot", token.number, directory, id, tuple(share_with), tuple(compress))
        with ThreadPoolExecutor(min(len(self._job.nodes), _PARTS), "jobrun-part") as pool:
            return list(
                pool.map(lambda n: self._save_part(n, call, directory, id), self._job.nodes)
            )

    def _save_part(self, node: str, call: tuple[Any, ...], directory: Path, id: int) -> PartSummary:
        """Let a node write its part, and see that it is there."""
        try:
            summary: PartSummary = self._do({node: call})[node]
        except FileNotFoundError as error:
            raise self._not_shared(id, node, directory, str(error)) from error
        try:
            check_written(DEFAULT, str(directory), node, summary.digest)
        except (DamagedError, NotFoundError) as error:
            raise self._not_shared(id, node, directory, str(error)) from error
        return summary

    def _not_shared(self, id: int, node: str, directory: Path, why: str) -> SaveError:
        address = self.where[node]
        return SaveError(
            f"checkpoint {id} was not saved: what the worker {address} writes for node {node!r} "
            f"is not what is seen here: {why}",
            hint=f"{directory.parent} must be on storage that all workers and this machine share",
        )

    def saved(self, token: Snapshot, id: int) -> None:
        """The checkpoint ``id`` of this snapshot is durable: its new values have that version."""
        assert isinstance(token, _Token)
        self._end_snapshot(token.number, id)

    def release(self, token: Snapshot) -> None:
        """The snapshot is not needed any more."""
        assert isinstance(token, _Token)
        self._end_snapshot(token.number, None)

    def _end_snapshot(self, number: int, id: int | None) -> None:
        """Said to the nodes, and not waited for."""
        for node in self.nodes if self.nodes.lost is None else ():
            self.nodes.call(node, "do", "end_snapshot", number, id)

    def load_part(self, node: str, directory: Path, part: str | None = None) -> int:
        """Let a node read and prove a part of a checkpoint, beside the blobs; gives its bytes."""
        return int(self._do({node: ("load_part", node, directory, part)})[node])

    def load_parts(self, directory: Path, parts: Mapping[str, str]) -> dict[str, tuple[int, float]]:
        """See Session; all nodes at once."""
        return self._do({node: ("load_timed", directory, part) for node, part in parts.items()})

    def take_over(self) -> None:
        """Replace all persistent blobs by what ``load_part`` staged, on every node."""
        self._scalars = None
        self._forget = set()
        self._do(dict.fromkeys(self.nodes, ("take_over",)))

    def load_best(
        self, directory: Path, names: Mapping[str, Iterable[str]], parts: Mapping[str, str]
    ) -> None:
        """Let the nodes read ``names`` of the best checkpoint, for ``best:…``; ``{node: part}``."""
        own = {node: {node: tuple(wanted)} for node, wanted in names.items()}
        self._do({n: ("load_best", directory, w, {n: parts[n]}) for n, w in own.items()})

    # The end.

    def _note_lost(self, error: BaseException) -> None:
        """Nodes are not placed on a worker again that was lost."""
        if isinstance(error, WorkerLostError) and self._nodes is not None:
            self._lost |= self._nodes.lost_addresses

    def _leave_nodes(self) -> None:
        if self._nodes is not None:
            if self._nodes.lost is not None:
                self._note_lost(self._nodes.lost)
            self._nodes.let_go(_FAREWELL)
            self._nodes = None

    def close(self) -> None:
        """End threads and connections; the blobs stay readable while the cluster lives.

        A cluster of the session's own ends too.
        """
        if self._nodes is not None:
            self._nodes.close()
        if self._owned:
            cluster = self.client.cluster
            self.client.close()
            if cluster is not None:
                cluster.close()


def _joined(running: Mapping[str, TasksRunning], news: TasksRunning) -> TasksRunning:
    """What runs on several nodes, the longest first."""
    tasks = [task for one in running.values() for task in one.tasks]
    longest = tuple(sorted(tasks, key=lambda task: -task[1])[:_SHOWN])
    return replace(news, tasks=longest, count=sum(one.count for one in running.values()))


def _tell(news: News, control: Control) -> None:
    """Pass on what a node has said."""
    if isinstance(news, Event):
        control.report(news)
    elif isinstance(news, Applied):
        for _ in range(news.batches):
            control.applied()
    elif isinstance(news, Printed):
        print(news.text, end="", file=sys.stderr if news.is_error else sys.stdout)


def _keys_by_node(plan: Plan) -> dict[str, set[str]]:
    """The units of each node that has a part in a group: units, or blobs that others touch."""
    found: dict[str, set[str]] = {}
    for unit in plan.units:
        if not unit.gathers:
            found.setdefault(unit.node, set()).add(unit.key)
            for node, _ in (*unit.access.reads, *unit.access.writes):
                found.setdefault(node, set())
    return found


def _part_of(position: Position, own: Collection[str]) -> Position:
    """A position as one node is told of it: all finished tasks, and its own pipes and readers."""
    return Position(
        position.epochs,
        position.tasks,
        {key: pipe for key, pipe in position.pipes.items() if key in own},
        {key: reader for key, reader in position.readers.items() if key in own},
    )


def _reached(plan: Plan, position: Position, outcomes: Mapping[str, Outcome]) -> Position:
    """Where the run of a group has come to."""
    done = {*position.tasks, *(key for one in outcomes.values() for key in one.tasks)}
    pipes = {key: pipe for one in outcomes.values() for key, pipe in one.pipes.items()}
    if not outcomes or (len(done) == len(position.tasks) and pipes == position.pipes):
        return position
    readers = dict(position.readers)
    if plan.group == "epoch":
        for one in outcomes.values():
            readers.update(one.readers)
    tasks = tuple(u.key for u in plan.units if not u.gathers and u.key in done)
    return Position(position.epochs, tasks, pipes, readers)
