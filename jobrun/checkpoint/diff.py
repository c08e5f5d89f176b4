"""The differences between two checkpoints: blobs added, removed and changed, and by how much.

One blob of each is in memory at a time.  Values are compared by their bits: a NaN equals itself,
and 0.0 does not equal -0.0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.contents import EarlierCheckpoints
from jobrun.checkpoint.dtypes import dtype_text
from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.leaf_reading import read_leaves
from jobrun.checkpoint.manifest import Entry
from jobrun.checkpoint.record import Record
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import Box

__all__ = ["BlobChange", "CheckpointDiff", "compare"]

Array = npt.NDArray[Any]
_BLOCK = 1 << 20
"""Elements compared at a time, so that temporary arrays are small."""


@dataclass(frozen=True, slots=True)
class BlobChange:
    """A blob that differs.

    ``was`` and ``now`` describe it (kind, dtype and shape, or the order of its keys) if that
    differs.  ``before`` and ``after`` are the values if it is not an array.  ``count`` of ``size``
    elements differ, by at most ``absolute`` and ``relative`` (to the larger of the two); these are
    None where differences are undefined: strings, booleans, and pairs with a value that is not
    finite, of which there are ``not_finite``.  Of the ``bytes`` of a changed array on disk,
    ``linked`` are shared with an earlier checkpoint; both are 0 where nothing is shared.
    """

    name: str
    was: str = ""
    now: str = ""
    before: Any = None
    after: Any = None
    count: int | None = None
    size: int | None = None
    absolute: float | int | None = None
    relative: float | None = None
    not_finite: int = 0
    bytes: int = 0
    linked: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """The differences between two checkpoints by blob, in order; ``same`` counts equal leaves."""

    records: tuple[Record, Record]
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    changed: Sequence[BlobChange] = field(default_factory=list)
    same: int = 0


def compare(a: Path, b: Path, fs: Fs = DEFAULT) -> CheckpointDiff:
    """Compare two checkpoints, from ``a`` to ``b``.

    Raises DamagedError, naming the file, if something is not what was written.
    """
    records = (read_record(fs, str(a)), read_record(fs, str(b)))
    several = any(len(record.nodes) > 1 for record in records)
    before, after = (
        _entries(path, record, several, fs) for path, record in zip((a, b), records, strict=True)
    )
    changed = []
    same = 0
    earlier = EarlierCheckpoints(b, records[1].id, fs)
    for name in (n for n in before if n in after):
        change = _change(name, (a, *before[name]), (b, *after[name]), fs)
        if change is not None:
            changed.append(_on_disk(change, earlier, *after[name]))
        elif not before[name][1].is_tree:
            same += 1
    changed += _reordered(before, after)
    return CheckpointDiff(records, _missing(after, before), _missing(before, after), changed, same)


Entries = Mapping[str, tuple[str, Entry]]


def _entries(path: Path, record: Record, several: bool, fs: Fs) -> Entries:
    """Return leaves and trees by name, each with its node."""
    return {
        f"{node}:{entry.path}" if several else entry.path: (node, entry)
        for node in record.nodes
        for entry in read_manifest(fs, str(path), record, node).entries
        if entry.path and entry.kind != "group"
    }


def _missing(here: Entries, there: Entries) -> list[str]:
    """Return the leaves and empty trees that only ``here`` has."""
    names = [name for name in here if name not in there]
    return [
        name
        for name in names
        if not here[name][1].is_tree or not any(n.startswith(f"{name}/") for n in here)
    ]


def _reordered(before: Entries, after: Entries) -> list[BlobChange]:
    """Return the trees with the same keys in another order."""
    found = []
    for name in before:
        if name in after and before[name][1].kind == after[name][1].kind == "dict":
            keys = [_keys(name, entries) for entries in (before, after)]
            if keys[0] != keys[1] and sorted(keys[0]) == sorted(keys[1]):
                found.append(BlobChange(name, f"keys {_text(keys[0])}", f"keys {_text(keys[1])}"))
    return found


def _keys(name: str, entries: Entries) -> list[str]:
    start = len(name) + 1
    below = (n[start:] for n in entries if n.startswith(f"{name}/"))
    return [key for key in below if "/" not in key]


def _text(keys: Sequence[str]) -> str:
    return ", ".join(keys[:8]) + (", …" if len(keys) > 8 else "")


Side = tuple[Path, str, Entry]


def _change(name: str, a: Side, b: Side, fs: Fs) -> BlobChange | None:
    """Return the difference of one blob, or None."""
    before, after = a[2], b[2]
    if before.is_tree or after.is_tree or "array" in (before.kind, after.kind):
        if _what(before) != _what(after):
            return BlobChange(name, _what(before), _what(after))
        if before.is_tree or _same_files(a, b):
            return None
        return _difference(name, _array(_read(a, fs)), _array(_read(b, fs)))
    x, y = _read(a, fs), _read(b, fs)
    if _what(before) != _what(after):
        return BlobChange(name, _what(before), _what(after), _value(x), _value(y))
    return _one_value(name, x, y)


def _on_disk(
    change: BlobChange, earlier: EarlierCheckpoints, node: str, entry: Entry
) -> BlobChange:
    """Return the change with the bytes on disk."""
    linked = earlier.linked_bytes(node, entry)
    if not linked:
        return change
    return replace(change, bytes=sum(file.size for file in entry.files), linked=linked)


def _what(entry: Entry) -> str:
    """Return kind, dtype and shape in words, and the array it is tied to."""
    if entry.kind == "array":
        tie = "" if entry.same_as is None else f", the same array as {entry.same_as}"
        return f"{dtype_text(entry.dtype)} {list(entry.shape or ())}{tie}"
    return entry.kind if entry.dtype is None else dtype_text(entry.dtype)


def _same_files(a: Side, b: Side) -> bool:
    """Return whether both have the same inodes: then there is nothing to compare."""
    folders = [path / node / entry.path for path, node, entry in (a, b)]
    names = [[file.name for file in entry.files] for _, _, entry in (a, b)]
    try:
        return names[0] == names[1] and all(
            os.path.samestat(os.lstat(folders[0] / name), os.lstat(folders[1] / name))
            for name in names[0]
        )
    except OSError:
        return False  # reading reports the error


def _read(side: Side, fs: Fs) -> Box:
    path, node, entry = side
    return read_leaves(fs, f"{path}/{node}", [entry])[entry.path]


def _array(box: Box) -> Array:
    array: Array = np.asarray(box.value)
    return array.reshape(-1)


def _value(box: Box) -> Any:
    """Return one value as JSON, or as a string."""
    value = box.value.item() if isinstance(box.value, np.generic) else box.value
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(box.value)


def _one_value(name: str, x: Box, y: Box) -> BlobChange | None:
    if x.kind == "int":
        if x.value == y.value:
            return None
        by, most = abs(x.value - y.value), max(abs(x.value), abs(y.value))
        return BlobChange(name, "", "", x.value, y.value, 1, 1, by, by / most)
    if x.kind in ("scalar", "float"):
        change = _difference(name, _array(x), _array(y))
        return change and replace(change, before=_value(x), after=_value(y))
    return None if x.value == y.value else BlobChange(name, before=x.value, after=y.value)


# Arrays of one dtype and shape, flat.


def _difference(name: str, a: Array, b: Array) -> BlobChange | None:
    """Return how many elements differ, and by how much; None if none does."""
    count = not_finite = 0
    absolute: float | int | None = None
    relative: float | None = None
    for start in range(0, a.size, _BLOCK):
        x, y = a[start : start + _BLOCK], b[start : start + _BLOCK]
        differ = _bits_differ(x, y)
        if not differ.any():
            continue
        count += int(np.count_nonzero(differ))
        by, ratio, odd = _distance(x[differ], y[differ])
        not_finite += odd
        absolute = max((n for n in (absolute, by) if n is not None), default=None)
        relative = max((n for n in (relative, ratio) if n is not None), default=None)
    if not count:
        return None
    return BlobChange(
        name,
        count=count,
        size=a.size,
        absolute=absolute,
        relative=relative,
        not_finite=not_finite,
    )


def _bits_differ(x: Array, y: Array) -> Array:
    """Return a mask of the elements that differ."""
    size = x.dtype.itemsize
    if size == 0:
        return np.zeros(x.shape, np.bool_)
    words = size if size in (1, 2, 4, 8) else 1
    differ: Array = x.view(f"u{words}") != y.view(f"u{words}")
    return differ if words == size else np.any(differ.reshape(x.size, size), axis=1)


def _distance(x: Array, y: Array) -> tuple[float | int | None, float | None, int]:
    """Return the largest absolute and relative difference, and the number of non-finite pairs."""
    if x.dtype.kind in "iu":
        high, low = np.maximum(x, y).astype("u8"), np.minimum(x, y).astype("u8")
        by = high - low  # modulo 2**64, and so right for negative numbers too
        most = np.maximum(*(np.abs(z.astype("f8")) for z in (x, y)))
        return int(by.max()), float((by / most).max()), 0
    wide = _wide(x.dtype)
    if wide is None:
        return None, None, 0
    with np.errstate(all="ignore"):
        x, y = x.astype(wide), y.astype(wide)
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = x[finite], y[finite]
        if not x.size:
            return None, None, int(finite.size)
        by, most = np.abs(x - y), np.maximum(np.abs(x), np.abs(y))
        ratio = np.divide(by, most, out=np.zeros(by.shape), where=most > 0)
        return float(by.max()), float(ratio.max()), int(finite.size - x.size)


def _wide(dtype: np.dtype[Any]) -> str | None:
    """Return the dtype in which differences are computed; None if there are none."""
    if dtype.kind == "f" or dtype.isbuiltin == 2:
        return "f8"
    return "c16" if dtype.kind == "c" else None
