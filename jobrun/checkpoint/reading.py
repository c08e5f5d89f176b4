"""Reading a node's part of a checkpoint: all of it, blobs by name, or a slice of one array.

Every byte that is read is verified against the manifest, and only ``_SUCCESS``, the manifest and
the files of the requested blobs are read.  Values without chunks stand in the manifest itself.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.chunk_grid import Chunk
from jobrun.checkpoint.integrity import (
    check_root,
    check_sizes,
    read_blocks,
    read_manifest,
    read_meta,
    read_payload,
    read_record,
)
from jobrun.checkpoint.manifest import META, Entry, File
from jobrun.checkpoint.record import Record
from jobrun.checkpoint.zarr_metadata import Layout, filled_box
from jobrun.core.blob_paths import trees_of
from jobrun.core.gc_tuning import paused
from jobrun.core.suggestions import did_you_mean
from jobrun.core.tree_keys import Key, decode_key
from jobrun.errors import DamagedError, NotFoundError
from jobrun.storage.fs import DEFAULT, Fs
from jobrun.storage.threads import LARGE, THREADS, THREADS_FAR, run_calls
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.buffers import empty_array

__all__ = ["prove_leaf", "read_leaves", "read_part", "read_slice", "read_trees"]

Array = npt.NDArray[Any]
T = TypeVar("T")

_SHOWN = 80
_MANY = 1000
"""Entries from which on garbage collection is paused while their values are made."""

_SIZES_FIRST = 64 << 20
"""Bytes of a leaf from which on its files are checked before memory is allocated for them."""


def read_part(
    checkpoint: str | os.PathLike[str],
    node: str,
    names: Iterable[str] | None = None,
    *,
    fs: Fs = DEFAULT,
    record: Record | None = None,
) -> dict[str, Value]:
    """Return a node's blobs as they were passed to ``write_part``, or only those of some names.

    A name is that of a blob, of a leaf or tree within one, or of a level of names (then a tree).
    ``record`` is that of the checkpoint, if it was read before.  Every byte that is read is
    verified; files of other blobs are not read.  Arrays of one tree that are tied (``same_as``) are
    one box, read once, and trees within it one tree; what is read alone has its own files.  Raises
    NotFoundError for missing names, DamagedError for data that is not what was written.
    """
    root = os.fspath(checkpoint)
    record = record or read_record(fs, root)
    if names is None:
        check_root(fs, root, record)
    names = None if names is None else list(names)
    entries = read_manifest(fs, root, record, node, names).entries
    wanted = {"": entries} if names is None else _select(entries, names, node)
    needed = {e.path: e for selected in wanted.values() for e in selected}
    with paused(len(needed) > _MANY):
        return _read_wanted(fs, f"{root}/{node}", wanted, needed)


def _read_wanted(
    fs: Fs, base: str, wanted: Mapping[str, Sequence[Entry]], needed: Mapping[str, Entry]
) -> dict[str, Value]:
    """Return the blobs of names from their entries; ``needed`` are these by path."""
    tied = {
        path: entry.same_as
        for path, entry in needed.items()
        if entry.same_as in needed and not entry.is_tree
    }
    boxes = read_leaves(fs, base, [e for p, e in needed.items() if p not in tied])
    for path, first in tied.items():
        boxes[path] = _tied(f"{base}/{path}", needed[path], boxes.get(str(first)))
    blobs: dict[str, Value] = {}
    for name, selected in wanted.items():
        ties = {entry.path: entry.same_as for entry in selected if entry.is_tree and entry.same_as}
        blobs |= _assemble(selected, boxes, name, ties)
    return blobs


def read_trees(
    checkpoint: str | os.PathLike[str],
    node: str,
    leaves: Iterable[str],
    record: Record,
    fs: Fs = DEFAULT,
) -> dict[str, Value]:
    """Return the blobs that hold the named leaves, without their other leaves.

    Empty dicts and lists are kept in trees of which all leaves are named.  Every byte that is read
    is verified, and no other leaf is read.
    """
    root = os.fspath(checkpoint)
    wanted = dict.fromkeys(leaves)
    above = {tree for path in wanted for tree in trees_of(path)}
    entries = read_manifest(fs, root, record, node).entries
    partial = {
        tree for e in entries if not e.is_tree and e.path not in wanted for tree in trees_of(e.path)
    }
    whole = above - partial
    selected = []
    for entry in entries:
        if entry.is_tree and entry.path not in partial and entry.path.rpartition("/")[0] in whole:
            whole.add(entry.path)
        if entry.path in wanted or entry.path in above or entry.path in whole:
            selected.append(entry)
    boxes = read_leaves(fs, f"{root}/{node}", [e for e in selected if e.path in wanted])
    return _assemble(selected, boxes, "")


def _tied(where: str, entry: Entry, box: Box | None) -> Box:
    """Return the box of an array that occurs at another path too; raises DamagedError."""
    if (
        box is None
        or (box.kind, entry.kind) != ("array", "array")
        or box.value.shape != entry.shape
    ):
        text = f"expected the same array as {entry.same_as!r}, which has another kind or shape"
        raise DamagedError(text, where=where)
    box.tied = True
    return box


def _select(
    entries: Sequence[Entry], names: Iterable[str], node: str
) -> dict[str, Sequence[Entry]]:
    """Return the entries of each name: itself and, right after it, what it holds."""
    place = {entry.path: i for i, entry in enumerate(entries) if entry.path}
    selected: dict[str, Sequence[Entry]] = {}
    for name in names:
        if name not in place:
            raise NotFoundError(
                f"there is no blob {name!r} of node {node!r}", hint=did_you_mean(name, list(place))
            )
        first = last = place[name]
        while last < len(entries) and (last == first or entries[last].path.startswith(f"{name}/")):
            last += 1
        selected[name] = entries[first:last]
    return selected


def _assemble(
    entries: Sequence[Entry],
    boxes: Mapping[str, Box],
    root: str,
    ties: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Value]:
    """Return blobs made of leaves; a ``group`` is one only if it is the requested ``root``.

    ``ties`` are the trees that are one with an earlier one, if that is among the entries.
    """
    blobs: dict[str, Value] = {}
    trees: dict[str, Tree] = {}
    keys: dict[str, dict[str, Key]] = {}
    for entry in entries:
        above, _, name = entry.path.rpartition("/")
        requested = bool(root) and entry.path == root
        if entry.kind == "group" and above not in trees and not requested:
            continue
        value: Value
        if entry.is_tree:
            value = trees[entry.path] = Tree("list" if entry.kind == "list" else "dict", {})
        else:
            value = boxes[entry.path]
        value.note = entry.note
        if above in trees and not requested:
            # A tree that is tied is complete: all that it holds came before.
            trees[above].items[name] = trees.get(ties.get(entry.path, ""), value)
            if entry.key is not None:
                keys.setdefault(above, {})[name] = decode_key(json.loads(entry.key))
        else:
            blobs[entry.path] = value
    for path, own in keys.items():
        tree = trees[path]
        tree.keys = tuple(own.get(name, name) for name in tree.items)
        if tree.kind != "dict" or len({*tree.keys}) < len(tree.items):
            raise DamagedError(f"the keys of {path!r} in the manifest are not those of a dict")
    for path, first in ties.items():
        _tie_trees(path, trees[path], first, trees.get(first))
    return blobs


def _tie_trees(path: str, tree: Tree, first: str, other: Tree | None) -> None:
    """Mark a tree as tied to the one at ``path``; raises DamagedError if it is another one."""
    if other is None:
        return
    own, others = ((t.kind, t.note, t.keys, [*t.items]) for t in (tree, other))
    if own != others or f"{path}/".startswith(f"{first}/"):
        raise DamagedError(f"{path!r} is not the same tree as {first!r}, as the manifest has it")
    other.tied = True


def _versioned(box: Box, entry: Entry) -> Box:
    """Return ``box`` with the version of its entry."""
    box.version = -1 if entry.version is None else entry.version
    return box


@dataclass(frozen=True, slots=True)
class _Reading:
    """A leaf being read; its chunks fill ``array``, which ``with_room`` allocates."""

    entry: Entry
    folder: str
    layout: Layout
    chunks: Sequence[Chunk] = ()
    array: Array | None = None

    def with_room(self) -> _Reading:
        """Return the same with an array to fill if there are chunks."""
        if not self.chunks:
            return self
        shape = self.entry.shape or ()
        return replace(self, array=_room(shape, self.layout.memory, self.folder))

    def box(self) -> Box:
        """Return the leaf, once all chunks are read."""
        layout, array = self.layout, self.array
        box = layout.filled(layout.fill) if array is None else layout.restored(array)
        return _versioned(box, self.entry)


def _room(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    folder: str,
    make: Callable[[tuple[int, ...], np.dtype[Any]], Array] = empty_array,
) -> Array:
    """Return a new array; raises NotFoundError if it does not fit into memory."""
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        raise NotFoundError(
            f"an array of shape {shape} and dtype {dtype} does not fit into memory", where=folder
        ) from error


def read_leaves(fs: Fs, base: str, entries: Sequence[Entry]) -> dict[str, Box]:
    """Return the leaves among entries by path, verified; ``base`` is the folder of the node.

    Those whose values stand in the manifest, which was verified, need no file.
    """
    boxes = {e.path: _box_of_value(base, e) for e in entries if e.value is not None}
    if len(boxes) < len(entries):
        boxes |= _read_files(fs, base, [e for e in entries if e.value is None])
    return boxes


def _box_of_value(base: str, entry: Entry) -> Box:
    try:
        return _versioned(filled_box(entry.kind, entry.dtype, entry.value), entry)
    except DamagedError as error:
        text = f"{entry.path!r} in the manifest: {error.message}"
        raise DamagedError(text, where=base, hint=error.hint) from error


def _read_files(fs: Fs, base: str, entries: Sequence[Entry]) -> dict[str, Box]:
    """Return the leaves among entries by path, read from their own files."""
    with ThreadPoolExecutor(THREADS_FAR if fs.far else THREADS) as pool:
        opening = [(fs.far, partial(_open_leaf, fs, base, entry)) for entry in entries]
        opened = run_calls(pool, opening)
        readings = [reading.with_room() for reading in opened if reading is not None]
        calls = [
            (fs.far or chunk.payload >= LARGE, partial(_read_chunk, fs, reading, file, chunk))
            for reading in readings
            for file, chunk in zip(reading.entry.files[1:], reading.chunks, strict=True)
        ]
        run_calls(pool, calls)
    return {r.entry.path: _located(r.folder, r.box) for r in readings}


def _open_leaf(fs: Fs, base: str, entry: Entry) -> _Reading | None:
    """Read and check the metadata of an entry; return None for a tree."""
    folder = f"{base}/{entry.path}" if entry.path else base
    meta = read_meta(fs, f"{folder}/{META}", entry.files[0])
    if entry.is_tree:
        return None
    assert entry.shape is not None
    layout = _located(
        f"{folder}/{META}", lambda: Layout.parse(meta, entry.kind, entry.dtype, entry.shape or ())
    )
    files = entry.files[1:]
    if not files and (layout.grid.count == 0 or layout.grid.shape == ()):
        return _Reading(entry, folder, layout)
    # Counted first: a forged shape may have more chunks than could ever be enumerated.
    if len(files) != layout.grid.count or layout.data_type == "string":
        raise DamagedError("the manifest does not list the chunks of its grid", where=folder)
    chunks = list(layout.grid)
    lengths = layout.codec is None and [f.length for f in files] != [c.payload for c in chunks]
    if sum(f.length for f in files) >= _SIZES_FIRST:
        check_sizes(fs, {f"{folder}/{file.name}": file.size for file in files})
    if lengths or [f.name for f in files] != [c.key for c in chunks]:
        raise DamagedError("the manifest does not list the chunks of its grid", where=folder)
    return _Reading(entry, folder, layout, chunks)


def prove_leaf(fs: Fs, base: str, entry: Entry) -> None:
    """Raise DamagedError if a leaf whose bytes are verified could not be loaded.

    Its metadata must match its manifest, its chunks its grid, and its bytes must be a value: so
    what is reported as whole can be loaded.  Chunks that are not compressed are not read again.
    """
    reading = _open_leaf(fs, base, entry)
    if reading is None:
        return
    if not reading.chunks:
        _located(f"{reading.folder}/{META}", reading.box)
        _check_value(reading)
    elif entry.kind != "array":
        read_leaves(fs, base, [entry])
    elif reading.layout.codec is not None:
        scratch = _room((reading.chunks[0].payload,), np.dtype(np.uint8), reading.folder)
        for file, chunk in zip(entry.files[1:], reading.chunks, strict=True):
            _fill(fs, reading, file, chunk, scratch.data)


def _check_value(reading: _Reading) -> None:
    """Raise DamagedError unless the values in the manifest and in ``zarr.json`` are the same."""
    value, fill = reading.entry.value, reading.layout.fill
    if value is not None and json.dumps(value) != json.dumps(fill):
        raise DamagedError(
            f"it holds the value {str(fill)[:_SHOWN]}, but the manifest {str(value)[:_SHOWN]}",
            where=f"{reading.folder}/{META}",
        )


def _read_chunk(fs: Fs, reading: _Reading, file: File, chunk: Chunk) -> None:
    assert reading.array is not None
    data = _bytes_of(reading.array)[chunk.start : chunk.start + chunk.length]
    _fill(fs, reading, file, chunk, data)


def _fill(
    fs: Fs, reading: _Reading, file: File, chunk: Chunk, data: memoryview, start: int = 0
) -> None:
    """Read and verify a chunk; its bytes from ``start`` fill ``data``."""
    path, codec = f"{reading.folder}/{file.name}", reading.layout.codec
    if codec is None:
        read = read_blocks if file.blocks and len(data) < file.length else read_payload
        read(fs, path, file, data, start)
        return
    packed = np.empty(file.length, np.uint8).data
    read_payload(fs, path, file, packed)
    part = len(data) < chunk.payload
    into = np.empty(chunk.payload, np.uint8).data if part else data
    _located(path, lambda: codec.decompress(packed, into))
    if part:
        data[:] = into[start : start + len(data)]


def _bytes_of(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _located(where: str, call: Callable[[], T]) -> T:
    """Return ``call()``; add the place to a DamagedError that has none."""
    try:
        return call()
    except DamagedError as error:
        if error.where is not None:
            raise
        raise DamagedError(error.message, where=where, hint=error.hint) from error


# Slices.

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
    entry = _select(entries, [blob], node)[blob][0]
    if entry.kind != "array":
        raise NotFoundError(f"blob {blob!r} is of kind {entry.kind!r}, not an array")
    assert entry.shape is not None
    items = _full_index(blob, index if isinstance(index, tuple) else (index,), entry.shape)
    reading = _open_leaf(fs, f"{root}/{node}", entry)
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


def _read_window(fs: Fs, reading: _Reading, items: tuple[Index, ...]) -> Array:
    """Return the elements at ``items``, reading the chunks that hold them."""
    grid, layout, entry = reading.layout.grid, reading.layout, reading.entry
    assert entry.shape is not None
    axis = grid.axis
    ranges, local = zip(*map(_span, items[: axis + 1], entry.shape), strict=False)
    rest = entry.shape[axis + 1 :]
    window = _room((*map(len, ranges), *rest), layout.memory, reading.folder, np.ndarray)
    files = {file.name: file for file in entry.files}
    rows, length = ranges[-1], grid.chunk[axis]
    for lead in itertools.product(*ranges[:-1]):
        place = tuple(i - r.start for i, r in zip(lead, ranges, strict=False))
        for number in range(rows.start // length, -(-rows.stop // length)):
            chunk, first = grid.at(lead, number), number * length
            low, high = max(rows.start, first), min(rows.stop, first + length)
            data = _bytes_of(window[place][low - rows.start : high - rows.start])
            _fill(fs, reading, files[chunk.key], chunk, data, (low - first) * grid.row)
    return _whole(layout.restored(window))[(*local, *items[axis + 1 :], ...)]
