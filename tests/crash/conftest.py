"""Makes the helpers of this directory and of ``tests/checkpoint`` importable."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))
sys.path.insert(0, str(Path(__file__).parent))

from children import Nursery, Places

from jobrun.checkpoint import part


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Starts children that are warm: see ``children``."""
    with Nursery() as nursery:
        yield nursery


def _places() -> Iterator[Places]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="jobrun-crash-", dir=memory) as root:
        yield Places(Path(root))


module_places = pytest.fixture(scope="module")(_places)
places = pytest.fixture(_places)


@pytest.fixture
def place(places: Places) -> Path:
    """An empty directory, in memory where that can be: a kill and a fault are the same there."""
    return places()


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    """Of many blobs, some are synced before all are written; in the suite ten files are many."""
    monkeypatch.setattr(part, "FLUSH_EACH", 16 if long else 6)
    if not long:
        monkeypatch.setattr(part, "SYNC_EACH", 20)


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether this is the long hunt (``make crash``) and not the short version of the suite."""
    return bool(os.environ.get("JOBRUN_LONG"))
