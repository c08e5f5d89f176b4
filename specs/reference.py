"""The code of reference.yaml and reference_nodes.yaml: a total of rows, in whole numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def make_rows(count: int) -> Ints:
    """The rows 0, 1, ... count - 1."""
    return np.arange(count, dtype=np.int64)


def make_total() -> Ints:
    """The total to start from, [100]."""
    return np.array([100], dtype=np.int64)


def add(val: Ints, total: Ints) -> None:
    """Add the batch's values to ``total``, in place."""
    total += val.sum()
