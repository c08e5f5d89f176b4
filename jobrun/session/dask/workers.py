"""The workers of a job as the client sees them: calls to their actors, their news, and their loss.

Each worker is known by the key of its actor.  Everything that comes from one goes into one queue,
``happened``, for the thread that follows a run.  The first worker that cannot be reached any more,
from here or from another one, or gives no sign of life, ends the run for all: a call that waits
then, or is made later, raises WorkerLostError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue
from typing import Any

from jobrun.errors import ClusterLostError, JobrunError, WorkerLostError
from jobrun.session.dask.actor_calls import call_actor, from_client
from jobrun.session.dask.messages import Answer, News, Outcome, Peer, Unreached

__all__ = ["DaskWorkers", "Happening", "PlacedActor"]

_BEAT = 10.0
"""Seconds after which a worker gives a sign of life, even without news."""

_LOOK = 0.2
"""Seconds between two wake-ups of a waiting thread, so that signals are served."""

_ASK = 5.0
"""Seconds that the scheduler is given to answer."""


@dataclass(frozen=True, slots=True)
class PlacedActor:
    """An actor and its nodes on a worker; ``future`` keeps it there."""

    future: Any
    peer: Peer


@dataclass(frozen=True, slots=True)
class Happening:
    """News from a worker, the answer to a call that was followed, or its loss."""

    worker: str
    news: News | None = None
    answer: Answer | None = None


class DaskWorkers:
    """Calls to the actors of the workers; ``timeout``: seconds without a sign of life."""

    def __init__(self, client: Any, placed: Mapping[str, PlacedActor], timeout: float) -> None:
        self._client = client
        self._placed = placed
        self._timeout = timeout
        self._loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
        self._ended: Future[None] = Future()
        self._passed_on = dict.fromkeys(placed, 0)
        self._early: dict[tuple[str, int], tuple[News, ...]] = {}
        self._listeners: list[Future[None]] = []
        self.happened: SimpleQueue[Happening] = SimpleQueue()
        self.lost_addresses: set[str] = set()
        self.apart: set[tuple[str, str]] = set()
        """Addresses of two workers, of which one has not reached the other."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    @property
    def peers(self) -> dict[str, Peer]:
        """Return the actors, by their keys."""
        return {key: placed.peer for key, placed in self._placed.items()}

    @cached_property
    def of_node(self) -> dict[str, str]:
        """Return the worker of each node."""
        return {n: key for key, placed in self._placed.items() for n in placed.peer.nodes}

    @property
    def lost(self) -> BaseException | None:
        """Return the error, if a worker is lost."""
        return self._ended.exception() if self._ended.done() else None

    # Calls.

    def call(self, worker: str, method: str, *args: Any) -> Future[Any]:
        """Call a method of a worker's actor; the future fails if the worker is lost."""
        return asyncio.run_coroutine_threadsafe(self._call(worker, method, args), self._loop)

    async def _call(self, worker: str, method: str, args: Iterable[Any]) -> Any:
        try:
            return await self._reach(worker, method, args)
        except (OSError, RuntimeError) as error:
            lost = await self._why(worker)
            self._end(lost)
            raise lost from error

    async def _reach(self, worker: str, method: str, args: Iterable[Any]) -> Any:
        peer = self._placed[worker].peer
        return await call_actor(from_client(self._client, peer.address), peer.key, method, args)

    def follow(self, worker: str, method: str, *args: Any) -> None:
        """Call a method whose answer is put into ``happened``."""
        future = self.call(worker, method, *args)

        def ended(done: Future[Any]) -> None:  # on the event loop, as everything that handles news
            try:
                answer = done.result()
            except BaseException as error:
                answer = Answer(error=error)
            if isinstance(answer.value, Outcome):
                self.hear(worker, answer.value.sequence, answer.value.news)
            self.happened.put(Happening(worker, answer=answer))

        future.add_done_callback(ended)

    def ask(self, calls: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Call a method of several workers, ``{worker: (method, *args)}``; return the answers.

        Raises the error of the first worker, in their order, that answers with one.
        """
        futures = {worker: self.call(worker, *call) for worker, call in calls.items()}
        return {worker: self.result(future) for worker, future in futures.items()}

    def result(self, future: Future[Any]) -> Any:
        """Wait for the result of a call; raises WorkerLostError once a worker is lost."""
        while not future.done():
            wait_for([future, self._ended], _LOOK, return_when=FIRST_COMPLETED)
            if self._ended.done() and not future.done():
                self._ended.result()
        answer = future.result()
        if not isinstance(answer, Answer):
            return answer
        if answer.error is not None:
            raise answer.error
        return answer.value

    # News.

    def listen(self) -> None:
        """Request news of the workers, from now on."""
        self._listeners = [
            asyncio.run_coroutine_threadsafe(self._listen(worker), self._loop)
            for worker in self._placed
        ]

    async def _listen(self, worker: str) -> None:
        beat = min(_BEAT, self._timeout / 3)
        while not self._ended.done():
            try:
                call = self._reach(worker, "news", [beat])
                sequence, news = await asyncio.wait_for(call, self._timeout)
            except TimeoutError:
                self._end(self._silent(worker))
            except Exception:
                self._end(await self._why(worker))
            else:
                self.hear(worker, sequence, news)

    def hear(self, worker: str, sequence: int, news: tuple[News, ...]) -> None:
        """Handle news; they are passed on in the order in which they were sent."""
        self._early[worker, sequence] = news
        while (items := self._early.pop((worker, self._passed_on[worker] + 1), None)) is not None:
            self._passed_on[worker] += 1
            for item in items:
                if isinstance(item, Unreached):  # whether or not a run waits for it
                    if item.address:
                        self.apart.add((self._placed[worker].peer.address, item.address))
                    self._end(item.error)
                self.happened.put(Happening(worker, news=item))

    def heard(self, worker: str, sequence: int) -> bool:
        """Return whether all news up to this answer were passed on."""
        return self._passed_on[worker] >= sequence

    # The end.

    def _silent(self, worker: str) -> WorkerLostError:
        peer = self._placed[worker].peer
        self.lost_addresses.add(peer.address)
        return WorkerLostError(f"{peer.described} has not responded for {self._timeout:g} s")

    async def _why(self, worker: str) -> JobrunError:
        """Return the error that means that a worker cannot be reached."""
        peer = self._placed[worker].peer
        try:
            asked = self._client.scheduler.identity(n_workers=0)
            await asyncio.wait_for(asked, _ASK)
        except Exception:
            return ClusterLostError(
                f"the scheduler {self._client.scheduler.address} cannot be reached any more",
                hint="start a cluster, and resume from the last checkpoint",
            )
        self.lost_addresses.add(peer.address)
        return WorkerLostError(f"{peer.described} is lost")

    def _end(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self.happened.put(Happening("", answer=Answer(error=error)))

    def close(self) -> None:
        """Request no more news; the actors stay where they are."""
        for listener in self._listeners:
            listener.cancel()
        self._listeners = []

    def let_go(self, seconds: float) -> None:
        """End the actors, as far as they can be reached within ``seconds``."""
        self.close()
        placed = self._placed.items()
        there = [key for key, one in placed if one.peer.address not in self.lost_addresses]
        wait_for([self.call(worker, "close") for worker in there], seconds)
        for one in self._placed.values():
            one.future.release()
