"""Calls of an actor's methods, from the client or from another worker.

``distributed.Actor`` does the same for the process's default client alone; a session uses the
client that it was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed.protocol.serialize import Serialize

__all__ = ["call_actor", "from_client"]

_serialize: Any = Serialize


async def call_actor(rpc: Any, key: str, method: str, args: Iterable[Any]) -> Any:
    """Return the result of a method of the actor ``key``, on the worker that ``rpc`` calls.

    Raises OSError if the worker cannot be reached, or has no such actor.
    """
    answer = await rpc.actor_execute(
        actor=key, function=method, args=[_serialize(arg) for arg in args], kwargs={}
    )
    if answer["status"] != "OK":
        error = answer["exception"]
        raise OSError(f"{type(error).__name__}: {error}") from error
    return answer["result"]


def from_client(client: Any, address: str) -> Any:
    """Return what calls a worker from a client: directly, or through the scheduler."""
    return client.rpc(address) if client.direct_to_workers else _ByScheduler(client, address)


class _ByScheduler:
    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address

    async def actor_execute(self, **message: Any) -> Any:
        message["op"] = "actor_execute"
        return await self._client.scheduler.proxy(worker=self._address, msg=message)
