"""A dict or list of arrays that nothing else holds: lent for an update, and adopted, all at once.

What ``borrow`` and ``adopt`` decide for each leaf is the same for all of these, and is proven here
in a few passes without a call of Python for a leaf: a fifth of the time, for a tree of hundreds.
What is left undecided here is decided there.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.holders import all_listed_alone

__all__ = ["adopt_own", "lend_own", "refill_own"]

Array = npt.NDArray[Any]

_OWN: Final = frozenset({0x105, 0x107, 0x505, 0x507})
"""``flags.num`` of arrays, read-only or not, that are C-contiguous, aligned, own their memory."""

_DTYPES: Final = frozenset(id(np.dtype(code)) for code in "?bhilqBHILQefdFD")
"""The dtypes of numbers: one object each, but for copies with metadata or another byte order."""


def lend_own(tree: Tree) -> dict[Any, Array] | list[Array] | None:
    """Return the stored arrays of a tree without another holder, made writable.

    Its boxes are emptied.  Returns None where more is to be decided.
    """
    if not tree.whole:
        return None
    boxes: list[Any] = [*tree.items.values()]
    if not all_listed_alone(boxes):
        return None
    arrays = [box.value for box in boxes if not box.tied and box.note is None]
    if len(arrays) < len(boxes) or not all_listed_alone(arrays):
        return None
    for box, array in zip(boxes, arrays, strict=True):
        box.value = None
        array.setflags(True)  # quicker than by keyword
    if tree.kind == "list":
        return arrays
    if tree.keys is not None:
        return dict(zip(tree.keys, arrays, strict=True))
    lent: dict[Any, Any] = tree.items.copy()  # in two thirds of the time of a dict that grows
    lent.update(zip(tree.items, arrays, strict=True))
    return lent


def adopt_own(container: Any) -> list[Value] | None:
    """Freeze the arrays of a dict or list without another holder, and return their boxes.

    Returns None where more is to be decided.
    """
    arrays = _own(container)
    if arrays is None:
        return None
    for array in arrays:
        array.setflags(False)  # type: ignore[call-arg]
    return [Box(array, "array") for array in arrays]


def refill_own(container: Any, old: Value | None) -> Tree | None:
    """Freeze the arrays of ``container``, and put them into the tree that ``lend_own`` emptied.

    ``container`` has no other holder and may be another one than was lent.  ``old`` is what was
    borrowed, if anything.  Returns None where more is to be decided.
    """
    if type(old) is not Tree or not _fits(container, old):
        return None
    boxes: list[Any] = [*old.items.values()]
    if not all_listed_alone(boxes) or [box for box in boxes if box.value is not None]:
        return None
    arrays = _own(container)
    if arrays is None:
        return None
    for box, array in zip(boxes, arrays, strict=True):
        array.setflags(False)  # type: ignore[call-arg]
        box.value = array
        box.version = -1
        box.last_checksum = None
    return old


def _fits(container: Any, old: Tree) -> bool:
    """Return whether a container has the kind and the keys of an emptied tree."""
    if not old.whole or old.note is not None or old.tied or old.keys is not None:
        return False
    if old.kind == "list":
        return type(container) is list and len(container) == len(old.items)
    return isinstance(container, dict) and (*container,) == (*old.items,)


def _own(container: Any) -> list[Array] | None:
    """Return the arrays of a container if they are all that it holds, and plain, and its own."""
    arrays = [*(container.values() if isinstance(container, dict) else container)]
    if set(map(type, arrays)) != {np.ndarray} or not all_listed_alone(arrays):
        return None
    if not {array.flags.num for array in arrays} <= _OWN:
        return None
    first = arrays[0].dtype  # mostly that of all: a set of ids takes twice the time
    dtypes = [first, *(array.dtype for array in arrays if array.dtype is not first)]
    return arrays if _DTYPES.issuperset(map(id, dtypes)) else None
