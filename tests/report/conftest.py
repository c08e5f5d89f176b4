"""Events of a small run, for the tests of the reporters."""

from __future__ import annotations

import pytest
from made_events import Make


@pytest.fixture
def make() -> Make:
    return Make()
