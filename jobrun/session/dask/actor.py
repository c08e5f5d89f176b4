"""The actor that holds the nodes of one worker, as long as the session lives.

Its methods are coroutines on the worker's event loop, so that it answers while it works; the work
itself is done on threads of its own.  Errors come back in an Answer, so that an error of the
network is never taken for one of a task, nor the other way round.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distributed import get_worker
from distributed.protocol.serialize import serialize_bytes

from jobrun._version import __version__
from jobrun.core.blob_paths import Key
from jobrun.core.position import Position
from jobrun.errors import JobrunError, UsageError, WorkerLostError
from jobrun.session.base import Control
from jobrun.session.dask.actor_calls import call_actor
from jobrun.session.dask.code import CodeMissingError, place_code
from jobrun.session.dask.event_queue import NewsQueue, NumberedNews, route_prints
from jobrun.session.dask.group import WorkerGroup
from jobrun.session.dask.messages import (
    Answer,
    Message,
    Outcome,
    Peer,
    RunRequest,
    Setup,
    StepMessage,
    arrived,
)
from jobrun.session.dask.own_random import give_own_random
from jobrun.session.dask.worker_session import WorkerSession
from jobrun.values.boxes import Value

__all__ = ["WorkerActor"]

_THREADS = 4
"""The number of requests at a time: a run, a save, a question."""

_LOOK = 5.0
"""Seconds between two looks whether the client is gone."""


class WorkerActor:
    """Some nodes of a job; created on a worker, then configured by ``open``."""

    def __init__(self, key: str) -> None:
        self._key = key
        worker: Any = get_worker()
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop = worker.loop.asyncio_loop
        self._threads = ThreadPoolExecutor(_THREADS, "jobrun-worker")
        self.news_queue = NewsQueue(self._loop)
        self._outboxes: dict[str, _Outbox] = {}
        self._session: WorkerSession | None = None
        self._group: WorkerGroup | None = None
        self._request: RunRequest | None = None
        self._turn = self._paused = self._interrupted = 0
        self._closed = False

    @property
    def session(self) -> WorkerSession:
        """Return the session that holds the blobs."""
        assert self._session is not None
        return self._session

    async def open(self, setup: Setup) -> Answer:
        """Bind the functions and create empty stores; return the versions of the libraries."""
        self._close_if_left()
        return await self._answer(lambda: self._open(setup))

    def _open(self, setup: Setup) -> Mapping[str, str]:
        if setup.version != __version__:
            raise UsageError(
                f"a worker has jobrun {__version__}, but the client {setup.version}",
                hint="install the same version on all machines",
            )
        route_prints()
        job, places = place_code(setup, str(self._worker.local_directory))
        if job.generators:
            give_own_random()
        self._outboxes = {
            key: _Outbox(self._worker, peer, self.news_queue.unreached)
            for key, peer in setup.peers.items()
            if key != self._key
        }
        peers = {node: key for key, peer in setup.peers.items() for node in peer.nodes}
        self._session = WorkerSession(
            setup.nodes, peers, setup.threads, self._post, self.news_queue, self._is_left
        )
        self._session.open(job, places)
        return self._session.versions()

    async def _answer(self, call: Callable[[], Any]) -> Answer:
        """Return the result of a call on a thread, or its error."""
        try:
            return Answer(await self._loop.run_in_executor(self._threads, call))
        except BaseException as error:
            return Answer(error=_portable(error))

    async def do(self, name: str, *args: Any) -> Answer:
        """Call a method of the session that holds the blobs."""
        return await self._answer(lambda: getattr(self.session, name)(*args))

    async def news(self, seconds: float) -> NumberedNews:
        """Return the news, once there are some, or after ``seconds``."""
        return await self.news_queue.next(seconds)

    # Running.

    async def run(self, request: RunRequest) -> Answer:
        """Run the worker's part of a group; return an Outcome."""
        self._request = request
        self._turn = request.run
        return await self._answer(lambda: self._run(request, request.position, None))

    async def resume_run(self, turn: int, position: Position, only: frozenset[str]) -> Answer:
        """Run the units ``only`` and what belongs to them to the end, in the run that was cut."""
        request = self._request
        assert request is not None
        self._turn = turn
        return await self._answer(lambda: self._run(replace(request, batches=None), position, only))

    def _run(self, request: RunRequest, position: Position, only: frozenset[str] | None) -> Outcome:
        session = self.session
        session.steps.forget(self._turn)
        if request.forget and only is None:
            session.end_epoch()
        group = self._group = session.group(request.group)
        control = Control(
            cut=self._stops,
            applied=self.news_queue.applied,
            batches_left=lambda: request.batches,
            report=self.news_queue.report,
            every_task=request.every_task,
            interrupted=lambda: self._interrupted >= self._turn,
        )
        try:
            reached, now = group.run_portion(request.run, self._turn, position, control, only)
            if request.group == "setup" and not group.left:
                session.check_made(control)
        except BaseException as error:
            sequence, news = self.news_queue.rest()
            return Outcome((), {}, {}, news=news, sequence=sequence, error=_portable(error))
        scalars = session.own_scalars(request.watched)
        sequence, news = self.news_queue.rest()
        return Outcome(
            reached.tasks,
            reached.pipes,
            reached.readers,
            group.left,
            group.is_held(now),
            group.edges if group.left else frozenset(),
            group.owes,
            group.slowest(now),
            scalars,
            news,
            sequence,
            spent={n: s for n, s in group.spent(now).items() if s and n in session.nodes},
        )

    def _stops(self) -> bool:
        """Return whether nothing new may start: paused, or the client gone."""
        return self._paused >= self._turn or self._is_left()

    def _is_left(self) -> bool:
        """Return whether the client is gone, and the actor with it."""
        return self._worker.state.actors.get(self._key) is not self

    async def pause(self, turn: int, interrupted: bool, halt: bool) -> None:
        """Start nothing new in a turn; programs end if it is ``interrupted``, pipes if it failed.

        A turn is a ``run`` or ``resume_run``; this may be called before the turn, or after it.
        """
        self._paused = max(self._paused, turn)
        if interrupted:
            self._interrupted = max(self._interrupted, turn)
        if self._group is not None and self._turn == turn:
            self._group.stop(halt=halt)

    # Other workers.

    def _post(self, peer: str, message: Message | StepMessage) -> None:
        self._loop.call_soon_threadsafe(self._outboxes[peer].put, message)

    async def deliver(self, messages: list[Message | StepMessage]) -> None:
        """Receive messages of another worker."""
        for message in messages:
            if isinstance(message, StepMessage):
                self.session.steps.put(message)
            else:
                self.session.mailbox.put(message)

    async def flush(self) -> Answer:
        """Send what cut pipes have written on other workers, and wait until it has arrived."""
        assert self._group is not None
        partial = self._group.partial_outputs()
        try:
            for peer, values in partial.items():
                outbox = self._outboxes[peer]
                answer = await outbox.call("take_partial", values)
                if answer.error is not None:
                    return Answer(error=answer.error)
        except OSError as error:
            lost = _unreachable(outbox.peer, error)
            self.news_queue.unreached(lost, outbox.peer.address)
            return Answer(error=lost)
        return Answer()

    async def take_partial(self, values: Mapping[Key, Value]) -> Answer:
        """Store what a pipe of another worker has written here so far."""
        taken = {key: arrived(value) for key, value in values.items()}
        return await self._answer(lambda: self.session.take_partial(taken))

    def _close_if_left(self) -> None:
        """Close soon after the client is gone, which then cannot request it."""
        if self._closed:
            return
        if self._is_left():
            self._loop.create_task(self.close())
        else:
            self._loop.call_later(_LOOK, self._close_if_left)

    async def close(self) -> None:
        """End the threads, once their work is over, and release the shared memory."""
        self._closed = True
        self._paused = self._interrupted = sys.maxsize
        if self._group is not None:
            self._group.stop(halt=True)
        if self._session is not None:
            self._session.close()
        self._threads.shutdown(wait=False)


class _Outbox:
    """Sends messages to another worker in their order, those that are waiting together."""

    def __init__(
        self,
        worker: Any,
        peer: Peer,
        fail: Callable[[WorkerLostError, str], None],
    ) -> None:
        self._worker = worker
        self.peer = peer
        self._fail = fail
        self._waiting: list[Message | StepMessage] = []
        self._sending: asyncio.Task[None] | None = None

    def put(self, message: Message | StepMessage) -> None:
        """Send a message soon; on the event loop."""
        self._waiting.append(message)
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                messages, self._waiting = self._waiting, []
                await self.call("deliver", messages)
        except Exception as error:
            self._fail(_unreachable(self.peer, error), self.peer.address)
        finally:
            self._sending = None

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of the other actor; raises OSError if it cannot be reached."""
        address, key = self.peer.address, self.peer.key
        if address == self._worker.address:
            return await getattr(self._worker.state.actors[key], method)(*args)
        return await call_actor(self._worker.rpc(address), key, method, args)


def _unreachable(peer: Peer, error: BaseException) -> WorkerLostError:
    text = f"{peer.described} cannot be reached from another node's worker"
    lost = WorkerLostError(text)
    lost.__cause__ = error
    return lost


def _portable(error: BaseException) -> BaseException:
    """Return the error, or a RuntimeError with its text if it cannot be serialized."""
    if isinstance(error, JobrunError | OSError | CodeMissingError):
        with suppress(Exception):
            serialize_bytes(error)
            return error
    text = "".join(traceback.format_exception(error))
    return RuntimeError(f"{type(error).__name__}: {error}\non the worker:\n{text}")
