"""Holders of an object: reference counts, calibrated when this module is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.values.boxes import Box

__all__ = [
    "SOLE",
    "all_listed_alone",
    "box_held_alone",
    "held_alone",
    "owns_memory",
    "references",
]

Array = npt.NDArray[Any]


def references(container: Any, key: Any) -> int:
    """Return the references to ``container[key]``, which no variable of the caller may hold."""
    return sys.getrefcount(container[key])


def held_alone(container: Any, key: Any) -> bool:
    """Return whether nobody but ``container`` holds ``container[key]``."""
    return references(container, key) == SOLE


def _box_refs(box: Box) -> int:
    return sys.getrefcount(box.value)


def box_held_alone(box: Box) -> bool:
    """Return whether nobody but ``box`` holds its value."""
    return sys.getrefcount(box.value) == _SOLE_IN_BOX


def all_listed_alone(objects: Sequence[Any]) -> bool:
    """Return whether each of ``objects`` has one holder beside this list, and there are any."""
    return _listed_refs(objects) == {_SOLE_LISTED}


def _listed_refs(objects: Sequence[Any]) -> set[int]:
    return set(map(sys.getrefcount, objects))


def _base_refs(array: Array) -> int:
    return sys.getrefcount(array.base)


def _calibrate() -> tuple[int, int, int, int]:
    """Return the four counts of an object without another holder.

    They differ between interpreters.  Where counting does not distinguish one holder from two, they
    are -1, which no count equals: then everything is copied.
    """
    cell = [np.empty(1)]
    box = Box(np.empty(1), "array")
    view = np.empty((2, 1)).reshape(2)
    listed = [np.empty(1)]
    also = [*listed]

    def counts() -> tuple[int, int, int, int]:
        return references(cell, 0), _box_refs(box), _base_refs(view), max(_listed_refs(also))

    sole = counts()
    held = (cell[0], box.value, view.base, listed[0])
    if all(b == a + 1 for a, b in zip(sole, counts(), strict=True)) and held:
        return sole
    return (-1, -1, -1, -1)


SOLE, _SOLE_IN_BOX, _SOLE_BASE, _SOLE_LISTED = _calibrate()


def owns_memory(array: Array) -> bool:
    """Return whether freezing ``array`` freezes its memory: nothing else can reach it."""
    if array.flags.owndata:
        return True
    return (
        type(array.base) is np.ndarray
        and array.base.flags.owndata
        and _base_refs(array) == _SOLE_BASE
    )
