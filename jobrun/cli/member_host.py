"""A run of a sweep on a worker of a Dask cluster, in a process that ``cli.fleet`` starts there.

``run_on_worker`` is the task that the scheduler places; it occupies one thread of the worker as
long as the process runs.  ``cli.cluster_fleet`` submits it, and receives what it sends: the address
of the worker, and what the process writes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distributed import get_worker

from jobrun._version import __version__
from jobrun.cli.fleet import LocalFleet
from jobrun.cli.member import Order
from jobrun.errors import UsageError
from jobrun.runs.sweepdir import SweepDir
from jobrun.session.dask.cluster import refuse_other_versions
from jobrun.usercode.environment import versions

__all__ = ["MemberTask", "pass_signal", "run_on_worker"]

_TICK = 0.2
"""Seconds between two looks whether the task is still wanted; lines are gathered meanwhile."""

_lock = threading.Lock()
_fleets: dict[str, set[LocalFleet]] = {}
"""The runs in this process, by the topic of their sweep."""
_over: set[str] = set()
"""The topics of sweeps in which no further run starts."""


@dataclass(frozen=True, slots=True)
class MemberTask:
    """A run that a worker is to start: its number, the order, and the directory of the sweep.

    Its lines go to ``topic``.  ``start`` is the directory in which the command was given, the base
    of relative paths.  ``version`` is that of jobrun, ``same`` the versions of Python and numpy
    that the worker must have (None: any).
    """

    topic: str
    number: int
    order: Order
    sweep_dir: str
    start: str
    version: str
    same: Mapping[str, str] | None


def run_on_worker(task: MemberTask) -> int | None:
    """Run a member in a process of its own; return its exit code, None if it was not started.

    Raises UsageError for a worker that cannot run it.
    """
    worker: Any = get_worker()
    _check(task, f"the worker {worker.address}")
    relay = _Relay(worker, task)
    fleet = LocalFleet(1, relay, lambda: True, task.start)
    with _registered(task.topic, fleet) as wanted:
        if wanted:
            with _attended(worker, str(worker.get_current_task()), fleet, relay):
                fleet.run([(task.number, task.order)])
            relay.flush()
    return relay.code


def _check(task: MemberTask, where: str) -> None:
    if task.version != __version__:
        raise UsageError(
            f"{where} has jobrun {__version__}, but the client {task.version}",
            hint="install the same version on all machines",
        )
    if task.same is not None:
        refuse_other_versions(where, versions(), task.same)
    places = {"the sweep": task.sweep_dir, "the code": task.order.folder, "the command": task.start}
    for what, path in places.items():
        if not (SweepDir(path).is_sweep() if what == "the sweep" else os.path.isdir(path)):
            raise UsageError(
                f"{where} does not see the directory of {what}: {path}",
                hint="the runs of a sweep on a cluster need storage that all machines share",
            )


class _Relay:
    """A listener that sends what it receives to the client."""

    def __init__(self, worker: Any, task: MemberTask) -> None:
        self._worker = worker
        self._task = task
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Any]] = []
        self.code: int | None = None

    def started(self, number: int) -> None:
        self._add("started", self._worker.address)
        self.flush()

    def received(self, number: int, event: dict[str, Any]) -> None:
        self._add("received", event)

    def printed(self, number: int, line: str) -> None:
        self._add("printed", line)

    def ended(self, number: int, code: int) -> None:
        self.code = code

    def _add(self, kind: str, value: Any) -> None:
        with self._lock:
            self._waiting.append((kind, value))

    def flush(self) -> None:
        """Send what is waiting."""
        with self._lock:
            if self._waiting:  # within the lock: in order
                text = json.dumps([self._task.number, self._waiting])
                self._worker.log_event(self._task.topic, text)
                self._waiting = []


@contextmanager
def _registered(topic: str, fleet: LocalFleet) -> Iterator[bool]:
    """Let signals reach a run; yield whether it may start."""
    with _lock:
        _fleets.setdefault(topic, set()).add(fleet)
        wanted = topic not in _over
    try:
        yield wanted
    finally:
        with _lock:
            _fleets[topic].discard(fleet)
            if not _fleets[topic]:
                del _fleets[topic]


@contextmanager
def _attended(worker: Any, key: str, fleet: LocalFleet, relay: _Relay) -> Iterator[None]:
    """Send lines meanwhile, and end the run once the client is gone or the worker closes."""
    over = threading.Event()

    def attend() -> None:
        while not over.wait(_TICK):
            relay.flush()
            task = worker.state.tasks.get(key)
            released = task is None or task.state == "cancelled"
            if not fleet.signal and (released or worker.status.name.startswith("clos")):
                fleet.send("SIGTERM", last=True)

    thread = threading.Thread(target=attend, name="jobrun-attend", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def pass_signal(topic: str, signal_name: str, last: bool) -> None:
    """Pass a signal on to the runs of a sweep on this worker; ``last``: no further one starts."""
    with _lock:
        if last:
            _over.add(topic)
        fleets = tuple(_fleets.get(topic, ()))
    for fleet in fleets:
        fleet.send(signal_name, last=last)
