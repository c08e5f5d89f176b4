"""Clusters, a new one on this machine or an existing one, and the placement of nodes on workers."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from jobrun.core.events import Warned
from jobrun.errors import ClusterLostError, UsageError, WorkerLostError
from jobrun.session.base import Control
from jobrun.session.dask.messages import Peer, named
from jobrun.session.dask.placement import Avoided, Resources, assign, resources_text, shares
from jobrun.session.dask.waiting import wait_until
from jobrun.session.dask.workers import PlacedActor

__all__ = [
    "able_workers",
    "close_client",
    "connect",
    "place_nodes",
    "refuse_other_versions",
    "start_cluster",
]

_ASK = 10.0
"""Seconds that workers are given to answer whether they can import jobrun."""

_HAS_JOBRUN = "__import__('importlib.util').util.find_spec('jobrun') is not None"


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


def close_client(client: Any) -> None:
    """Close a client, and the cluster that was started for it, if any."""
    cluster = client.cluster
    log = logging.getLogger("distributed.client")
    disabled, log.disabled = log.disabled, True  # else it has a traceback of a cancelled reconnect
    try:
        client.close()
    finally:
        log.disabled = disabled
    if cluster is not None:
        cluster.close()


def refuse_other_versions(where: str, found: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise UsageError for a worker whose Python or numpy is not that of the client."""
    for name in ("python", "numpy"):
        if found.get(name) != own[name]:
            raise UsageError(
                f"{where} has {name} {found.get(name)}, the client {own[name]}",
                hint="install the same version on all machines, or remove 'versions: same' from "
                "'session'",
            )


def able_workers(client: Any, avoided: Avoided, wait: float, control: Control) -> list[str]:
    """Return the workers that have jobrun, once there are some, with a warning of the others.

    Those are added to the lost ones.  Raises ClusterLostError if there is no worker within ``wait``
    seconds, UsageError if none has jobrun, and WaitEndedError if the run is interrupted.
    """
    workers = _workers(client, avoided, wait, control)
    able = _able(client, workers, avoided, control)
    if not able:
        hint = "install jobrun[dask] on the workers"
        raise UsageError(_without_jobrun(workers), hint=hint)
    return able


def place_nodes(
    client: Any,
    nodes: Sequence[str],
    avoided: Avoided,
    needs: Mapping[str, Resources],
    wait: float,
    timeout: float,
    control: Control,
) -> dict[str, PlacedActor]:
    """Create an actor on each worker but the ``avoided`` ones, for its nodes: see ``assign``.

    Returns the actors by key.  Workers that cannot import jobrun are reported and added to the lost
    ones.  If there is no worker, or none with what a node ``needs``, wait for one for at most
    ``wait`` seconds, and then raise ClusterLostError.  Raises UsageError if no worker can import
    jobrun, WorkerLostError if a worker is lost meanwhile, or does not create its actor within
    ``timeout`` seconds (it counts as lost then), and WaitEndedError if the run is interrupted.
    """
    from jobrun.session.dask.actor import WorkerActor

    workers = able_workers(client, avoided, wait, control)
    made = []
    placing = _assigned(client, nodes, workers, avoided, needs, wait, control)
    for address, own in placing.items():
        key = f"jobrun-{own[0]}-{secrets.token_hex(8)}"
        future = client.submit(
            WorkerActor,
            key,
            key=key,
            actor=True,
            pure=False,
            workers=[address],
            allow_other_workers=True,
            resources=_sum(needs, own),
        )
        made.append((own, key, future, address))
    end = time.monotonic() + timeout
    placed = {}
    for own, key, future, address in made:
        what = f"the worker {address} to create {named(own)}"
        if not _is_made(future, end - time.monotonic(), what, control):
            avoided.lost.add(address)
            text = f"the worker {address} did not create {named(own)} within {timeout:g} s"
            raise WorkerLostError(text)
        placed[key] = PlacedActor(future, Peer(_address(client, future), key, own))
    return placed


def _able(client: Any, workers: list[str], avoided: Avoided, control: Control) -> list[str]:
    """Return the workers that can import jobrun; the others are lost, with a warning.

    A worker that does not answer soon is kept: its actor shows what is wrong.
    """
    asked = [address for address in workers if address not in avoided.able]
    unable = _unable(client, asked, control) if asked else []
    avoided.able.update(set(asked) - set(unable))
    avoided.lost.update(unable)
    able = [address for address in workers if address not in unable]
    if unable and able:
        text = f"{_without_jobrun(unable)}: the other workers are used"
        control.report(Warned(text))
    return able


def _without_jobrun(workers: Sequence[str]) -> str:
    return f"jobrun is not installed on the worker{'s' * (len(workers) > 1)} {', '.join(workers)}"


def _unable(client: Any, workers: list[str], control: Control) -> list[str]:
    """Return the workers that answer that they cannot import jobrun."""
    answers: Future[dict[str, Any]] = Future()

    def ask() -> None:
        try:  # a function of Python's own: one of jobrun could not be unpickled there
            found = client.run(eval, _HAS_JOBRUN, workers=workers, on_error="return")
            answers.set_result(found)
        except BaseException as error:
            answers.set_exception(error)

    threading.Thread(target=ask, name="jobrun-ask", daemon=True).start()
    if not wait_until(answers.done, _ASK, lambda: "an answer of all workers", control):
        return []
    found = {} if answers.exception() is not None else answers.result()
    return [address for address in workers if found.get(address) is False]


def _assigned(
    client: Any,
    nodes: Sequence[str],
    workers: list[str],
    avoided: Avoided,
    needs: Mapping[str, Resources],
    wait: float,
    control: Control,
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each worker, once there are workers with all that the nodes need."""
    if not needs:
        return dict(zip(workers, shares(nodes, len(workers)), strict=False))
    found: dict[str, tuple[str, ...]] | str = ""
    has: dict[str, Resources] = {}

    def placed() -> bool:
        nonlocal found, has
        known = client.scheduler_info(n_workers=-1)["workers"]
        able = _able(client, avoided.usable(known), avoided, control)  # some may have just joined
        has = {w: known[w].get("resources", {}) for w in able}
        found = assign(nodes, list(has), needs, has) if has else nodes[0]
        return not isinstance(found, str)

    def what() -> str:
        amounts = resources_text(needs.get(str(found), {}))
        return f"a worker with the resources of node {found!r} ({amounts})"

    if not wait_until(placed, wait, what, control) or isinstance(found, str):
        node = str(found)
        amounts = resources_text(needs.get(node, {}))
        there = "; ".join(f"{w} has {resources_text(own)}" for w, own in has.items())
        raise ClusterLostError(
            f"no worker has the resources of node {node!r} ({amounts}) left: {there}",
            hint="start one: dask worker ADDRESS --resources "
            f"'{amounts.replace(', ', ' ')}'; one worker may have several nodes, and needs the sum",
        )
    return found


def _sum(needs: Mapping[str, Resources], nodes: Sequence[str]) -> dict[str, float] | None:
    """Return what nodes need together, None for nothing."""
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in needs.get(node, {}).items():
            total[name] = total.get(name, 0.0) + amount
    return total or None


def _address(client: Any, future: Any) -> str:
    """Return the worker that has an actor; raises WorkerLostError if it is already lost."""
    for address in client.who_has([future]).get(future.key, ()):
        return str(address)
    raise WorkerLostError("a worker was lost just after it was given a node")


def _workers(client: Any, avoided: Avoided, wait: float, control: Control) -> list[str]:
    """Return the addresses of the workers, once there are some."""
    found: list[str] = []

    def some() -> bool:
        try:
            found[:] = avoided.usable(client.nthreads())
        except (OSError, RuntimeError) as error:
            raise ClusterLostError(f"the scheduler cannot be reached: {error}") from error
        return bool(found)

    if not wait_until(some, wait, lambda: "a worker to join the cluster", control):
        lost = ", ".join(sorted(avoided.lost))
        given_up = f" but {lost}, which cannot be used" if lost else ""
        raise ClusterLostError(
            f"the cluster has no worker{given_up}", hint="start one: dask worker ADDRESS"
        )
    return found


def _is_made(future: Any, seconds: float, what: str, control: Control) -> bool:
    """Return whether an actor is created in time."""
    if not wait_until(lambda: future.status != "pending", seconds, lambda: what, control):
        return False
    error = future.exception() if future.status == "error" else None
    if isinstance(error, ImportError):
        raise UsageError(
            f"a worker cannot import jobrun: {error}", hint="install jobrun[dask] on the workers"
        ) from error
    if error is not None:
        raise WorkerLostError(f"a worker cannot run a node: {error}") from error
    return True
