"""Sums over all bytes of a chunk: its checksums, and its digest where it needs one.

All of it is computed piece by piece, each while it is in the processor's cache: where a chunk is
written past the page cache, that is right after its copy.  Measured for 32 x 8 MiB on one thread:
all checksums of a chunk before its copy 26 ms, after the copy of each 1 MiB 19.7, of each 512 KiB
17.5; the checksums alone take 18.
"""

from __future__ import annotations

from collections.abc import Sequence

from jobrun.checkpoint.block_checksums import BLOCK, BlockChecksums
from jobrun.checkpoint.chunk_digest import ChunkDigest
from jobrun.checkpoint.manifest import CHUNK_TAIL, File
from jobrun.core import crc32c
from jobrun.storage.fs import Buffer

__all__ = ["ChunkSums", "described"]

_PIECE = 1 << 20


class ChunkSums:
    """Checksums, and with ``has_digest`` the digest, of the bytes of a chunk longer than a block.

    Its bytes are seen in their order, while they are written (``jobrun.storage.fs.Sums``).
    """

    __slots__ = ("_blocks", "_digest", "_length")

    def __init__(self, *, has_digest: bool) -> None:
        self._blocks = BlockChecksums()
        self._digest = ChunkDigest() if has_digest else None
        self._length = 0

    def see(self, start: int, data: Buffer) -> None:
        """Add the bytes from ``start`` on, without those that were seen before."""
        new = data[self._length - start :]
        self._blocks.add(new)
        if self._digest is not None:
            self._digest.add(new)
        self._length += len(new)

    def tail(self) -> bytes:
        """Return what ends the file after these bytes: their crc32c."""
        return self._blocks.whole().to_bytes(CHUNK_TAIL, "little")

    def file(self, name: str) -> File:
        """Return the file of these bytes."""
        digest = "" if self._digest is None else self._digest.digits()
        blocks = self._blocks.digits() if self._length > BLOCK else ""
        return File(name, self._length, self._blocks.whole(), blocks, digest)


def described(name: str, payload: Sequence[Buffer], *, has_digest: bool) -> File:
    """Return the file of a chunk that is not written yet, or not as these bytes."""
    length = sum(map(len, payload))
    if length <= BLOCK and not has_digest:  # there are thousands of these
        crc = 0
        for data in payload:
            crc = crc32c.crc32c(data, crc)
        return File(name, length, crc)
    sums, start = ChunkSums(has_digest=has_digest), 0
    for data in payload:
        view = memoryview(data)
        for first in range(0, len(view), _PIECE):
            sums.see(start + first, view[first : first + _PIECE])
        start += len(view)
    return sums.file(name)
