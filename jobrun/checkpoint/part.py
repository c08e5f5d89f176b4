"""One node's part of a checkpoint: blobs to files and a manifest.  ``reading.py`` is the way back.

Writing makes everything durable before it returns: what is left for the publisher is ``_SUCCESS``
and the rename.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import crc32c
import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.compression import choose
from jobrun.checkpoint.dtypes import storage_of, swapped
from jobrun.checkpoint.fs import DEFAULT, Buffer, Fs, FsError
from jobrun.checkpoint.grid import Chunk
from jobrun.checkpoint.layout import Stored, store
from jobrun.checkpoint.links import CANNOT_LINK, Sources, remember
from jobrun.checkpoint.manifest import (
    CHUNK_TAIL,
    META,
    Entry,
    File,
    Manifest,
    encode_manifest,
    group_meta,
    manifest_name,
)
from jobrun.checkpoint.record import SUCCESS
from jobrun.errors import ValueRefusedError
from jobrun.names import check_name
from jobrun.policy import Compress
from jobrun.storable import check_storable
from jobrun.values import Box, Tree, Value, leaves

__all__ = [
    "LARGE",
    "THREADS",
    "PartSummary",
    "check_part",
    "mark_saved",
    "run_calls",
    "write_part",
]

Array = npt.NDArray[Any]
T = TypeVar("T")
Blobs = Mapping[str, Value]

THREADS = 4
"""Writers and readers of files; they wait for the disk, outside of the interpreter's lock.

Measured on two cores, 64 x 8 MiB with fsync: one thread 1.58 s, two 0.92, four 0.86; 200 x 4 KiB:
216, 155, 130 ms.
"""

SYNC_EACH = 64
"""With more files than this, one ``syncfs`` instead of an ``fsync`` of each file and directory.

Measured here, 4 KiB blobs of two files each, fsync by 4 threads : syncfs: 8 blobs 9.6 : 6.9 ms,
200 blobs 130 : 62 ms, 2,000 blobs 630 : 190 ms; 64 blobs of 8 MiB 0.86 : 0.94 s.  For a few files
fsync is the better neighbour: syncfs also waits for other programs' unwritten data.
"""

LARGE = 1 << 20
"""From this size on a file is worth handing to another thread."""


@dataclass(frozen=True, slots=True)
class PartSummary:
    """What was written: ``digest`` is the manifest's crc32c, for ``_SUCCESS``.

    ``bytes`` and ``files`` count all files of the part, ``linked`` the bytes of those that are
    shared with an earlier checkpoint.
    """

    node: str
    digest: str
    bytes: int
    files: int
    seconds: float
    linked: int = 0


# What may be written.


def check_part(node: str, blobs: Blobs) -> None:
    """Raise ValueRefusedError if a name or a value cannot be in a checkpoint."""
    for _ in _flatten(node, blobs):
        pass
    for name, value in blobs.items():
        check_storable(value, name)


def mark_saved(blobs: Blobs, id: int) -> None:
    """Give what had no version the id of the checkpoint that holds it, now that it is durable."""
    for value in blobs.values():
        for _, box in leaves(value):
            if box.version < 0:
                box.version = id


@dataclass(slots=True)
class _Level:
    """A level of names that only the paths of blobs make."""

    items: dict[str, _Level | Value] = field(default_factory=dict)


Item = tuple[str, str, Box | None]


def _flatten(node: str, blobs: Blobs) -> Iterator[Item]:
    """Path, kind and leaf of all there is, each tree before what it holds."""
    if check_name(node) or "/" in node or node == SUCCESS or node.startswith("manifest."):
        raise ValueRefusedError(f"{node!r} cannot name a node")
    top = _Level()
    for path, value in blobs.items():
        wrong = check_name(path)
        if wrong:
            raise ValueRefusedError(wrong)
        _place(top, path, value)
    return _walk("", top)


def _place(top: _Level, path: str, value: Value) -> None:
    *parents, name = path.split("/")
    level = top
    for depth, parent in enumerate(parents):
        below = level.items.setdefault(parent, _Level())
        if not isinstance(below, _Level):
            above = "/".join(parents[: depth + 1])
            raise ValueRefusedError(f"blob {path!r} lies under the blob {above!r}")
        level = below
    if name in level.items:
        raise ValueRefusedError(f"there are blobs under {path!r}, which is a blob itself")
    level.items[name] = value


def _walk(path: str, item: _Level | Value) -> Iterator[Item]:
    if isinstance(item, Box):
        yield path, item.kind, item
        return
    yield path, item.kind if isinstance(item, Tree) else "group", None
    folded: dict[str, str] = {}
    for name, below in item.items.items():
        inner = f"{path}/{name}" if path else name
        wrong = check_name(name)
        if wrong or "/" in name:
            raise ValueRefusedError(wrong or f"a key of {path!r} holds a slash: {name!r}")
        twin = folded.setdefault(inner.casefold(), inner)
        if twin != inner:
            raise ValueRefusedError(
                f"blobs {inner!r} and {twin!r} differ only in case",
                hint="some file systems cannot tell them apart; rename one",
            )
        yield from _walk(inner, below)


# Writing.


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An entry to be written: its directory, its metadata, and what its chunks hold."""

    path: str
    folder: str
    kind: str
    meta: bytes
    stored: Stored | None = None
    version: int | None = None

    def chunks(self) -> Iterable[Chunk]:
        """The chunks to be written."""
        return self.stored.grid if self.stored and self.stored.array is not None else ()

    def entry(self, files: Sequence[File]) -> Entry:
        """What the manifest says of it."""
        if self.stored is None:
            return Entry(self.path, self.kind, tuple(files))
        stored = self.stored
        return Entry(self.path, self.kind, tuple(files), stored.dtype, stored.shape, self.version)


@dataclass(frozen=True, slots=True)
class _Written:
    """A file of a part, and whether it is shared with an earlier checkpoint."""

    file: File
    linked: bool = False


def write_part(
    directory: str | os.PathLike[str],
    node: str,
    blobs: Blobs,
    *,
    id: int,
    share_with: Sequence[str | os.PathLike[str]] = (),
    compress: Sequence[Compress] = (),
    fs: Fs = DEFAULT,
) -> PartSummary:
    """Write a node's blobs and their manifest into a checkpoint's (partial) directory, durably.

    ``blobs`` maps a path (``"model/w1"``) to a value; ``id`` is the checkpoint's, which becomes the
    version of boxes that have none.  The boxes are not changed: see ``mark_saved``.  What has not
    changed is hard-linked from the checkpoints ``share_with``, the preferred one first; of what is
    written, that which ``compress`` names is compressed.
    Raises ValueRefusedError before anything is written, FsError when an operation fails.
    """
    start = time.perf_counter()
    root = os.fspath(directory)
    check_part(node, blobs)
    sources = Sources(fs, share_with, node)
    items = list(_flatten(node, blobs))
    whole = fs.sync_all(root) if len(items) > SYNC_EACH // 2 else None
    with whole or nullcontext(), ThreadPoolExecutor(THREADS) as pool:
        writer = _Writer(fs, root, node, id, sources, compress, sync=whole is None)
        entries = writer.write(pool, items)
        data = encode_manifest(Manifest(id, node, entries))
        fs.write(f"{root}/{manifest_name(node)}", [data], sync=whole is None)
        if whole is not None:
            whole()
        else:
            folders = [root, *(writer.folder(entry.path) for entry in entries)]
            run_calls(pool, [(True, partial(fs.sync_dir, folder)) for folder in folders])
    digest = f"{crc32c.crc32c(data):08x}"
    remember(node, digest, entries)
    return PartSummary(
        node,
        digest,
        len(data) + sum(file.size for entry in entries for file in entry.files),
        1 + sum(len(entry.files) for entry in entries),
        time.perf_counter() - start,
        writer.linked,
    )


class _Writer:
    """Writes, or links, the files of a part; ``linked`` counts the bytes of the linked ones."""

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
        self.linked = 0

    def folder(self, path: str) -> str:
        """The directory of an entry."""
        return f"{self._base}/{path}" if path else self._base

    def write(self, pool: ThreadPoolExecutor, items: Sequence[Item]) -> list[Entry]:
        """Write all that is to be written; the entries in order."""
        entries: dict[str, Entry] = {}
        leaves: list[_Leaf] = []
        for path, kind, box in items:
            self._fs.mkdir(self.folder(path))
            entry = self._link(path, kind, box)
            if entry is None:
                leaves.append(self._leaf(path, kind, box))
            else:
                entries[path] = entry
        files = self._write_files(pool, leaves)
        entries |= {leaf.path: leaf.entry(files[leaf.path]) for leaf in leaves}
        return [entries[path] for path, _, _ in items]

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
        """Link one file, unless it cannot be, or is visibly not what its manifest says."""
        target = f"{self.folder(path)}/{file.name}"
        try:
            self._fs.link(f"{source}/{file.name}", target)
        except FsError as error:
            if error.errno not in CANNOT_LINK:
                raise
            return False
        if self._fs.is_file(target, file.size):
            return True
        self._fs.unlink(target)
        return False

    def _leaf(self, path: str, kind: str, box: Box | None) -> _Leaf:
        folder = self.folder(path)
        if box is None:
            return _Leaf(path, folder, kind, group_meta({"kind": kind}))
        stored = store(box, choose(self._compress, self._node, path))
        version = self._id if box.version < 0 else box.version
        return _Leaf(path, folder, kind, stored.meta, stored, version)

    def _write_files(
        self, pool: ThreadPoolExecutor, leaves: Sequence[_Leaf]
    ) -> dict[str, list[File]]:
        """Write metadata (None) and chunks; the files of each entry by its path."""
        jobs = [(leaf, chunk) for leaf in leaves for chunk in (None, *leaf.chunks())]
        calls = [
            (self._sync or _is_work(leaf, chunk), partial(self._write_file, leaf, chunk))
            for leaf, chunk in jobs
        ]
        files: dict[str, list[File]] = {}
        for (leaf, _), written in zip(jobs, run_calls(pool, calls), strict=True):
            files.setdefault(leaf.path, []).append(written.file)
            self.linked += written.file.size * written.linked
        return files

    def _write_file(self, leaf: _Leaf, chunk: Chunk | None) -> _Written:
        if chunk is None:
            return self._write_meta(leaf)
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

    def _write_meta(self, leaf: _Leaf) -> _Written:
        file = File(META, len(leaf.meta), crc32c.crc32c(leaf.meta))
        chunks = [File(chunk.key, chunk.payload, 0) for chunk in leaf.chunks()]
        source = self._sources.same_meta(leaf.entry([file, *chunks]))
        if source is not None and self._try_link(f"{source}/{leaf.path}", leaf.path, file):
            return _Written(file, linked=True)
        self._fs.write(f"{leaf.folder}/{META}", [leaf.meta], sync=self._sync)
        return _Written(file)


def _is_work(leaf: _Leaf, chunk: Chunk | None) -> bool:
    """Whether a file is worth handing to another thread."""
    assert leaf.stored is not None or chunk is None
    if chunk is None or leaf.stored is None:
        return False
    return chunk.payload >= LARGE or leaf.stored.codec is not None


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


def run_calls(pool: ThreadPoolExecutor, calls: Sequence[tuple[bool, Callable[[], T]]]) -> list[T]:
    """Make all calls, those marked True on the pool; the first error ends the rest.

    A single one is made here: nothing would run beside it.
    """
    if len(calls) == 1:
        return [calls[0][1]()]
    futures = {i: pool.submit(call) for i, (pooled, call) in enumerate(calls) if pooled}
    try:
        here = {i: call() for i, (pooled, call) in enumerate(calls) if not pooled}
        return [futures[i].result() if i in futures else here[i] for i in range(len(calls))]
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
