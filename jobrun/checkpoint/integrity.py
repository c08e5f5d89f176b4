"""Reading the files of a checkpoint and verifying that they are what was written.

The chain of proof: the last line of ``_SUCCESS`` proves the lines before it, these hold the crc32c
of each manifest, and a manifest holds length and crc32c of each file's payload.  Everything here
raises DamagedError, naming the file, if it is not what was written, and NotFoundError if the
system does not let us read it (permissions, too many open files), which proves nothing.  What is
damaged at a URL is read once more first: a network may have damaged it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NoReturn, TypeVar

from jobrun.checkpoint.block_checksums import BLOCK, DIGITS, BlockChecksums
from jobrun.checkpoint.manifest import (
    CHUNK_TAIL,
    META,
    File,
    Manifest,
    decode_manifest,
    manifest_name,
)
from jobrun.checkpoint.record import SUCCESS, Record, decode_record
from jobrun.core import crc32c
from jobrun.errors import DamagedError, NotFoundError
from jobrun.storage.bounded_json import MAX_BYTES
from jobrun.storage.fs import Fs, FsError
from jobrun.storage.regular_file import close_after_reading, size_text

__all__ = [
    "check_payload",
    "check_root",
    "check_sizes",
    "check_written",
    "kind_of",
    "read_blocks",
    "read_manifest",
    "read_manifests",
    "read_meta",
    "read_payload",
    "read_record",
]

T = TypeVar("T")

_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_FEW = 16
"""Names of blobs up to which only their lines of a manifest are decoded."""

_KEPT = 4 << 20
"""Bytes of a manifest up to which it is kept as decoded: some 30,000 blobs."""

_BLOCK = 1 << 20
_FIRST = 1 << 16
"""Length of a file's first block in bytes.

The kernel sizes its read-ahead by the first read: after a small one it starts small and continues
with ever larger pages; after one of 1 MiB it reads as much in small pages, which are slow to
allocate and to copy from.  Measured on Linux 6.18, 64 x 8 MiB that were not in memory: 340 ms
against 520, and 120 ms of CPU against 190.
"""


def _reread(fs: Fs, call: Callable[[], T]) -> T:
    """Return ``call()``; if it finds damage at a URL, make the call again."""
    try:
        return call()
    except DamagedError:
        if not fs.far:
            raise
    return call()


def kind_of(fs: Fs, path: str) -> str:
    """Return the kind of what lies at a path: see ``Fs.kind``."""
    try:
        return fs.kind(path)
    except FsError as error:
        _raise_for(error)


def read_record(
    fs: Fs, checkpoint: str, decode: Callable[[bytes, str], Record] = decode_record
) -> Record:
    """Return the record in ``_SUCCESS`` of the checkpoint at a path."""
    path = f"{checkpoint}/{SUCCESS}"
    if not fs.far:
        return decode(_read(fs, path), path)
    return _reread(fs, lambda: decode(_read(fs, path), path))


def check_root(fs: Fs, checkpoint: str, record: Record) -> None:
    """Raise DamagedError unless the checkpoint's own ``zarr.json`` is what was written."""
    path = f"{checkpoint}/{META}"

    def call() -> None:
        crc = f"{crc32c.crc32c(_read(fs, path)):08x}"
        if crc != record.root:
            raise DamagedError(f"its checksum is {crc}, but {record.root} was written", where=path)

    _reread(fs, call)


def read_manifest(
    fs: Fs, checkpoint: str, record: Record, node: str, names: Collection[str] | None = None
) -> Manifest:
    """Return a node's manifest, which must be the one that the record names.

    With ``names``, at least the entries of these blobs and of what they hold.
    """
    if node not in record.manifests:
        raise NotFoundError(
            f"checkpoint {record.id} has no node {node!r}; it has {', '.join(record.nodes)}",
            where=checkpoint,
        )
    path = f"{checkpoint}/{manifest_name(node)}"

    def call() -> bytes:
        data = _read(fs, path)
        digest = f"{crc32c.crc32c(data):08x}"
        if digest != record.manifests[node]:
            raise DamagedError(
                f"its checksum is {digest}, but {SUCCESS} names {record.manifests[node]}",
                where=path,
            )
        return data

    data = _reread(fs, call)
    if names is not None and len(names) <= _FEW:  # each is searched for in all of the file
        manifest = decode_manifest(data, path, names)
    else:
        manifest = _decoded(data, path) if len(data) <= _KEPT else decode_manifest(data, path)
    if (manifest.id, manifest.node) != (record.id, node):
        raise DamagedError(
            f"it belongs to checkpoint {manifest.id}, node {manifest.node!r}", where=path
        )
    return manifest


@lru_cache(maxsize=4)
def _decoded(data: bytes, path: str) -> Manifest:
    """Return a manifest, decoded once for callers that check all lengths, then read blobs."""
    return decode_manifest(data, path)


def read_manifests(fs: Fs, checkpoint: str, record: Record) -> list[Manifest]:
    """Return the manifests of all nodes, in order; those of a store are read at the same time."""
    if not fs.far:
        return [read_manifest(fs, checkpoint, record, node) for node in record.nodes]
    from concurrent.futures import ThreadPoolExecutor  # listing a directory needs no threads

    from jobrun.storage.threads import THREADS_FAR

    with ThreadPoolExecutor(THREADS_FAR) as pool:
        return list(
            pool.map(lambda node: read_manifest(fs, checkpoint, record, node), record.nodes)
        )


def check_written(fs: Fs, directory: str, node: str, digest: str) -> None:
    """Raise DamagedError unless a part that another process wrote is visible here.

    Its manifest must have that digest (crc32c), and all its files the lengths that it states.
    """
    path = f"{directory}/{manifest_name(node)}"
    data = _read(fs, path)
    found = f"{crc32c.crc32c(data):08x}"
    if found != digest:
        raise DamagedError(f"its checksum is {found}, but {digest} was written", where=path)
    check_sizes(fs, decode_manifest(data, path).sizes(directory))


def check_sizes(fs: Fs, sizes: Mapping[str, int]) -> None:
    """Raise DamagedError unless files exist at their full lengths, which are given by path."""

    def call() -> None:
        try:
            for path, size in zip(sizes, fs.sizes(sizes), strict=True):
                if size != sizes[path]:
                    _same_size(path, sizes[path], size)
        except FsError as error:
            _raise_for(error)

    _reread(fs, call)


def read_meta(fs: Fs, path: str, file: File) -> bytes:
    """Return the bytes of a ``zarr.json``, verified."""
    if file.size > MAX_BYTES:
        raise DamagedError(
            f"it is {file.size} bytes long; metadata are at most {size_text(MAX_BYTES)}", where=path
        )

    def call() -> bytes:
        data = _read(fs, path, file.size if fs.far else MAX_BYTES)
        _same_size(path, file.size, len(data))
        _same_crc(path, file, crc32c.crc32c(data))
        return data

    return _reread(fs, call)


def read_payload(fs: Fs, path: str, file: File, data: memoryview, start: int = 0) -> None:
    """Read and verify all the payload of a chunk file; the bytes from ``start`` fill ``data``.

    They are read straight into ``data``, the others are discarded.
    """
    rest = file.length - start - len(data)
    blocks = [*_spare(start), *(data[i:j] for i, j in _cuts(len(data))), *_spare(rest)]
    _reread(fs, lambda: _prove(fs, path, file, blocks))


def read_blocks(fs: Fs, path: str, file: File, data: memoryview, start: int) -> None:
    """Fill ``data`` with the bytes from ``start`` of a chunk file that has checksums of blocks.

    Only the blocks that hold them are read and verified.
    """
    first = start // BLOCK
    end = min(-(-(start + len(data)) // BLOCK) * BLOCK, file.length)
    before, after = bytearray(start - first * BLOCK), bytearray(end - start - len(data))
    buffers = [memoryview(before), data, memoryview(after)]
    _reread(fs, lambda: _prove_blocks(fs, path, file, buffers, first))


def _prove_blocks(fs: Fs, path: str, file: File, buffers: Sequence[memoryview], first: int) -> None:
    """Fill buffers from the block ``first`` on, and verify them; they end where a block does."""
    sums = BlockChecksums()
    try:
        fd, length = fs.open(path, file.size)
        try:
            _same_size(path, file.size, length)
            os.lseek(fd, first * BLOCK, os.SEEK_SET)
            size = fs.read_into(fd, path, buffers)
        finally:
            close_after_reading(fd)
    except FsError as error:
        _raise_for(error)
    if size != sum(map(len, buffers)):
        raise DamagedError(f"it ends before its {file.size} bytes", where=path)
    for data in buffers:
        sums.add(data)
    _same_blocks(path, file, sums, first)


def check_payload(fs: Fs, path: str, file: File) -> None:
    """Read and verify all of a file, keeping nothing."""
    if file.name == META:
        read_meta(fs, path, file)
    elif not file.blocks:
        _reread(fs, lambda: _prove(fs, path, file, _spare(file.length)))
    else:

        def call() -> None:
            sums = BlockChecksums()
            _prove(fs, path, file, _spare(file.length), sums)
            _same_blocks(path, file, sums)

        _reread(fs, call)


def _read(fs: Fs, path: str, most: int = MAX_BYTES) -> bytes:
    """Return all bytes of a file of metadata."""
    try:
        return fs.read(path, most)
    except FsError as error:
        _raise_for(error)


def _cuts(length: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each block of ``length`` bytes."""
    start, end = 0, _FIRST
    while start < length:
        yield start, min(end, length)
        start, end = end, end + _BLOCK


def _spare(length: int) -> list[memoryview]:
    """Return blocks for bytes that are verified and not kept: all are the same memory."""
    block = memoryview(bytearray(min(_BLOCK, length)))
    return [block[: j - i] for i, j in _cuts(length)]


def _prove(
    fs: Fs,
    path: str,
    file: File,
    blocks: Sequence[memoryview],
    sums: BlockChecksums | None = None,
) -> None:
    """Read and verify a chunk file; each block is summed while it is in the processor's cache.

    With ``sums`` the checksum is that of the blocks that it is given.
    """
    tail = memoryview(bytearray(CHUNK_TAIL))
    size = crc = 0
    try:
        fd, length = fs.open(path, file.size)
        try:
            _same_size(path, file.size, length)
            for block in blocks:
                size += fs.read_into(fd, path, [block, tail] if block is blocks[-1] else [block])
                if sums is None:
                    crc = crc32c.crc32c(block, crc)
                else:
                    sums.add(block)
        finally:
            close_after_reading(fd)
    except FsError as error:
        _raise_for(error)
    _same_size(path, file.size, size)
    _same_crc(path, file, crc if sums is None else sums.whole())
    _same_crc(path, file, int.from_bytes(tail, "little"))


def _same_size(path: str, written: int, size: int) -> None:
    if size != written:
        raise DamagedError(f"it is {size} bytes long, but {written} were written", where=path)


def _same_crc(path: str, file: File, crc: int) -> None:
    if crc != file.crc:
        raise DamagedError(f"its checksum is {crc:08x}, but {file.crc:08x} was written", where=path)


def _same_blocks(path: str, file: File, sums: BlockChecksums, first: int = 0) -> None:
    """Raise DamagedError unless checksums of blocks, from ``first`` on, are what was written."""
    found = sums.digits()
    for place in range(0, len(found), DIGITS):
        crc, own = found[place : place + DIGITS], file.blocks[first * DIGITS + place :][:DIGITS]
        if crc != own:
            raise DamagedError(
                f"the checksum of its block {first + place // DIGITS} is {crc}, but {own} was "
                "written",
                where=path,
            )


def _raise_for(error: FsError) -> NoReturn:
    """Raise what a failed read says about the file."""
    where = str(error.filename)
    if error.errno in _NO_ACCESS:
        raise NotFoundError(f"it cannot be read: {error.strerror}", where=where) from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise DamagedError("it is missing", where=where) from error
    raise DamagedError(f"it cannot be read: {error.strerror}", where=where) from error
