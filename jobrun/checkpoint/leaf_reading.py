"""Reading leaves of a node's part: their metadata and chunks, verified, into new memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.chunk_grid import Chunk
from jobrun.checkpoint.integrity import check_sizes, read_blocks, read_meta, read_payload
from jobrun.checkpoint.manifest import META, Entry, File
from jobrun.checkpoint.zarr_metadata import Layout, filled_box
from jobrun.errors import DamagedError, NotFoundError
from jobrun.storage.fs import Fs
from jobrun.storage.threads import LARGE, THREADS, THREADS_FAR, run_calls
from jobrun.values.boxes import Box
from jobrun.values.buffers import empty_array

__all__ = [
    "LeafReading",
    "bytes_of",
    "fill",
    "located",
    "open_leaf",
    "prove_leaf",
    "read_leaves",
    "room_for",
    "versioned",
]

Array = npt.NDArray[Any]
T = TypeVar("T")

_SHOWN = 80

_SIZES_FIRST = 64 << 20
"""Bytes of a leaf from which on its files are checked before memory is allocated for them."""


def versioned(box: Box, entry: Entry) -> Box:
    """Return ``box`` with the version of its entry."""
    box.version = -1 if entry.version is None else entry.version
    return box


@dataclass(frozen=True, slots=True)
class LeafReading:
    """A leaf being read; its chunks fill ``array``, which ``with_room`` allocates."""

    entry: Entry
    folder: str
    layout: Layout
    chunks: Sequence[Chunk] = ()
    array: Array | None = None

    def with_room(self) -> LeafReading:
        """Return the same with an array to fill if there are chunks."""
        if not self.chunks:
            return self
        shape = self.entry.shape or ()
        return replace(self, array=room_for(shape, self.layout.memory, self.folder))

    def box(self) -> Box:
        """Return the leaf, once all chunks are read."""
        layout, array = self.layout, self.array
        box = layout.filled(layout.fill) if array is None else layout.restored(array)
        return versioned(box, self.entry)


def room_for(
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
        return versioned(filled_box(entry.kind, entry.dtype, entry.value), entry)
    except DamagedError as error:
        text = f"{entry.path!r} in the manifest: {error.message}"
        raise DamagedError(text, where=base, hint=error.hint) from error


def _read_files(fs: Fs, base: str, entries: Sequence[Entry]) -> dict[str, Box]:
    """Return the leaves among entries by path, read from their own files."""
    with ThreadPoolExecutor(THREADS_FAR if fs.far else THREADS) as pool:
        opening = [(fs.far, partial(open_leaf, fs, base, entry)) for entry in entries]
        opened = run_calls(pool, opening)
        readings = [reading.with_room() for reading in opened if reading is not None]
        calls = [
            (fs.far or chunk.payload >= LARGE, partial(_read_chunk, fs, reading, file, chunk))
            for reading in readings
            for file, chunk in zip(reading.entry.files[1:], reading.chunks, strict=True)
        ]
        run_calls(pool, calls)
    return {r.entry.path: located(r.folder, r.box) for r in readings}


def open_leaf(fs: Fs, base: str, entry: Entry) -> LeafReading | None:
    """Read and check the metadata of an entry; return None for a tree."""
    folder = f"{base}/{entry.path}" if entry.path else base
    meta = read_meta(fs, f"{folder}/{META}", entry.files[0])
    if entry.is_tree:
        return None
    assert entry.shape is not None
    layout = located(
        f"{folder}/{META}", lambda: Layout.parse(meta, entry.kind, entry.dtype, entry.shape or ())
    )
    files = entry.files[1:]
    if not files and (layout.grid.count == 0 or layout.grid.shape == ()):
        return LeafReading(entry, folder, layout)
    # Counted first: a forged shape may have more chunks than could ever be enumerated.
    if len(files) != layout.grid.count or layout.data_type == "string":
        raise DamagedError("the manifest does not list the chunks of its grid", where=folder)
    chunks = list(layout.grid)
    lengths = layout.codec is None and [f.length for f in files] != [c.payload for c in chunks]
    if sum(f.length for f in files) >= _SIZES_FIRST:
        check_sizes(fs, {f"{folder}/{file.name}": file.size for file in files})
    if lengths or [f.name for f in files] != [c.key for c in chunks]:
        raise DamagedError("the manifest does not list the chunks of its grid", where=folder)
    return LeafReading(entry, folder, layout, chunks)


def prove_leaf(fs: Fs, base: str, entry: Entry) -> None:
    """Raise DamagedError if a leaf whose bytes are verified could not be loaded.

    Its metadata must match its manifest, its chunks its grid, and its bytes must be a value: so
    what is reported as whole can be loaded.  Chunks that are not compressed are not read again.
    """
    reading = open_leaf(fs, base, entry)
    if reading is None:
        return
    if not reading.chunks:
        located(f"{reading.folder}/{META}", reading.box)
        _check_value(reading)
    elif entry.kind != "array":
        read_leaves(fs, base, [entry])
    elif reading.layout.codec is not None:
        scratch = room_for((reading.chunks[0].payload,), np.dtype(np.uint8), reading.folder)
        for file, chunk in zip(entry.files[1:], reading.chunks, strict=True):
            fill(fs, reading, file, chunk, scratch.data)


def _check_value(reading: LeafReading) -> None:
    """Raise DamagedError unless the values in the manifest and in ``zarr.json`` are the same."""
    value, fill = reading.entry.value, reading.layout.fill
    if value is not None and json.dumps(value) != json.dumps(fill):
        raise DamagedError(
            f"it holds the value {str(fill)[:_SHOWN]}, but the manifest {str(value)[:_SHOWN]}",
            where=f"{reading.folder}/{META}",
        )


def _read_chunk(fs: Fs, reading: LeafReading, file: File, chunk: Chunk) -> None:
    assert reading.array is not None
    data = bytes_of(reading.array)[chunk.start : chunk.start + chunk.length]
    fill(fs, reading, file, chunk, data)


def fill(
    fs: Fs, reading: LeafReading, file: File, chunk: Chunk, data: memoryview, start: int = 0
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
    located(path, lambda: codec.decompress(packed, into))
    if part:
        data[:] = into[start : start + len(data)]


def bytes_of(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def located(where: str, call: Callable[[], T]) -> T:
    """Return ``call()``; add the place to a DamagedError that has none."""
    try:
        return call()
    except DamagedError as error:
        if error.where is not None:
            raise
        raise DamagedError(error.message, where=where, hint=error.hint) from error
