"""The key ``checkpoint.compress``: a codec for all blobs, or one for each pattern of names."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from jobrun.core.suggestions import did_you_mean
from jobrun.errors import UsageError
from jobrun.jobspec.closed import ClosedModel
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.names import pattern_fault
from jobrun.jobspec.scalars import show
from jobrun.model.codecs import CODECS, NO_CODEC, codec_names
from jobrun.model.policy import Compress

__all__ = ["Compression", "CompressionModel"]

_NAMES = codec_names()
_Codec = Annotated[str, WithJsonSchema({"enum": list(_NAMES), "type": "string"})]
_SUMMARIES = ", ".join(f"{name} is {codec.summary}" for name, codec in CODECS.items())
_LEVELS = ", ".join(
    f"{codec.largest_level} ({name}; default {codec.default_level})"
    for name, codec in CODECS.items()
)


class CompressionModel(ClosedModel):
    """The compression of the blobs of a pattern."""

    codec: _Codec = Field(
        description=f"{_SUMMARIES}; {NO_CODEC}: no compression.", examples=["zstd"]
    )
    level: Annotated[int, Field(ge=1, le=max(c.largest_level for c in CODECS.values()))] = Field(
        3,
        description=f"From 1 to {_LEVELS}; higher levels are slower and smaller.",
        examples=[9],
    )


def _compress(value: Any) -> tuple[Compress, ...]:
    if isinstance(value, str):
        return (_rule("*", value, ()),)
    if not isinstance(value, dict) or not value:
        what = f"{', '.join(CODECS)}, or a mapping of patterns of names to one of these"
        raise expected(what, value, "compress: zstd")
    if value.keys() <= {"codec", "level"}:
        raise refuse(FieldFault("is by patterns of names", 'write {"*": {codec: zstd, level: 9}}'))
    return tuple(_rule(pattern, item, (pattern,)) for pattern, item in value.items())


def _rule(pattern: Any, value: Any, path: tuple[Any, ...]) -> Compress:
    if not isinstance(pattern, str):
        raise refuse(
            FieldFault(f"has the key {show(pattern)}, which is not a name", "quote it", path, True)
        )
    if fault := pattern_fault(pattern):
        raise refuse(FieldFault(f"is wrong: {fault}", path=path, key=True))
    if isinstance(value, str):
        return Compress(_codec(value, path), blobs=pattern)
    if not isinstance(value, dict) or "codec" not in value:
        raise refuse(
            FieldFault(
                f": expected {', '.join(_NAMES)}, or a mapping {{codec, level}}, got {show(value)}",
                path=path,
            )
        )
    for key in value:
        if key not in ("codec", "level"):
            hint = did_you_mean(str(key), ("codec", "level"))
            raise refuse(FieldFault(f"has an unknown key {show(key)}", hint, (*path, key), True))
    codec = _codec(value["codec"], (*path, "codec"))
    level = value.get("level", 0)
    if isinstance(level, bool) or not isinstance(level, int) or (level < 1 and "level" in value):
        raise refuse(
            FieldFault(
                f": expected a whole number from 1 up, got {show(level)}", path=(*path, "level")
            )
        )
    try:
        return Compress(codec, level, pattern)
    except UsageError as error:
        message = error.message.removeprefix("checkpoint.compress: ")
        raise refuse(FieldFault(f"is wrong: {message}", path=(*path, "level"))) from error


def _codec(value: Any, path: tuple[Any, ...]) -> str:
    if isinstance(value, str) and value in _NAMES:
        return value
    hint = did_you_mean(value, _NAMES) if isinstance(value, str) else ""
    what = f"{', '.join(CODECS)} or {NO_CODEC}"
    raise refuse(FieldFault(f": expected {what}, got {show(value)}", hint, path))


_Patterns = Annotated[dict[str, _Codec | CompressionModel], Field(min_length=1)]
Compression = Annotated[
    Any,
    BeforeValidator(
        _compress,
        json_schema_input_type=_Codec | _Patterns,
    ),
]
