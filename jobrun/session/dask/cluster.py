"""Clusters, a new one on this machine or an existing one, and the placement of nodes on workers."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
from collections.abc import Collection, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

from jobrun.errors import ClusterLostError, UsageError, WorkerLostError
from jobrun.session.dask.messages import Peer, named
from jobrun.session.dask.workers import PlacedActor

__all__ = ["connect", "place_nodes", "shares", "start_cluster"]

_LOOK = 0.2
_SOON = 0.002


def start_cluster(workers: int, threads: int = 1) -> Any:
    """Return a client of a new cluster of ``workers`` processes on this machine, which it owns."""
    distributed: Any = import_module("distributed")
    dask: Any = import_module("dask")
    # As many BLAS threads as in this process, since their number determines the bits of sums.
    with dask.config.set({"distributed.nanny.pre-spawn-environ": {}}):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )
    client = distributed.Client(cluster, direct_to_workers=True, set_as_default=False)
    client.register_plugin(_deaf_workers(distributed))
    return client


def _deaf_workers(distributed: Any) -> Any:
    """Return a plugin by which workers ignore Ctrl-C: it is for the run, which then ends them."""

    class Deaf(distributed.WorkerPlugin):  # type: ignore[misc]
        name = "jobrun-deaf"

        def setup(self, worker: Any) -> None:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.SIG_IGN)

    return Deaf()


def connect(address: str, timeout: float) -> Any:
    """Return a client of the scheduler at an address; raises ClusterLostError if there is none."""
    distributed: Any = import_module("distributed")
    try:
        return distributed.Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterLostError(
            f"there is no scheduler at {address}: {error}",
            hint="start one with 'dask scheduler', and workers with 'dask worker ADDRESS'",
        ) from error


def place_nodes(
    client: Any, nodes: Sequence[str], lost: set[str], wait: float, timeout: float
) -> dict[str, PlacedActor]:
    """Create an actor on each worker but those that are ``lost``, for an even share of the nodes.

    Neighbours share a worker.  Returns the actors by key.  If there is no worker, wait for one for
    at most ``wait`` seconds, and then raise ClusterLostError.  Raises WorkerLostError if a worker
    is lost meanwhile, or does not create its actor within ``timeout`` seconds; it is added to
    ``lost``.
    """
    from jobrun.session.dask.actor import WorkerActor

    workers = _workers(client, lost, time.monotonic() + wait)
    made = []
    for address, own in zip(workers, shares(nodes, len(workers)), strict=False):
        key = f"jobrun-{own[0]}-{secrets.token_hex(8)}"
        future = client.submit(
            WorkerActor,
            key,
            key=key,
            actor=True,
            pure=False,
            workers=[address],
            allow_other_workers=True,
        )
        made.append((own, key, future, address))
    end = time.monotonic() + timeout
    placed = {}
    for own, key, future, address in made:
        if not _is_made(future, end):
            lost.add(address)
            text = f"the worker {address} did not create {named(own)} within {timeout:g} s"
            raise WorkerLostError(text)
        placed[key] = PlacedActor(future, Peer(_address(client, future), key, own))
    return placed


def shares(nodes: Sequence[str], workers: int) -> list[tuple[str, ...]]:
    """Return the nodes of each worker, at most one share for each node."""
    count = min(workers, len(nodes))
    ends = [number * len(nodes) // count for number in range(count + 1)]
    return [tuple(nodes[first:end]) for first, end in pairwise(ends)]


def _address(client: Any, future: Any) -> str:
    """Return the worker that has an actor; raises WorkerLostError if it is already lost."""
    for address in client.who_has([future]).get(future.key, ()):
        return str(address)
    raise WorkerLostError("a worker was lost just after it was given a node")


def _workers(client: Any, lost: Collection[str], end: float) -> list[str]:
    """Return the addresses of the workers, once there are some."""
    while True:
        try:
            found = sorted(set(client.nthreads()) - set(lost))
        except (OSError, RuntimeError) as error:
            raise ClusterLostError(f"the scheduler cannot be reached: {error}") from error
        if found:
            return found
        if time.monotonic() >= end:
            raise ClusterLostError(
                "the cluster has no worker", hint="start one: dask worker ADDRESS"
            )
        time.sleep(_LOOK)


def _is_made(future: Any, end: float) -> bool:
    """Return whether an actor is created in time."""
    while future.status == "pending":
        if time.monotonic() >= end:
            return False
        time.sleep(_SOON)
    error = future.exception() if future.status == "error" else None
    if isinstance(error, ImportError):
        raise UsageError(
            f"a worker cannot import jobrun: {error}", hint="install jobrun[dask] on the workers"
        ) from error
    if error is not None:
        raise WorkerLostError(f"a worker cannot run a node: {error}") from error
    return True
