"""Makes ``checkpoint_helpers`` importable, for the tests of this directory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.chunks import cut_into

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of a few elements are cut into several chunks."""
    cut_into(monkeypatch, 64)
