"""Random numbers without hidden state: a Generator is derived from its place of use.

The key is a digest of (seed, group, task, node, epoch, batch); the generator is counter-based
(Philox: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).  So a resumed run
draws the same numbers, on any number of threads, whatever other tasks exist.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np

__all__ = ["make_rng"]


def make_rng(seed: int, *place: str | int | None) -> np.random.Generator:
    """Return the Generator of a place: a group, task, node, epoch and batch, or other names."""
    text = json.dumps([seed, *place], separators=(",", ":"))
    digest = blake2b(text.encode(), digest_size=16, person=b"jobrun-rng").digest()
    key = np.frombuffer(digest, "<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
