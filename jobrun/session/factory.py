"""Sessions, made from the ``session`` section of a spec."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from jobrun.errors import UsageError
from jobrun.model.policy import SessionSpec
from jobrun.session.base import Session
from jobrun.session.local import LocalSession, default_threads

__all__ = ["cluster_client", "make_session"]


def cluster_client(spec: SessionSpec, threads: int) -> Any:
    """Return a client of the cluster that a spec names, or of a new one on this machine.

    ``threads`` are those of each worker of a new one.  Raises UsageError if dask.distributed is not
    installed, ClusterLostError if there is no scheduler.
    """
    if find_spec("distributed") is None:
        raise UsageError(
            "a session of kind dask needs dask.distributed, which is not installed",
            hint="pip install 'jobrun[dask]'",
        )
    from jobrun.session.dask.cluster import connect, start_cluster

    if spec.address is not None:
        return connect(spec.address, spec.wait)
    return start_cluster(spec.workers or default_threads(), threads)


def make_session(spec: SessionSpec, threads: int | None = None) -> Session:
    """Return the session that a spec describes; ``threads`` replaces its own number if given.

    A cluster is started, or connected to, at once.  Raises UsageError if dask.distributed is not
    installed, ClusterLostError if there is no scheduler.
    """
    threads = threads or spec.threads
    if spec.kind == "local":
        return LocalSession(threads)
    client = cluster_client(spec, threads or 1)
    from jobrun.session.dask.session import DaskSession

    return DaskSession(
        client,
        threads=threads,
        max_restarts=spec.max_restarts,
        timeout=spec.timeout,
        wait=spec.wait,
        resources=spec.resources,
        same_versions=spec.versions == "same",
        owned=True,
    )
