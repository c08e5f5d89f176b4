"""DaskSession obeys the contract, on a cluster of two worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from live_contract import LiveContract
from reduce_contract import ReduceContract
from session_contract import SessionContract

from jobrun.session.base import Session

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of a cluster of two processes."""
    from jobrun.session.dask.cluster import start_cluster

    made = start_cluster(2, 1)
    yield made
    made.close()
    made.cluster.close()


class TestTwoWorkers(SessionContract, LiveContract, ReduceContract):
    """Nodes in other processes."""

    seconds_of_a_batch = 0.03

    @pytest.fixture(autouse=True)
    def _client(self, client: Any) -> None:
        self.client = client

    def make_session(self) -> Session:
        """A new session on the cluster of the module."""
        from jobrun.session.dask.session import DaskSession

        return DaskSession(self.client, threads=2)


class TestOneThread(ReduceContract):
    """Workers of one thread each, which no pipe may hold while others need it."""

    seconds_of_a_batch = 0.03

    @pytest.fixture
    def session(self, client: Any) -> Iterator[Session]:
        """A new session on the cluster of the module."""
        self.client = client
        made = self.make_session()
        yield made
        made.close()

    def make_session(self) -> Session:
        """A new session."""
        from jobrun.session.dask.session import DaskSession

        return DaskSession(self.client, threads=1)
