"""Bytes as people write them."""

from __future__ import annotations

import pytest

from jobrun.core.size import size


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1234, "1.23 kB"), (5 * 10**9, "5 GB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text
