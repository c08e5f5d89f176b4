"""Sessions, made from the ``session`` section of a spec."""

from __future__ import annotations

from importlib.util import find_spec

from jobrun.errors import UsageError
from jobrun.model.policy import SessionSpec
from jobrun.session.base import Session
from jobrun.session.local import LocalSession, default_threads

__all__ = ["make_session"]


def make_session(spec: SessionSpec, threads: int | None = None) -> Session:
    """Return the session that a spec describes; ``threads`` replaces its own number if given.

    A cluster is started, or connected to, at once.  Raises UsageError if dask.distributed is not
    installed, ClusterLostError if there is no scheduler.
    """
    threads = threads or spec.threads
    if spec.kind == "local":
        return LocalSession(threads)
    if find_spec("distributed") is None:
        raise UsageError(
            "a session of kind dask needs dask.distributed, which is not installed",
            hint="pip install 'jobrun[dask]'",
        )
    from jobrun.session.dask.cluster import connect, start_cluster
    from jobrun.session.dask.session import DaskSession

    if spec.address is not None:
        client = connect(spec.address, spec.wait)
    else:
        client = start_cluster(spec.workers or default_threads(), threads or 1)
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
