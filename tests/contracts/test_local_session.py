"""LocalSession obeys the contract, on one thread and on several."""

from __future__ import annotations

from live_contract import LiveContract
from reduce_contract import ReduceContract
from session_contract import SessionContract

from jobrun.session.base import Session
from jobrun.session.local import LocalSession


class TestOneThread(SessionContract, LiveContract, ReduceContract):
    """Tasks one after another."""

    def make_session(self) -> Session:
        """A new session."""
        return LocalSession(threads=1)


class TestEightThreads(SessionContract, LiveContract, ReduceContract):
    """More threads than cores."""

    def make_session(self) -> Session:
        """A new session."""
        return LocalSession(threads=8)
