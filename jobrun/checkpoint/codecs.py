"""Compressed chunks: the rule that applies to a blob, and the codecs of an array.

The codecs themselves are the table ``model.codecs.CODECS``.  The checksum (crc32c) comes after the
compression, over the bytes on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from jobrun.core.late_imports import importing
from jobrun.core.patterns import means
from jobrun.errors import DamagedError, NotFoundError
from jobrun.model.codecs import CODECS, NO_CODEC, Codec
from jobrun.model.policy import Compress

__all__ = ["Compressor", "array_codecs", "choose", "import_codecs", "parse_codecs"]

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_TEXT = {"name": "vlen-utf8"}
_CRC = {"name": "crc32c"}

_BY_ZARR_NAME = {codec.zarr_name: codec for codec in CODECS.values()}
"""Of codecs that share a name any one: to decompress, nothing else is needed."""


def choose(rules: Sequence[Compress], node: str, path: str) -> Compress | None:
    """Return the first rule whose pattern matches a leaf; None if it has no codec, or none matches.

    Patterns are those of ``jobrun.core.patterns``.
    """
    rule = next((rule for rule in rules if means(rule.blobs, node, path)), None)
    return None if rule is None or rule.codec == NO_CODEC else rule


@dataclass(frozen=True, slots=True)
class Compressor:
    """The compressor of an array: a codec, its level, and the bytes of one element.

    Level and ``itemsize`` matter for writing only: compressed bytes describe themselves.
    """

    codec: Codec
    level: int = 0
    itemsize: int = 1

    @classmethod
    def of(cls, rule: Compress, itemsize: int) -> Compressor:
        """Return the compressor of a rule for elements of ``itemsize`` bytes."""
        return cls(CODECS[rule.codec], rule.level, itemsize)

    def to_json(self) -> dict[str, Any]:
        """Return the compressor as it stands in ``zarr.json``."""
        configuration = dict(self.codec.settings(self.level, self.itemsize))
        return {"name": self.codec.zarr_name, "configuration": configuration}

    def compress(self, data: bytes | memoryview) -> memoryview:
        """Return the bytes of a chunk, compressed."""
        module = _module(self.codec)
        return memoryview(self.codec.compress(module, data, self.level, self.itemsize))

    def decompress(self, data: memoryview, into: memoryview) -> None:
        """Fill ``into`` from compressed bytes; raises DamagedError if they cannot be decompressed.

        Those that become fewer bytes are damaged too: the rest of ``into`` would be what was in
        that memory before.  Raises NotFoundError if numcodecs is missing.
        """
        module = _module(self.codec)
        if (content := self.codec.content(data)) != len(into):
            found = "an unknown number of" if content < 0 else f"{content:,}"
            raise DamagedError(
                f"it cannot be decompressed: it holds {found} bytes, but its chunk has "
                f"{len(into):,}"
            )
        try:
            self.codec.decompress(module, data, into)
        except (RuntimeError, ValueError) as error:
            raise DamagedError(f"it cannot be decompressed: {error}") from error


def import_codecs(rules: Sequence[Compress]) -> None:
    """Import what ``rules`` need, before threads are started that would import it too.

    Raises NotFoundError, with the command that installs it, if a package is missing.
    """
    for rule in rules:
        if rule.codec != NO_CODEC:
            _module(CODECS[rule.codec])


def array_codecs(compressor: Compressor | None, *, text: bool) -> list[dict[str, Any]]:
    """Return the codecs of an array, for its ``zarr.json``."""
    between = [] if compressor is None else [compressor.to_json()]
    return [_TEXT if text else _BYTES, *between, _CRC]


def parse_codecs(found: Sequence[Mapping[str, Any]], *, text: bool) -> Compressor | None:
    """Return the inverse of ``array_codecs``.  Raises DamagedError for unknown codecs."""
    first, *between, last = found
    if first != (_TEXT if text else _BYTES) or last != _CRC or (text and between):
        raise DamagedError("its encoding is not known to this jobrun")
    if not between:
        return None
    names = [codec["name"] for codec in between]
    if len(names) > 1 or names[0] not in _BY_ZARR_NAME:
        raise DamagedError(
            f"it is compressed with {' and '.join(names)}, which this jobrun does not know",
            hint="read it with a newer jobrun, or with zarr",
        )
    return Compressor(_BY_ZARR_NAME[names[0]])


def _module(codec: Codec) -> ModuleType:
    """Return the module of numcodecs, which is imported where blobs are compressed only."""
    name = codec.zarr_name
    try:
        with importing():
            return import_module(f"numcodecs.{name}")
    except ModuleNotFoundError as error:
        raise NotFoundError(
            f"data compressed with {name} needs the package numcodecs",
            hint="pip install numcodecs",
        ) from error
    except ImportError as error:  # installed, but broken
        raise NotFoundError(
            f"the package numcodecs, which {name} needs, cannot be imported: {error}",
            hint="pip install --force-reinstall numcodecs",
        ) from error
