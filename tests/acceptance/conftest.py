"""Run directories in memory, where there is a file system for that: saves then wait for no disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from whole_runs import MEMORY

from jobrun import LocalSession
from jobrun.session.base import Session


@pytest.fixture(scope="session")
def memory() -> Iterator[Path]:
    """A folder for all runs of a session."""
    with TemporaryDirectory(dir=MEMORY, prefix="jobrun-") as folder:
        yield Path(folder)


@pytest.fixture
def run_dir(memory: Path) -> Iterator[Path]:
    """A run directory that does not exist yet, in a folder of its own."""
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "run"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A client of two worker processes."""
    pytest.importorskip("distributed")
    from jobrun.session.dask.cluster import start_cluster

    client = start_cluster(2, 1)
    yield client
    client.close()
    client.cluster.close()


@pytest.fixture
def sessions(request: pytest.FixtureRequest) -> Callable[[str], Session]:
    """Makes a session of a kind: ``8 threads``, or ``dask``."""

    def make(kind: str) -> Session:
        if kind != "dask":
            return LocalSession(int(kind.split()[0]))
        client = request.getfixturevalue("cluster")
        from jobrun.session.dask.session import DaskSession

        return DaskSession(client)

    return make
