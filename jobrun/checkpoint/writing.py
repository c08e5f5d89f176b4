"""The files of a part: each entry's directory, metadata and chunks, written, or linked.

Chunks are handed to the threads as soon as their entry is reached, so that the disk works while the
directories and links of the entries after it are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import crc32c
import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.compression import choose
from jobrun.checkpoint.dtypes import storage_of, swapped
from jobrun.checkpoint.fs import Buffer, Fs, FsError
from jobrun.checkpoint.grid import Chunk
from jobrun.checkpoint.layout import Stored, store
from jobrun.checkpoint.links import Sources
from jobrun.checkpoint.manifest import CHUNK_TAIL, META, Entry, File, group_meta
from jobrun.checkpoint.pool import LARGE
from jobrun.policy import Compress
from jobrun.values import Box

__all__ = ["Item", "Writer"]

Array = npt.NDArray[Any]
Item = tuple[str, str, Box | None]
"""Path, kind, and value (None: a tree) of an entry."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A file of a part, and whether it is shared with an earlier checkpoint."""

    file: File
    linked: bool = False


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An entry to be written: its directory, its metadata, and what its chunks hold.

    ``files`` are those begun, ``zarr.json`` first; what a thread does is in the future.
    """

    path: str
    folder: str
    kind: str
    meta: bytes
    stored: Stored | None = None
    version: int | None = None
    chunks: Sequence[Chunk] = ()
    files: list[_Written | Future[_Written]] = field(default_factory=list)

    def entry(self, files: Sequence[File]) -> Entry:
        """What the manifest says of it."""
        if self.stored is None:
            return Entry(self.path, self.kind, tuple(files))
        stored = self.stored
        return Entry(self.path, self.kind, tuple(files), stored.dtype, stored.shape, self.version)


class Writer:
    """Writes, or links, the files of a part; ``linked`` counts the bytes of the linked ones.

    ``sync``: each file is durable once it is written (its name is not).
    """

    def __init__(
        self,
        fs: Fs,
        root: str,
        node: str,
        id: int,
        sources: Sources,
        compress: Sequence[Compress],
        *,
        sync: bool,
    ) -> None:
        self._fs = fs
        self._node = node
        self._base = f"{root}/{node}"
        self._id = id
        self._sources = sources
        self._compress = compress
        self._sync = sync
        self._begun: list[Entry | _Leaf] = []
        self.linked = 0

    def folder(self, path: str) -> str:
        """The directory of an entry."""
        return f"{self._base}/{path}" if path else self._base

    def begin(self, pool: ThreadPoolExecutor, items: Sequence[Item]) -> None:
        """Begin to write all that is to be written."""
        self._begun = [self._begin(pool, *item) for item in items]

    def end(self) -> list[Entry]:
        """The entries in order, once all is written."""
        return [self._ended(entry) for entry in self._begun]

    def _begin(
        self, pool: ThreadPoolExecutor, path: str, kind: str, box: Box | None
    ) -> Entry | _Leaf:
        """Link an entry, or begin to write it."""
        self._fs.mkdir(self.folder(path))
        entry = self._link(path, kind, box)
        if entry is not None:
            return entry
        leaf = self._leaf(path, kind, box)
        self._start(pool, leaf, self._sync, partial(self._write_meta, leaf))
        for chunk in leaf.chunks:
            work = chunk.payload >= LARGE or (leaf.stored is not None and bool(leaf.stored.codec))
            self._start(pool, leaf, self._sync or work, partial(self._write_chunk, leaf, chunk))
        return leaf

    def _start(
        self, pool: ThreadPoolExecutor, leaf: _Leaf, pooled: bool, call: Callable[[], _Written]
    ) -> None:
        """Write a file, on a thread if that is worth it."""
        leaf.files.append(pool.submit(call) if pooled else call())

    def _ended(self, begun: Entry | _Leaf) -> Entry:
        """The entry, once all its files are written."""
        if isinstance(begun, Entry):
            return begun
        files = [f.result() if isinstance(f, Future) else f for f in begun.files]
        self.linked += sum(written.file.size for written in files if written.linked)
        return begun.entry([written.file for written in files])

    # Links.

    def _link(self, path: str, kind: str, box: Box | None) -> Entry | None:
        """Share the files of a leaf that has not changed; None where it has, or they cannot be."""
        found = self._sources.unchanged(path, kind, box.version) if box is not None else None
        if found is None:
            return None
        source, entry = found
        made = [f for f in entry.files if self._try_link(f"{source}/{path}", path, f)]
        if len(made) == len(entry.files):
            self.linked += sum(f.size for f in made)
            return entry
        for file in made:
            self._fs.unlink(f"{self.folder(path)}/{file.name}")
        return None

    def _try_link(self, source: str, path: str, file: File) -> bool:
        """Link one file, unless it cannot be, or is visibly not what its manifest says.

        Whatever the system's reason (another file system, too many links, no room in the directory,
        a disk that fails), the file is written then: a disk that cannot do that either says so.
        """
        target = f"{self.folder(path)}/{file.name}"
        try:
            self._fs.link(f"{source}/{file.name}", target)
        except FsError:
            return False
        if self._fs.is_file(target, file.size):
            return True
        self._fs.unlink(target)
        return False

    # Files.

    def _leaf(self, path: str, kind: str, box: Box | None) -> _Leaf:
        folder = self.folder(path)
        if box is None:
            return _Leaf(path, folder, kind, group_meta({"kind": kind}))
        stored = store(box, choose(self._compress, self._node, path))
        version = self._id if box.version < 0 else box.version
        chunks = tuple(stored.grid) if stored.array is not None else ()
        return _Leaf(path, folder, kind, stored.meta, stored, version, chunks)

    def _write_meta(self, leaf: _Leaf) -> _Written:
        file = File(META, len(leaf.meta), crc32c.crc32c(leaf.meta))
        source = None
        if self._sources.any:
            chunks = [File(chunk.key, chunk.payload, 0) for chunk in leaf.chunks]
            source = self._sources.same_meta(leaf.entry([file, *chunks]))
        if source is not None and self._try_link(f"{source}/{leaf.path}", leaf.path, file):
            return _Written(file, linked=True)
        self._fs.write(f"{leaf.folder}/{META}", [leaf.meta], sync=self._sync)
        return _Written(file)

    def _write_chunk(self, leaf: _Leaf, chunk: Chunk) -> _Written:
        assert leaf.stored is not None
        assert leaf.stored.array is not None
        payload: list[Buffer] = [_bytes_of(leaf.stored.array, chunk), bytes(chunk.padding)]
        if leaf.stored.codec is not None:
            whole = b"".join(payload) if chunk.padding else payload[0]
            payload = [leaf.stored.codec.compress(whole)]
        crc = 0
        for data in payload:
            crc = crc32c.crc32c(data, crc)
        tail = crc.to_bytes(CHUNK_TAIL, "little")
        self._fs.write(f"{leaf.folder}/{chunk.key}", [*payload, tail], sync=self._sync)
        return _Written(File(chunk.key, sum(map(len, payload)), crc))


def _bytes_of(array: Array, chunk: Chunk) -> memoryview:
    """The bytes of a chunk as they go to disk: a view, copied only to swap them."""
    memory = storage_of(array.dtype).memory
    first, last = chunk.start, chunk.start + chunk.length
    flat = array.reshape(-1)
    if memory != array.dtype:
        size = array.dtype.itemsize
        flat = swapped(flat[first // size : last // size], memory)
        first, last = 0, chunk.length
    return flat.view(np.uint8).data[first:last]
