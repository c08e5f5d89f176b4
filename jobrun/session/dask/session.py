"""DaskSession: a job on a dask.distributed cluster, each node on one of its workers.

The nodes of a worker are one actor; a run of a group is one request to each: see ``group_run``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from jobrun._version import __version__
from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Plan
from jobrun.analysis.names import key_of
from jobrun.checkpoint.part_source import PartSource
from jobrun.core.events import GroupFinished, GroupStarted, Warned
from jobrun.core.position import Position
from jobrun.errors import TaskError, UsageError, WorkerLostError
from jobrun.model.job import Job
from jobrun.session.base import NO_SCRATCH, Control, Places, Session
from jobrun.session.dask.cluster import close_client, place_nodes, refuse_other_versions
from jobrun.session.dask.code import CodeMissingError, archive, packed_job
from jobrun.session.dask.group_run import GroupRun, keys_by_worker, reached
from jobrun.session.dask.messages import Outcome, Peer, Setup, arrived
from jobrun.session.dask.placement import NO_RESOURCES, Avoided, Resources, needs_of
from jobrun.session.dask.snapshot import WorkersSnapshot
from jobrun.session.dask.waiting import WaitEndedError, wait_until
from jobrun.session.dask.workers import DaskWorkers
from jobrun.session.task_group import epoch_of, slowest_of
from jobrun.usercode.bind import bind_job
from jobrun.usercode.code_hash import loaded_code
from jobrun.usercode.environment import differences, versions
from jobrun.values.views import view

__all__ = ["DaskSession"]

_FAREWELL = 2.0
"""Seconds that actors which are not needed any more are given to end."""


class DaskSession(Session):
    """Runs a job on the cluster of ``client``, a ``distributed.Client``.

    ``threads`` are those of each worker for the tasks of its nodes; by default its own number.  If
    a worker is lost, the run returns to its last checkpoint by itself, at most ``max_restarts``
    times, and waits up to ``wait`` seconds for a worker if none is left.  A worker that gives no
    sign of life for ``timeout`` seconds counts as lost.  ``resources`` are what nodes need of their
    workers, by patterns of nodes.  With ``same_versions`` a worker whose Python or numpy is not the
    client's is an error, else a warning.  With ``owned`` the cluster ends with the session.  Raises
    UsageError for a client that cannot be used.
    """

    def __init__(
        self,
        client: Any,
        *,
        threads: int | None = None,
        max_restarts: int = 3,
        timeout: float = 300.0,
        wait: float = 60.0,
        resources: Mapping[str, Resources] = NO_RESOURCES,
        same_versions: bool = False,
        owned: bool = False,
    ) -> None:
        if getattr(client, "asynchronous", False):
            raise UsageError("DaskSession needs a client that is not asynchronous")
        self.client = client
        self.max_restarts = max_restarts
        self._threads = threads
        self._timeout = timeout
        self._wait = wait
        self._resources = resources
        self._same_versions = same_versions
        self._owned = owned
        self._workers: DaskWorkers | None = None
        self._avoided = Avoided()
        self._turns, self._snapshots = count(1), count(1)
        self._watched: tuple[str, ...] = ()
        self._scalars: dict[str, Any] | None = None
        self._forget: set[str] = set()
        self._units: dict[str, dict[str, set[str]]] = {}
        self._versions: dict[str, dict[str, str]] = {}
        self._warned_of_differences = False

    @property
    def description(self) -> str:
        """``dask, 4 workers``."""
        workers = len(self.client.nthreads())
        return f"dask, {workers} worker{'' if workers == 1 else 's'}"

    # Opening.

    def open(self, job: Job, places: Places, analysis: JobAnalysis | None = None) -> None:
        """Bind the functions of ``job`` here and on the workers, and create its nodes on them.

        Raises BindError, ClusterLostError if there is no worker, UsageError for a worker without
        jobrun.
        """
        bind_job(job, places.code, places.spec_dir)
        self._leave_workers()
        self._job = job
        self._places = places
        for tries_left in reversed(range(self.max_restarts + 1)):
            try:
                self._place()
                break
            except WaitEndedError:  # the run ends before its first task
                self._leave_workers()
                break
            except WorkerLostError as error:
                if not tries_left:
                    raise
                self.control.report(Warned(f"{error.message}: the nodes are placed again"))
                self._leave_workers()
        self._scalars = None
        self._forget = set()
        self._units = {}

    def _place(self) -> None:
        """Create the nodes on workers, and configure them."""
        job, places = self._job, self._places
        nodes = tuple(job.nodes)
        placed = place_nodes(
            self.client,
            nodes,
            self._avoided,
            needs_of(nodes, self._resources),
            self._wait,
            self._timeout,
            self.control,
        )
        workers = self._workers = DaskWorkers(self.client, placed, self._timeout)
        threads = self.client.nthreads()
        packed = packed_job(job)
        code = loaded_code(places.code) if places.code is not None else {}
        peers = workers.peers
        setups = {}
        for key, one in peers.items():
            own = self._threads or threads.get(one.address, 1)
            setups[key] = Setup(packed, places, one.nodes, own, peers, code, __version__)
        workers.listen()
        self._versions = self._open_workers(workers, setups)
        if self._same_versions:
            self._refuse_other_versions(peers.values())

    def _open_workers(
        self, workers: DaskWorkers, setups: Mapping[str, Setup]
    ) -> dict[str, dict[str, str]]:
        """Configure the workers, and send the code to those that do not see it.

        Returns the versions of their libraries, by the first node of each.
        """
        found = {}
        futures = {key: workers.call(key, "open", setup) for key, setup in setups.items()}
        packed: bytes | None = None
        for key, future in futures.items():
            try:
                versions = self._opened(workers, key, future)
            except CodeMissingError:
                packed = packed or archive(self._job, self._places)
                again = replace(setups[key], archive=packed)
                versions = self._opened(workers, key, workers.call(key, "open", again))
            found[setups[key].nodes[0]] = versions
        return found

    def _opened(self, workers: DaskWorkers, key: str, future: Future[Any]) -> dict[str, str]:
        """Return the answer of a worker that opens, or raise its error."""
        wait_until(
            lambda: future.done() or workers.lost is not None,
            math.inf,
            lambda: f"{workers.peers[key].described} to import the code",
            self.control,
        )
        versions: dict[str, str] = workers.result(future)
        return versions

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the libraries of the first node."""
        return next(iter(self._versions.values()), {})

    def _refuse_other_versions(self, peers: Iterable[Peer]) -> None:
        """Raise UsageError for a worker whose Python or numpy is not that of this process."""
        own = versions()
        for peer in peers:
            refuse_other_versions(peer.described, self._versions[peer.nodes[0]], own)

    def _warn_of_differences(self, control: Control) -> None:
        """Warn once of nodes whose libraries differ, since their numbers may."""
        first, *others = self._versions or ("",)
        for node in others if not self._warned_of_differences else ():
            for line in differences(self._versions[first], self._versions[node]):
                control.report(
                    Warned(f"the workers of nodes {first!r} and {node!r} differ: {line}")
                )
        self._warned_of_differences = True

    @property
    def workers(self) -> DaskWorkers:
        """Return the workers; raises TaskError before there is a job."""
        if self._workers is None:
            raise TaskError("the session has not been opened")
        return self._workers

    @property
    def where(self) -> dict[str, str]:
        """Return the address of each node's worker."""
        peers = self.workers.peers
        return {node: peers[key].address for node, key in self.workers.of_node.items()}

    # Running.

    def run(self, plan: Plan, position: Position, control: Control) -> Position:
        """Run a group from ``position`` on; see ``Session.run``."""
        control.report(GroupStarted(plan.group, epoch_of(plan.group, position), len(plan.units)))
        self._warn_of_differences(control)
        start = time.perf_counter()
        outcomes: dict[str, Outcome] = {}
        units = self._units_of(plan) if self._workers is not None else {}
        if units and not control.cut() and not plan.finished(position.tasks):
            outcomes = self._run(plan, position, control, units)
        seconds = {key: s for one in outcomes.values() for key, s in one.seconds.items()}
        control.report(
            GroupFinished(
                plan.group,
                epoch_of(plan.group, position),
                len(plan.units),
                time.perf_counter() - start,
                slowest_of(seconds.items()),
            )
        )
        return reached(plan, position, outcomes)

    def _units_of(self, plan: Plan) -> Mapping[str, set[str]]:
        """Return the units of each worker."""
        units = self._units.get(plan.group)
        if units is None:
            units = keys_by_worker(plan, self.workers.of_node)
            self._units[plan.group] = units
        return units

    def _run(
        self, plan: Plan, position: Position, control: Control, units: Mapping[str, set[str]]
    ) -> dict[str, Outcome]:
        self._scalars = None
        asked, self._forget = self._forget & set(units), self._forget - set(units)
        run = GroupRun(self.workers, self._job, plan, control, self._turns)
        try:
            outcomes = run.outcomes(position, units, self._watched, asked)
        except WorkerLostError as error:
            self._note_lost(error)
            raise
        if not run.was_cut:
            self._remember(outcomes)
        return outcomes

    def _remember(self, outcomes: Mapping[str, Outcome]) -> None:
        """Keep the scalars that were returned at the end of a group."""
        if self._workers_of(self._watched) <= set(outcomes):
            self._scalars = {k: v for one in outcomes.values() for k, v in one.scalars.items()}

    def end_epoch(self) -> None:
        """Drop the scratch of the epoch: what is neither persistent nor of ``setup``."""
        self._scalars = None
        self._forget = set(self.workers)

    def _forget_now(self) -> None:
        workers, self._forget = self._forget, set()
        self._do(dict.fromkeys(workers, ("end_epoch",)))

    def _do(self, calls: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Call methods of the workers' sessions: ``{worker: (name, *args)}``."""
        return self.workers.ask({worker: ("do", *call) for worker, call in calls.items()})

    def _workers_of(self, names: Iterable[str]) -> set[str]:
        """Return the workers of the nodes of blobs, by name."""
        of_node = self.workers.of_node
        return {of_node[n] for name in names if (n := key_of(self._job, name)[0]) in of_node}

    # Scalars and blobs, by name.

    def scalars(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of one-element blobs by name, None for those that are None.

        Blobs that were not written are absent: a blob that tasks of ``epoch`` write is absent if
        none of them has written it in the current epoch, or in the last one that ran.  Raises
        TaskError, naming the blob, for one with more than one element.
        """
        wanted = tuple(names)
        if self._scalars is None or not set(wanted) <= set(self._watched):
            self._watched = wanted
            self._forget_now()
            calls = dict.fromkeys(self._workers_of(wanted), ("own_scalars", wanted))
            answers = self._do(calls)
            self._scalars = {k: v for one in answers.values() for k, v in one.items()}
        found = {name: self._scalars[name] for name in wanted if name in self._scalars}
        for value in found.values():
            if isinstance(value, TaskError):
                raise value
        return found

    def written(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of the named blobs that were written in the current or the last epoch."""
        wanted = tuple(names)
        answers = self._do(dict.fromkeys(self._workers_of(wanted), ("written", wanted)))
        new = {name for one in answers.values() for name in one}
        return tuple(name for name in wanted if name in new)

    def resume_epoch(self, epoch: int, written: Iterable[str]) -> None:
        """Continue inside ``epoch``, in which the blobs ``written`` have already been written."""
        self._do(dict.fromkeys(self.workers, ("resume_epoch", epoch, tuple(written))))

    def blob(self, name: str) -> Any:
        """Return a blob's value (read-only) by name, fetched; raises TaskError if there is none."""
        node = key_of(self._job, name)[0]
        self._reachable()
        self._forget_now()
        worker = self.workers.of_node.get(node)
        if worker is None:
            raise TaskError(f"there is no blob {name!r}")
        return view(arrived(self._do({worker: ("value_of", name)})[worker]))

    def names(self) -> list[str]:
        """Return the names of all blobs, with ``node:`` in front if there are several nodes."""
        self._reachable()
        self._forget_now()
        answers = self._do(dict.fromkeys(self.workers, ("names",)))
        return [name for worker in self.workers for name in answers[worker]]

    def _reachable(self) -> None:
        if self.client.status != "running":
            raise TaskError(
                "the blobs were on a cluster that is closed",
                hint="load_blobs reads those of a checkpoint",
            )

    # Checkpoints.

    def snapshot(self, scratch: Mapping[str, Iterable[str]] = NO_SCRATCH) -> PartSource | None:
        """Return the current persistent blobs, by reference, and the named scratch that has values.

        Returns None if some of that scratch cannot be saved.
        """
        taken = WorkersSnapshot(self.workers, next(self._snapshots))
        calls = {
            key: (
                "take_snapshot",
                taken.number,
                {node: tuple(scratch[node]) for node in peer.nodes if node in scratch},
            )
            for key, peer in self.workers.peers.items()
        }
        if all(self._do(calls).values()):
            return taken
        taken.release()
        return None

    def load_part(
        self, node: str, directory: Path, part: str | None = None, copied: bool = False
    ) -> int:
        """Let a node read and verify a part of a checkpoint: see ``Session.load_part``."""
        worker = self.workers.of_node[node]
        return int(self._do({worker: ("load_part", node, directory, part, copied)})[worker])

    def load_parts(
        self, directory: Path, parts: Mapping[str, str], copied: Collection[str] = ()
    ) -> dict[str, tuple[int, float]]:
        """See Session; all workers at once."""
        calls = {
            key: ("load_parts", directory, own, frozenset(copied))
            for key, peer in self.workers.peers.items()
            if (own := {node: parts[node] for node in peer.nodes if node in parts})
        }
        return {n: one for own in self._do(calls).values() for n, one in own.items()}

    def take_over(self) -> None:
        """Replace all persistent blobs by what ``load_part`` staged, on every worker."""
        self._scalars = None
        self._forget = set()
        self._do(dict.fromkeys(self.workers, ("take_over",)))

    def load_best(
        self, directory: Path, names: Mapping[str, Iterable[str]], parts: Mapping[str, str]
    ) -> None:
        """Let the workers read ``names`` of the best checkpoint: see ``Session.load_best``."""
        calls = {
            key: ("load_best", directory, own, {node: parts[node] for node in own})
            for key, peer in self.workers.peers.items()
            if (own := {node: tuple(names[node]) for node in peer.nodes if node in names})
        }
        self._do(calls)

    # The end.

    def _note_lost(self, error: BaseException) -> None:
        """Record the lost workers, so that no node is placed on them again."""
        if isinstance(error, WorkerLostError) and self._workers is not None:
            self._avoided.lost.update(self._workers.lost_addresses)
            self._avoided.apart.update(self._workers.apart)

    def _leave_workers(self) -> None:
        if self._workers is not None:
            if self._workers.lost is not None:
                self._note_lost(self._workers.lost)
            self._workers.let_go(_FAREWELL)
            self._workers = None

    def close(self) -> None:
        """End threads and connections; the blobs stay readable while the cluster lives.

        A cluster of the session's own ends too.
        """
        if self._workers is not None:
            self._workers.close()
        if self._owned:
            close_client(self.client)
