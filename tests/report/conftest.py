"""Events of a small run, for the tests of the reporters."""

from __future__ import annotations

import pytest
from made_events import Make


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture(autouse=True)
def started_as_jobrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let messages offer ``jobrun``, whether it is on the PATH of who runs the tests or not."""
    monkeypatch.setattr("sys.argv", ["jobrun-tests"])
