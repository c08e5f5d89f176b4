"""Arrays that are cut into chunks of other lengths than usual."""

from __future__ import annotations

from functools import lru_cache

import pytest

from jobrun.checkpoint import grid, layout

__all__ = ["cut_into"]


def cut_into(patch: pytest.MonkeyPatch, most: int) -> None:
    """Until ``patch`` is undone, no chunk is longer than ``most`` bytes.

    The forms of arrays are kept: those made meanwhile are not to be found by others.
    """
    patch.setattr(grid, "CHUNK_BYTES", most)
    patch.setattr(layout, "_chunked", lru_cache(layout._chunked.__wrapped__))
