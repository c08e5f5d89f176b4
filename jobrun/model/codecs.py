"""The codecs of compressed blobs: one table, ``CODECS``.

A codec is one entry: its name in a spec, its levels, its form in ``zarr.json`` and the calls of the
compressor.  Everything else (the policy, the spec, its JSON Schema, writing and reading) asks the
table.  The module of numcodecs that does the work is imported by ``checkpoint.codecs``, and only
where a blob is compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

__all__ = ["CODECS", "NO_CODEC", "Codec", "codec_names"]

NO_CODEC = "none"
"""The name, in a spec, of no compression."""

_BLOSC_SHUFFLE = 1
_BLOSC_LARGEST_ELEMENT = 255
"""blosc shuffles elements of at most this many bytes."""

_BLOSC_HEADER = 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_FRAME = 9
"""Bytes of the shortest frame: magic number, descriptor, one of the size, a block's header."""

Data = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec: levels from 1 to ``largest_level``, and its calls.

    ``zarr_name`` is the name in ``zarr.json``, and that of the module of numcodecs.  Codecs may
    share it if its ``decompress`` needs to know nothing but the compressed bytes.  ``settings``
    returns zarr's configuration for a level and the bytes of one element; ``compress`` calls the
    module with the data of a chunk, a level and the bytes of one element.  ``content`` returns the
    number of bytes that compressed ones say they become, -1 if they say nothing.  ``decompress``
    fills that much of its last argument, which may be longer, and raises ValueError or RuntimeError
    for bytes that are damaged.
    """

    summary: str
    default_level: int
    largest_level: int
    zarr_name: str
    settings: Callable[[int, int], Mapping[str, Any]]
    compress: Callable[[ModuleType, Data, int, int], Data]
    content: Callable[[memoryview], int]
    decompress: Callable[[ModuleType, memoryview, memoryview], None]


def _zstd_settings(level: int, itemsize: int) -> Mapping[str, Any]:
    return {"level": level, "checksum": False}


def _zstd_compress(module: ModuleType, data: Data, level: int, itemsize: int) -> Data:
    compressed: Data = module.compress(data, level)
    return compressed


def _zstd_content(data: memoryview) -> int:
    """Return the size in the header of the one frame (RFC 8878), which numcodecs always writes."""
    if len(data) < _ZSTD_FRAME or data[:4] != _ZSTD_MAGIC:
        return -1
    descriptor = data[4]
    kind, single = descriptor >> 6, descriptor >> 5 & 1
    if kind == 0 and not single:
        return -1
    start = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + (1 << kind)], "little")
    return size + 256 if kind == 1 else size


def _lz4_settings(level: int, itemsize: int) -> Mapping[str, Any]:
    size = _shuffled(itemsize)
    return {
        "typesize": size,
        "cname": "lz4",
        "clevel": level,
        "shuffle": "shuffle" if size > 1 else "noshuffle",
        "blocksize": 0,
    }


def _lz4_compress(module: ModuleType, data: Data, level: int, itemsize: int) -> Data:
    import numpy as np  # this table is imported where numpy is not

    size = _shuffled(itemsize)
    elements = np.frombuffer(data, f"V{size}")  # blosc takes the element size from the buffer
    compressed: Data = module.compress(elements, b"lz4", level, _BLOSC_SHUFFLE if size > 1 else 0)
    return compressed


def _blosc_content(data: memoryview) -> int:
    return int.from_bytes(data[4:8], "little") if len(data) >= _BLOSC_HEADER else -1


def _shuffled(itemsize: int) -> int:
    """Return the bytes of the elements that blosc is to shuffle; 1 means none."""
    return itemsize if itemsize <= _BLOSC_LARGEST_ELEMENT else 1


def _decompress(module: ModuleType, data: memoryview, into: memoryview) -> None:
    module.decompress(data, into)


CODECS: Mapping[str, Codec] = {
    "zstd": Codec(
        "smaller", 3, 22, "zstd", _zstd_settings, _zstd_compress, _zstd_content, _decompress
    ),
    "lz4": Codec(
        "faster", 5, 9, "blosc", _lz4_settings, _lz4_compress, _blosc_content, _decompress
    ),
}
"""The codecs by their names in a spec.  All release the interpreter's lock."""


def codec_names() -> tuple[str, ...]:
    """Return the names that a spec may give as a codec, ``none`` last."""
    return (*CODECS, NO_CODEC)
