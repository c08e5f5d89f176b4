"""Reading a slice of one array of a checkpoint: only the chunks that hold it, verified."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.integrity import read_manifest, read_record
from jobrun.checkpoint.leaf_reading import (
    LeafReading,
    bytes_of,
    fill,
    open_leaf,
    read_leaves,
    room_for,
)
from jobrun.checkpoint.reading import select
from jobrun.errors import NotFoundError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.values.boxes import Box

__all__ = ["read_slice"]

Array = npt.NDArray[Any]
Index = int | slice


def read_slice(
    checkpoint: str | os.PathLike[str],
    node: str,
    blob: str,
    index: Index | tuple[Index, ...],
    *,
    fs: Fs = DEFAULT,
) -> Array:
    """Return ``array[index]`` of one array (integers and slices), reading only the chunks needed.

    The array is read-only, and 0-d where numpy returns a scalar.  Raises NotFoundError if there is
    no such array or an index is out of range.
    """
    root = os.fspath(checkpoint)
    entries = read_manifest(fs, root, read_record(fs, root), node, [blob]).entries
    entry = select(entries, [blob], node)[blob][0]
    if entry.kind != "array":
        raise NotFoundError(f"blob {blob!r} is of kind {entry.kind!r}, not an array")
    assert entry.shape is not None
    items = _full_index(blob, index if isinstance(index, tuple) else (index,), entry.shape)
    reading = open_leaf(fs, f"{root}/{node}", entry)
    assert reading is not None
    if not reading.chunks:
        array = _whole(reading.box())[(*items, ...)]
    elif reading.layout.grid.axis >= len(entry.shape):  # elements larger than a chunk
        array = _whole(read_leaves(fs, f"{root}/{node}", [entry])[blob])[(*items, ...)]
    else:
        array = _read_window(fs, reading, items)
    array.setflags(write=False)
    return array


def _whole(box: Box) -> Array:
    array: Array = box.value
    return array


def _full_index(blob: str, items: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Index, ...]:
    """Return an index for each axis; raises NotFoundError if one is out of range."""
    if len(items) > len(shape):
        raise NotFoundError(f"{len(items)} indices, but {blob!r} has {len(shape)} dimensions")
    for axis, (item, size) in enumerate(zip(items, shape, strict=False)):
        if not isinstance(item, slice) and not -size <= item < size:
            raise NotFoundError(
                f"index {item} is out of range for {blob!r}, whose axis {axis} has length {size}"
            )
    return items + (slice(None),) * (len(shape) - len(items))


def _span(item: Index, size: int) -> tuple[range, Index]:
    """Return the rows that an index needs, and the index within these."""
    if not isinstance(item, slice):
        return range(item % size, item % size + 1), 0
    rows = range(size)[item]
    if not rows:
        return range(0), slice(0, 0)
    low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1]) + 1
    last = rows[-1] - low + (1 if rows.step > 0 else -1)
    return range(low, high), slice(rows[0] - low, last if last >= 0 else None, rows.step)


def _read_window(fs: Fs, reading: LeafReading, items: tuple[Index, ...]) -> Array:
    """Return the elements at ``items``, reading the chunks that hold them."""
    grid, layout, entry = reading.layout.grid, reading.layout, reading.entry
    assert entry.shape is not None
    axis = grid.axis
    ranges, local = zip(*map(_span, items[: axis + 1], entry.shape), strict=False)
    rest = entry.shape[axis + 1 :]
    window = room_for((*map(len, ranges), *rest), layout.memory, reading.folder, np.ndarray)
    files = {file.name: file for file in entry.files}
    rows, length = ranges[-1], grid.chunk[axis]
    for lead in itertools.product(*ranges[:-1]):
        place = tuple(i - r.start for i, r in zip(lead, ranges, strict=False))
        for number in range(rows.start // length, -(-rows.stop // length)):
            chunk, first = grid.at(lead, number), number * length
            low, high = max(rows.start, first), min(rows.stop, first + length)
            data = bytes_of(window[place][low - rows.start : high - rows.start])
            fill(fs, reading, files[chunk.key], chunk, data, (low - first) * grid.row)
    return _whole(layout.restored(window))[(*local, *items[axis + 1 :], ...)]
