"""Parts of states that share memory in the objects that they were read from.

A state is a copy, in which parts are apart that were one in memory, or views of one memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jobrun.core.blob_paths import Key as BlobKey
from jobrun.core.tree_keys import Key
from jobrun.values.boxes import Box, Value
from jobrun.values.overlap import shares_elements, touching

__all__ = ["Held", "SharedPart", "address_of", "shared_parts"]

Array = npt.NDArray[Any]


class Held(NamedTuple):
    """An array of an object, whose memory others hold, and the box with its copy."""

    array: Array
    box: Box


@dataclass(frozen=True, slots=True)
class SharedPart:
    """A part of the state of a blob: the keys that lead to it, its box, and the memory it is of."""

    key: BlobKey
    keys: tuple[Key, ...]
    box: Box
    memory: Array

    def shares(self, other: SharedPart) -> bool:
        """Return whether a change of one in place is a change of the other."""
        if not (self.memory.flags.writeable or other.memory.flags.writeable):
            return False
        return self.memory is other.memory or shares_elements(self.memory, other.memory)

    def __str__(self) -> str:
        """Return its path, without the keys that states have beside those of the objects."""
        hidden = (".attributes", ".parts", ".buffers")
        return "/".join([self.key[1], *(str(key) for key in self.keys if key not in hidden)])


def shared_parts(
    states: Mapping[BlobKey, tuple[Value, Sequence[Held]]],
) -> list[list[SharedPart]]:
    """Return groups of parts of states, which were read at one instant, that may share memory.

    Memory is compared first, and only where ranges meet, where in the states they are.
    """
    held = [one for _, found in states.values() for one in found]
    groups = touching([one.array for one in held])
    grouped = {number for group in groups for number in group}
    groups += [[n] for n, one in enumerate(held) if one.box.tied and n not in grouped]
    if not groups:
        return []
    memory = {id(held[n].box.value): held[n].array for group in groups for n in group}
    parts: dict[int, list[SharedPart]] = {}
    for key, (state, _) in states.items():
        for keys, box in _leaves(state, ()):
            if id(box.value) in memory:
                part = SharedPart(key, keys, box, memory[id(box.value)])
                parts.setdefault(id(box.value), []).append(part)
    return [[p for n in group for p in parts.get(id(held[n].box.value), ())] for group in groups]


def _leaves(value: Value, keys: tuple[Key, ...]) -> Iterator[tuple[tuple[Key, ...], Box]]:
    """Yield the leaves of a value with the keys that lead to them; places of lists are numbers."""
    if isinstance(value, Box):
        yield keys, value
        return
    names: Iterable[Key] = range(len(value.items)) if value.kind == "list" else value.names
    for key, item in zip(names, value.items.values(), strict=True):
        yield from _leaves(item, (*keys, key))


def address_of(obj: Any) -> int | None:
    """Return the address of the first element of an array or a tensor; None for all else."""
    if isinstance(obj, np.ndarray):
        return int(obj.__array_interface__["data"][0])
    pointer = getattr(obj, "data_ptr", None)
    if pointer is None:
        return None
    try:
        return int(pointer())
    except (RuntimeError, ValueError):  # of a lazy parameter, and of a sparse tensor
        return None
