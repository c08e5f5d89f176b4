"""Runs of a sweep on the workers of a Dask cluster, each as a whole in a process on one of them.

Each is a task of the scheduler, which places it on any worker with a free thread and the resources
that the job's node needs, and again if the worker is lost: the run resumes there from its last
checkpoint, once the process that is left of it has saved and released its lock.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from jobrun._version import __version__
from jobrun.cli.failure import error_values
from jobrun.cli.fleet import Listener
from jobrun.cli.member import Order
from jobrun.cli.member_host import MemberTask, pass_signal, run_on_worker
from jobrun.core.events import Event, Warned
from jobrun.core.paths import start_directory
from jobrun.errors import (
    EXITS_BY_SIGNAL,
    ClusterLostError,
    JobrunError,
    UsageError,
    WorkerLostError,
)
from jobrun.model.job import Job
from jobrun.session.base import Control
from jobrun.session.dask.cluster import able_workers, close_client
from jobrun.session.dask.placement import Avoided, Resources, has_all, needs_of, resources_text
from jobrun.session.dask.waiting import WaitEndedError
from jobrun.session.factory import cluster_client
from jobrun.storage.lock import VARIABLE
from jobrun.usercode.environment import versions

__all__ = ["ClusterFleet"]

_TICK = 0.2
"""Seconds between two looks at the waits."""
_LOOK = 1.0
"""Seconds between two looks at the workers."""
_SAY = 5.0
"""Seconds after which a wait for a free worker is reported."""
_UNSTARTED = 1.0
"""Seconds after a signal in which a run that is just starting on a worker reports it."""


@dataclass(slots=True)
class _Member:
    """A run that was submitted: ``worker`` is the one that runs it, empty for none.

    ``tries`` counts the workers on which it was started.
    """

    order: Order
    future: Any = None
    tries: int = 0
    worker: str = ""


class ClusterFleet:
    """A runner of members of a sweep in ``sweep_dir`` on a cluster, ``jobs`` at a time.

    ``job`` is one of them.  No further one is started once ``go`` is false, or after a signal;
    ``listener`` receives the output of all, ``say`` what is to be said of the sweep.
    """

    def __init__(
        self,
        jobs: int,
        listener: Listener,
        go: Callable[[], bool],
        *,
        job: Job,
        sweep_dir: str,
        say: Callable[[str], None],
    ) -> None:
        self._jobs = jobs
        self._listener = listener
        self._go = go
        self._session = job.session
        self._sweep_dir = sweep_dir
        self._say = say
        (node,) = job.nodes
        self._needs: Resources = needs_of([node], job.session.resources).get(node, {})
        self._topic = f"jobrun-{secrets.token_hex(8)}"
        self._client: Any = None
        self._avoided = Avoided()
        self._workers: list[str] | None = None
        self._members: dict[int, _Member] = {}
        self._happened: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle_since = self._looked = time.monotonic()
        self._said = False
        self._signalled = 0.0
        self.signal = ""

    def run(self, orders: Iterable[tuple[int, Order]]) -> None:
        """Submit a task for each order, and wait for all.

        Raises ClusterLostError if there is no scheduler, or no worker for ``session.wait`` seconds,
        and UsageError for workers without jobrun or with another version of it.
        """
        self._client = cluster_client(self._session, 1)
        try:
            self._look_for_jobrun()
            self._client.subscribe_topic(self._topic, self._receive)
            self._run(iter(orders))
        except WaitEndedError:
            pass  # a signal, before the first run
        finally:  # after an error the runs save and end
            with suppress(Exception):  # the cluster may be gone
                self._client.cancel([member.future for member in self._members.values()])
            close_client(self._client)

    def _run(self, left: Iterator[tuple[int, Order]]) -> None:
        following = next(left, None)
        while True:
            while following and len(self._members) < self._jobs and self._may_start():
                number, order = following
                self._members[number] = _Member(order)
                self._submit(number)
                following = next(left, None)
            if not self._members:
                return
            with suppress(Empty):
                self._happened.get(timeout=_TICK)()
            if time.monotonic() - self._looked >= _LOOK:
                self._looked = time.monotonic()
                self._look()

    def _may_start(self) -> bool:
        return not self.signal and self._go()

    def send(self, signal_name: str, *, last: bool) -> None:
        """Pass a signal on to all that run; from any thread.  ``last``: start no more."""
        if last:
            self.signal, self._signalled = signal_name, time.monotonic()
        if self._client is None:
            return

        def tell() -> None:
            with suppress(Exception):  # a worker that is not reached any more ends its runs itself
                self._client.run(pass_signal, self._topic, signal_name, last, on_error="ignore")

        threading.Thread(target=tell, name="jobrun-signal", daemon=True).start()

    # Tasks.

    def _submit(self, number: int) -> None:
        """Submit the task of a member; what comes of it is put into ``_happened``."""
        session = self._session
        member = self._members[number]
        member.worker = ""
        member.future = self._client.submit(
            run_on_worker,
            MemberTask(
                topic=self._topic,
                number=number,
                order=replace(
                    member.order, wait=True, local=True, lock=os.environ.get(VARIABLE, "")
                ),
                sweep_dir=self._sweep_dir,
                start=str(start_directory()),
                version=__version__,
                same=versions() if session.versions == "same" else None,
            ),
            key=f"jobrun-member-{self._topic}-{number}-{member.tries}",
            pure=False,
            workers=self._workers,
            resources=self._needs or None,
        )
        member.future.add_done_callback(
            lambda future: self._happened.put(partial(self._ended, number, future))
        )

    def _ended(self, number: int, future: Any) -> None:
        """Handle the end of a task: the run has ended, or is submitted again."""
        member = self._members.get(number)
        if member is None or member.future is not future:
            return
        if future.status == "finished":
            self._returned(number, member, future.result())
        elif future.status == "error":
            self._failed(number, member, future.exception())
        else:  # nobody has cancelled it: the scheduler is gone
            raise ClusterLostError(
                f"the scheduler {self._client.scheduler.address} cannot be reached any more",
                hint="the runs on its workers save and end; start a cluster, and resume the sweep",
            )

    def _returned(self, number: int, member: _Member, code: int | None) -> None:
        may_retry = member.tries <= self._session.max_restarts and not self.signal
        if code in EXITS_BY_SIGNAL and may_retry:  # its own machine ends, or its worker does
            self._listener.printed(number, "interrupted on its worker: it resumes on any")
            self._submit(number)
            return
        del self._members[number]
        if code is not None:
            self._listener.ended(number, code)

    def _failed(self, number: int, member: _Member, error: BaseException) -> None:
        """Handle a task that could not run a member, which ends that member alone."""
        if isinstance(error, ImportError):
            member.tries += 1
            self._look_for_jobrun()
            if member.tries > self._session.max_restarts:
                raise UsageError(f"a worker cannot import jobrun: {error}") from error
            self._submit(number)
            return
        if type(error).__name__ == "KilledWorker":  # its module is that of the scheduler
            times = error.allowed_failures + 1  # type: ignore[attr-defined]
            error = WorkerLostError(f"its worker was lost {times} times, too often")
        if not isinstance(error, JobrunError):
            raise error
        del self._members[number]
        self._listener.received(number, {"lines": [f"error: {error}"], **error_values(error)})
        self._listener.ended(number, error.exit_code)

    def _forget_unstarted(self) -> None:
        """After a signal, cancel the tasks that no worker has started."""
        if time.monotonic() - self._signalled < _UNSTARTED:
            return
        for number in [n for n, member in self._members.items() if not member.worker]:
            self._members.pop(number).future.cancel()

    # What the workers send.

    def _receive(self, event: tuple[float, str]) -> None:
        """Take a message of a worker; on the event loop."""
        number, items = json.loads(event[1])
        self._happened.put(partial(self._pass_on, number, items))

    def _pass_on(self, number: int, items: list[tuple[str, Any]]) -> None:
        for kind, value in items:
            if kind == "started":
                self._started(number, value)
            elif kind == "received":
                self._listener.received(number, value)
            else:
                self._listener.printed(number, value)

    def _started(self, number: int, worker: str) -> None:
        member = self._members.get(number)
        if member is None:
            return
        member.tries += 1
        member.worker = worker
        self._listener.started(number)
        self._listener.printed(number, f"runs on {worker}")

    # Waits.

    def _look_for_jobrun(self) -> None:
        """Wait for a worker; with some that lack jobrun, use the others alone."""
        control = Control(report=self._report, interrupted=lambda: bool(self.signal))
        able = able_workers(self._client, self._avoided, self._session.wait, control)
        self._workers = able if self._avoided.lost else None

    def _report(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._say(f"warning: {event.message}")

    def _look(self) -> None:
        """Look after runs that no worker runs."""
        self._report_lost()
        if self.signal:
            self._forget_unstarted()
        else:
            self._look_for_workers()

    def _look_for_workers(self) -> None:
        """Report a wait in which nothing runs; end it if no worker can run anything."""
        now = time.monotonic()
        if any(member.worker for member in self._members.values()):
            self._idle_since, self._said = now, False
            return
        if now - self._idle_since < _SAY:
            return
        need = f" with {resources_text(self._needs)}" if self._needs else ""
        if not self._said:
            self._said = True
            self._say(f"waiting for a worker with a free thread{need}")
        if now - self._idle_since >= max(self._session.wait, _SAY) and not self._is_any_able():
            raise ClusterLostError(
                f"the cluster has no worker{need}", hint="start one: dask worker ADDRESS"
            )

    def _report_lost(self) -> None:
        """Report the members whose worker is lost: the scheduler places them on another one."""
        known = self._known()
        for number, member in self._members.items():
            if member.worker and member.worker not in known:
                text = (
                    f"its worker {member.worker} is lost; it resumes on the next one that is free"
                )
                self._listener.printed(number, text)
                member.worker = ""

    def _is_any_able(self) -> bool:
        """Return whether a worker has what a member needs, even if it is busy."""
        known = self._known()
        return any(
            has_all(known[worker].get("resources", {}), self._needs)
            for worker in self._workers or known
            if worker in known
        )

    def _known(self) -> Mapping[str, Any]:
        """Return what the scheduler knows of its workers, by address."""
        try:
            workers: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        except (OSError, RuntimeError) as error:
            raise ClusterLostError(f"the scheduler cannot be reached: {error}") from error
        return workers
