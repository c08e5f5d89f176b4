"""Arrays that share elements in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["overlapping", "shares_elements", "touching"]

Array = npt.NDArray[Any]

_MOST_WORK: Final = 10_000
"""Steps of the exact test after which two arrays count as overlapping."""


def overlapping(arrays: Sequence[Array]) -> tuple[int, int] | None:
    """Return the places of the first two arrays that share an element in memory, or None."""
    bounds = [*map(_bounds, arrays)]
    order = sorted(range(len(arrays)), key=bounds.__getitem__)
    for place, a in enumerate(order):
        for b in order[place + 1 :]:
            if bounds[b][0] >= bounds[a][1]:
                break
            if shares_elements(arrays[a], arrays[b]):
                return min(a, b), max(a, b)
    return None


def touching(arrays: Sequence[Array]) -> list[list[int]]:
    """Return the places of arrays in groups whose bytes lie in one another's range in memory.

    An array that lies by itself is in none.  Not all of a group need to share an element.  A base
    comes before its views.
    """
    bounds = [*map(_bounds, arrays)]
    groups: list[list[int]] = []
    last = 0
    for number in sorted(range(len(arrays)), key=lambda n: (bounds[n][0], -bounds[n][1])):
        begin, end = bounds[number]
        if groups and begin < last:
            groups[-1].append(number)
        else:
            groups.append([number])
        last = max(last, end)
    return [group for group in groups if len(group) > 1]


def _bounds(array: Array) -> tuple[int, int]:
    """Return the address of the first byte of an array, and the one after its last."""
    if array.flags.c_contiguous:  # a third of the time
        begin = array.__array_interface__["data"][0]
        return begin, begin + array.nbytes
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)


def shares_elements(a: Array, b: Array) -> bool:
    """Return whether two arrays share an element in memory, or cannot be told quickly."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
