"""Makes the helpers of this directory and of ``tests/checkpoint`` importable."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))
sys.path.insert(0, str(Path(__file__).parent))

from children import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Starts children that are warm: see ``children``."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def long() -> bool:
    """Whether this is the long hunt (``make crash``) and not the short version of the suite."""
    return bool(os.environ.get("JOBRUN_LONG"))
