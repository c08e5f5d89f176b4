"""Arrays that are cut into chunks of other lengths than usual."""

from __future__ import annotations

from functools import lru_cache

import pytest

from jobrun.checkpoint import chunk_grid, zarr_metadata

__all__ = ["cut_into"]


def cut_into(patch: pytest.MonkeyPatch, most: int) -> None:
    """Until ``patch`` is undone, no chunk is longer than ``most`` bytes.

    The forms of arrays are kept: those made meanwhile are not to be found by others.
    """
    patch.setattr(chunk_grid, "CHUNK_BYTES", most)
    patch.setattr(zarr_metadata, "_chunked", lru_cache(zarr_metadata._chunked.__wrapped__))
