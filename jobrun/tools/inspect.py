"""The blobs of a checkpoint: selection by name, and description of their values.

A blob is selected by its name, the name of a tree (then all it holds), a glob, or a name with a
slice: ``model/w1[0:10]``.  With several nodes names begin with the node: ``trainer_1:total``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.integrity import read_record
from jobrun.checkpoint.leaf_keys import LeafKeys
from jobrun.checkpoint.read_blobs import blobs_and_keys
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import Record
from jobrun.checkpoint.slices import read_slice
from jobrun.core.patterns import Blob, leaves_of, select
from jobrun.errors import NotFoundError, UsageError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.adapted import INTEGER, put_together
from jobrun.values.boxes import Box, leaves

__all__ = ["Leaf", "describe", "is_foreign", "large_integer", "pick", "pick_and_read", "read"]

Array = npt.NDArray[Any]
Index = tuple[int | slice, ...]
_SLICE = re.compile(r"(?P<name>.+)\[(?P<index>[-0-9:, ]+)\]")
SMALL = 4
"""The most elements of an array that is shown by its values."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of a checkpoint: ``name`` is shown to users, ``path`` is its path in its node.

    ``keys`` are the keys of dicts that lead to it; ``index`` is that of a slice.
    """

    name: str
    node: str
    path: str
    keys: LeafKeys
    index: Index | None = None

    @property
    def real_name(self) -> str:
        """The name with the keys in place of the path."""
        start = len(f"{self.node}:") if self.name.startswith(f"{self.node}:") else 0
        return self.name[:start] + self.keys.name + self.name[start + len(self.path) :]


def pick(
    checkpoint: str | Path,
    names: Sequence[str] = (),
    fs: Fs = DEFAULT,
    record: Record | None = None,
) -> tuple[Record, list[Leaf]]:
    """Return the leaves that ``names`` match, in the order of the checkpoint; by default all.

    Raises NotFoundError, with the nearest names, if one matches nothing.
    """
    record = record or read_record(fs, str(checkpoint))
    blobs = blobs_and_keys(checkpoint, record, fs)
    if not names:
        return record, [Leaf(x.name, x.node, x.path, k) for x, k in blobs.items() if x.is_leaf]
    found: dict[str, Leaf] = {}
    for name in names:
        for leaf in _meant(name, blobs, checkpoint):
            found.setdefault(leaf.name, leaf)
    return record, list(found.values())


def pick_and_read(
    checkpoint: str | Path, record: Record, names: Sequence[str] = (), fs: Fs = DEFAULT
) -> tuple[list[Leaf], dict[str, Box]]:
    """Apply ``pick`` and ``read`` to a checkpoint whose record is known."""
    picked = pick(checkpoint, names, fs, record)[1]
    return picked, read(checkpoint, picked, fs)


def _meant(name: str, known: Mapping[Blob, LeafKeys], checkpoint: str | Path) -> list[Leaf]:
    """Return the leaves that one name matches."""
    blobs = [*known]
    sliced = _SLICE.fullmatch(name)
    if sliced:
        with suppress(NotFoundError):  # of the whole string, below
            found = select(sliced["name"], blobs)
            index = _index(sliced["index"], name)
            shown = sliced["index"].replace(" ", "")
            return [
                Leaf(f"{x.name}[{shown}]", x.node, x.path, known[x], index)
                for x in leaves_of(found, blobs)
            ]
    found = select(name, blobs, where=str(checkpoint))
    return [Leaf(x.name, x.node, x.path, known[x]) for x in leaves_of(found, blobs)]


def _index(text: str, name: str) -> Index:
    """Return ``0:10, ::2, -1`` as an index."""
    items: list[int | slice] = []
    for part in text.split(","):
        numbers = [p.strip() for p in part.split(":")]
        try:
            values = [int(n) if n else None for n in numbers]
        except ValueError:
            values = []
        if not 1 <= len(values) <= 3 or values == [None] or values[2:] == [0]:
            raise UsageError(f"no index: [{text}] in {name!r}", hint="write name[3], name[0:10]")
        items.append(slice(*values) if len(values) > 1 else int(values[0] or 0))
    return tuple(items)


def read(checkpoint: str | Path, picked: Sequence[Leaf], fs: Fs = DEFAULT) -> dict[str, Box]:
    """Return the verified values of leaves by name; only the needed files are read."""
    found: dict[str, Box] = {}
    for node in dict.fromkeys(leaf.node for leaf in picked):
        whole = [x for x in picked if x.node == node and x.index is None]
        values = read_part(checkpoint, node, [x.path for x in whole], fs=fs) if whole else {}
        boxes = {path: box for p, value in values.items() for path, box in leaves(value, p)}
        found |= {x.name: boxes[x.path] for x in whole}
    for leaf in picked:
        if leaf.index is not None:
            part = read_slice(checkpoint, leaf.node, leaf.path, leaf.index, fs=fs)
            found[leaf.name] = Box(part, "array")
    return {leaf.name: found[leaf.name] for leaf in picked}


def large_integer(box: Box) -> int | None:
    """Return the integer of more than 64 bits that a value is, else None: it is kept as digits."""
    if box.note is None or box.note.name != INTEGER.name:
        return None
    return int(put_together(box.note, box.value))


# Description of a value.


def describe(box: Box, *, values: bool = False) -> dict[str, Any]:
    """Return kind, dtype, shape, bytes, and the values of a small array, else min, mean, max.

    Everything is JSON but numbers that are not finite.  ``values`` requests all values.
    """
    if (integer := large_integer(box)) is not None:
        return {"kind": "int", "value": integer}
    if box.kind not in ("array", "scalar"):
        return {"kind": box.kind, "value": box.value}
    array = np.asarray(box.value)
    facts: dict[str, Any] = {
        "kind": box.kind,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "bytes": array.nbytes,
    }
    if values or array.size <= SMALL:
        return facts | {"value": _plain(array)}
    return facts | _statistics(array)


def _plain(array: Array) -> Any:
    """Return the values as Python numbers or strings, also strings of what JSON cannot hold."""
    if array.dtype.kind in "biufU" and array.dtype.itemsize:
        return array.tolist()
    if is_foreign(array):
        return array.astype(np.float64).tolist()
    return np.array([str(x) for x in array.ravel()]).reshape(array.shape).tolist()


def is_foreign(array: Array) -> bool:
    """Return whether the dtype is of numbers that numpy itself lacks, such as bfloat16."""
    return array.dtype.kind == "V" and not issubclass(array.dtype.type, np.void)


def _statistics(array: Array) -> dict[str, Any]:
    """Return min, mean and max of the finite elements, and the number of the others."""
    if array.dtype.kind in "mM":
        known = array[~np.isnat(array)]
        return {"min": str(known.min()), "max": str(known.max())} if known.size else {}
    if is_foreign(array):
        array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        return {}
    finite = array
    facts: dict[str, Any] = {}
    if array.dtype.kind == "f":
        finite = array[np.isfinite(array)]
        if bad := array.size - finite.size:
            facts["not_finite"] = bad
    if not finite.size:
        return facts
    low, high = finite.min().item(), finite.max().item()
    return {"min": low, "mean": float(finite.mean(dtype=np.float64)), "max": high, **facts}
