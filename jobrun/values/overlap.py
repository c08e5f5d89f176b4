"""Arrays that share elements in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["overlapping"]

Array = npt.NDArray[Any]

_MOST_WORK: Final = 10_000
"""Steps of the exact test after which two arrays count as overlapping."""


def overlapping(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """Return the places of the first two arrays that share an element in memory, or None."""
    bounds = [np.lib.array_utils.byte_bounds(array) for array in arrays]
    order = sorted(range(len(arrays)), key=lambda number: bounds[number])
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            if bounds[b][0] >= bounds[a][1]:
                break
            if _shares_elements(arrays[a], arrays[b]):
                return min(a, b), max(a, b)
    return None


def _shares_elements(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
