"""A cluster in this process: real actors and sessions, and a network that delays, and fails.

What is sent is serialised as dask does it, so that nothing is shared but what may be.  Workers are
killed at given calls, or at once.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

from distributed.protocol import deserialize_bytes, serialize_bytes

import jobrun.session.dask.actor as actor_module

__all__ = ["FakeCluster"]


class FakeCluster:
    """The client of a cluster of ``workers``; as a context.

    ``delay`` is the longest time, in seconds, that a message takes.  ``die_at``: the worker of a
    call dies as that call, counted from 1, reaches it.  ``drop_at``: such a call does not arrive,
    though all workers live; nor does the first call of a method ``drop_first``.
    """

    asynchronous = False
    direct_to_workers = True
    status = "running"
    cluster = None

    def __init__(
        self,
        workers: int = 2,
        *,
        delay: float = 0.0,
        seed: int = 0,
        die_at: Collection[int] = (),
        drop_at: Collection[int] = (),
        drop_first: str = "",
    ) -> None:
        self._delay = delay
        self._random = random.Random(seed)
        self._die_at = die_at
        self._drop_at = drop_at
        self._drop_first = drop_first
        self.calls = 0
        self.log: list[tuple[str, str, int]] = []
        self.workers: dict[str, _Worker] = {}
        self.lost: set[str] = set()
        self.nanny = True
        self.apart: set[frozenset[str]] = set()
        """Pairs of workers that do not reach each other."""
        self.resources: dict[str, dict[str, float]] = {}
        self.submitted: dict[str, Any] = {}
        """The resources that each worker's actor was submitted with."""
        self._count = workers
        asyncio_loop = asyncio.new_event_loop()
        self.loop = SimpleNamespace(asyncio_loop=asyncio_loop)
        self.scheduler = SimpleNamespace(identity=self._identity, address="tcp://fake:1")
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> FakeCluster:
        self._thread = threading.Thread(target=self.loop.asyncio_loop.run_forever, daemon=True)
        self._thread.start()
        self._before = actor_module.get_worker
        actor_module.get_worker = lambda: self._making  # type: ignore[assignment]
        for _ in range(self._count):
            self.start_worker()
        return self

    def __exit__(self, *raised: object) -> None:
        self.status = "closed"
        actor_module.get_worker = self._before  # type: ignore[assignment]
        asyncio.run_coroutine_threadsafe(self._end(), self.loop.asyncio_loop)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.loop.asyncio_loop.close()
        self._folder.cleanup()

    async def _end(self) -> None:
        """End the actors, what still runs on the loop, such as requests for news, and the loop."""
        for worker in self.workers.values():
            await _closed(worker.take_actors())
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks) if tasks else None
        asyncio.get_running_loop().stop()

    # What a session asks of a client.

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.workers, 2)

    def submit(
        self,
        make: Callable[[str], Any],
        name: str,
        *,
        key: str,
        workers: list[str],
        resources: Any = None,
        **_: Any,
    ) -> Any:
        (address,) = workers
        self.submitted[address] = resources
        self._making = self.workers[address]
        self._making.state.actors[key] = make(name)
        return _Future(self, key, address)

    def scheduler_info(self, **_: Any) -> dict[str, Any]:
        return {"workers": {w: {"resources": self.resources.get(w, {})} for w in [*self.workers]}}

    def who_has(self, futures: list[Any]) -> dict[str, tuple[str, ...]]:
        return {f.key: (f.address,) for f in futures if f.address in self.workers}

    def run(self, *_: Any, workers: list[str], **__: Any) -> dict[str, Any]:
        return dict.fromkeys(workers, True)

    def rpc(self, address: str, source: str = "") -> Any:
        async def execute(**message: Any) -> dict[str, Any]:
            if frozenset([source, address]) in self.apart:
                raise OSError("no route to host")
            return await self._execute(address, **message)

        return SimpleNamespace(actor_execute=execute)

    async def _identity(self, **_: Any) -> dict[str, Any]:
        return {}

    # The network.

    async def _execute(
        self, address: str, actor: str, function: str, args: list[Any], kwargs: Any
    ) -> dict[str, Any]:
        data = [serialize_bytes(arg.data) for arg in args]
        if function != "news":
            self.calls += 1
            self.log.append((address, function, sum(map(len, data))))
            if self.calls in self._die_at and address in self.workers:
                self.kill(address)
        dropped = self._is_dropped(function)
        await self._travel(address)
        if dropped:
            raise OSError("no route to host")
        worker = self.workers[address]
        call = getattr(worker.state.actors[actor], function)(*map(deserialize_bytes, data))
        task = asyncio.ensure_future(call)
        dead = asyncio.ensure_future(worker.dead.wait())
        await asyncio.wait([task, dead], return_when=asyncio.FIRST_COMPLETED)
        dead.cancel()
        if worker.dead.is_set():
            raise OSError("connection reset")
        back = serialize_bytes(task.result())
        if function != "news":
            self.log.append((address, f"{function} answer", len(back)))
        await self._travel(address)
        return {"status": "OK", "result": deserialize_bytes(back)}

    def _is_dropped(self, function: str) -> bool:
        if function == self._drop_first:
            self._drop_first = ""
            return True
        return function != "news" and self.calls in self._drop_at

    async def _travel(self, address: str) -> None:
        if self._delay:
            await asyncio.sleep(self._random.random() * self._delay)
        if address not in self.workers:
            raise OSError(f"{address} cannot be reached")

    def kill(self, address: str) -> None:
        """A worker is gone, with all that it held; its nanny starts another one."""
        worker = self.workers.pop(address)
        self.lost.add(address)
        self.loop.asyncio_loop.call_soon_threadsafe(worker.dead.set)
        actors = worker.take_actors()  # which ends what runs there
        asyncio.run_coroutine_threadsafe(_closed(actors), self.loop.asyncio_loop)
        if self.nanny:
            self.start_worker()

    def start_worker(self) -> str:
        """One worker more."""
        address = f"tcp://fake:{100 + len(self.workers) + len(self.lost)}"
        self.workers[address] = _Worker(self, address, self._folder.name)
        return address


class _Worker:
    """What an actor asks of its worker."""

    def __init__(self, cluster: FakeCluster, address: str, local_directory: str) -> None:
        self.address = address
        self.loop = cluster.loop
        self.local_directory = local_directory
        self.state = SimpleNamespace(actors={})
        self.dead = asyncio.Event()
        self._cluster = cluster

    def take_actors(self) -> list[Any]:
        """The actors, which it does not have any more."""
        actors, self.state.actors = self.state.actors, {}
        return list(actors.values())

    def rpc(self, address: str) -> Any:
        return self._cluster.rpc(address, self.address)


async def _closed(actors: list[Any]) -> None:
    """End actors with all that they hold, as the end of their process does."""
    for actor in actors:
        await actor.close()


class _Future:
    def __init__(self, cluster: FakeCluster, key: str, address: str) -> None:
        self.key = key
        self.address = address
        self._cluster = cluster

    status = "finished"

    def release(self) -> None:
        worker = self._cluster.workers.get(self.address)
        if worker is not None:
            worker.state.actors.pop(self.key, None)
