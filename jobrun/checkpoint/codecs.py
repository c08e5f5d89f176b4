"""Compressed chunks: which blobs, with which of zarr's codecs, and the way there and back.

zstd is zarr's codec ``zstd``, lz4 its codec ``blosc`` with that compressor, which also shuffles the
bytes of elements.  Both let go of the interpreter's lock.  The checksum stands behind them, over
what is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from jobrun.core.late_imports import importing
from jobrun.core.patterns import means
from jobrun.errors import DamagedError, NotFoundError
from jobrun.model.policy import Compress

__all__ = ["Codec", "choose", "codecs", "import_codecs", "parse_codecs"]

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_TEXT = {"name": "vlen-utf8"}
_CRC = {"name": "crc32c"}
_SHUFFLED = 1
_MOST_SHUFFLED = 255
"""blosc shuffles elements of at most so many bytes."""


def choose(rules: Sequence[Compress], node: str, path: str) -> Compress | None:
    """Return the first rule whose pattern means a leaf; None if that says none, or there is none.

    Patterns are those of ``jobrun.core.patterns``.
    """
    rule = next((rule for rule in rules if means(rule.blobs, node, path)), None)
    return None if rule is None or rule.codec == "none" else rule


@dataclass(frozen=True, slots=True)
class Codec:
    """A compressor as ``zarr.json`` has it: ``name`` is zarr's.

    Settings but the name matter for writing alone: what is compressed tells how.
    """

    name: str
    level: int = 0
    itemsize: int = 1

    @classmethod
    def of(cls, rule: Compress, itemsize: int) -> Codec:
        """The codec that a rule asks for, for elements of ``itemsize`` bytes."""
        return cls(_zarr_name(rule), rule.level, itemsize if itemsize <= _MOST_SHUFFLED else 1)

    def to_json(self) -> dict[str, Any]:
        """The codec in the words of zarr."""
        settings: dict[str, Any] = {"level": self.level, "checksum": False}
        if self.name == "blosc":
            settings = {
                "typesize": self.itemsize,
                "cname": "lz4",
                "clevel": self.level,
                "shuffle": "shuffle" if self.itemsize > 1 else "noshuffle",
                "blocksize": 0,
            }
        return {"name": self.name, "configuration": settings}

    def compress(self, data: bytes | memoryview) -> memoryview:
        """The bytes of a chunk, compressed."""
        module = _module(self.name)
        if self.name == "zstd":
            return memoryview(module.compress(data, self.level))
        elements = np.frombuffer(data, f"V{self.itemsize}")  # blosc asks the buffer for their size
        shuffle = _SHUFFLED if self.itemsize > 1 else 0
        return memoryview(module.compress(elements, b"lz4", self.level, shuffle))

    def decompress(self, data: memoryview, into: memoryview) -> None:
        """Fill ``into`` from compressed bytes; raises DamagedError where they are none."""
        module = _module(self.name)
        try:
            module.decompress(data, into)
        except (RuntimeError, ValueError) as error:
            raise DamagedError(f"it cannot be decompressed: {error}") from error


def import_codecs(rules: Sequence[Compress]) -> None:
    """Import what ``rules`` need: before there are threads, of which some may import too.

    Raises NotFoundError, with the command that installs it, where a package is missing.
    """
    for rule in rules:
        if rule.codec != "none":
            _module(_zarr_name(rule))


def codecs(codec: Codec | None, *, text: bool) -> list[dict[str, Any]]:
    """The codecs of an array, for its ``zarr.json``."""
    compressor = [] if codec is None else [codec.to_json()]
    return [_TEXT if text else _BYTES, *compressor, _CRC]


def parse_codecs(found: Sequence[Mapping[str, Any]], *, text: bool) -> Codec | None:
    """The inverse of ``codecs``.  Raises DamagedError for what this jobrun does not know."""
    first, *between, last = found
    if first != (_TEXT if text else _BYTES) or last != _CRC or (text and between):
        raise DamagedError("it is encoded in a way that this jobrun does not know")
    if not between:
        return None
    names = [codec["name"] for codec in between]
    if len(names) > 1 or names[0] not in ("zstd", "blosc"):
        raise DamagedError(
            f"it is compressed with {' and '.join(names)}, which this jobrun does not know",
            hint="a newer jobrun may, or zarr",
        )
    return Codec(names[0])


def _zarr_name(rule: Compress) -> str:
    """The name of the codec in zarr's words."""
    return "blosc" if rule.codec == "lz4" else rule.codec


def _module(name: str) -> ModuleType:
    """The module that does the work: of a package that is needed for compressed blobs alone."""
    try:
        with importing():
            return import_module(f"numcodecs.{name}")
    except ModuleNotFoundError as error:
        raise NotFoundError(
            f"what is compressed with {name} needs the package numcodecs",
            hint="pip install numcodecs",
        ) from error
    except ImportError as error:  # it is there, and cannot be used
        raise NotFoundError(
            f"the package numcodecs, which {name} needs, cannot be imported: {error}",
            hint="pip install --force-reinstall numcodecs",
        ) from error
