"""The key ``checkpoint.compress``: a codec for all blobs, or one for each pattern of names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from jobrun.errors import UsageError, did_you_mean
from jobrun.jobspec.closed import ClosedModel
from jobrun.jobspec.faults import FieldFault, refuse, wants
from jobrun.jobspec.scalars import show
from jobrun.model.policy import Compress

__all__ = ["Compression", "CompressionModel"]

_CODECS = ("zstd", "lz4", "none")
_FORMS = "zstd, lz4, none, or a mapping {codec, level}"
_Codec = Literal["zstd", "lz4", "none"]


class CompressionModel(ClosedModel):
    """How the blobs of a pattern are compressed."""

    codec: _Codec = Field(description="zstd is smaller, lz4 faster; none: not at all.")
    level: Annotated[int, Field(ge=1, le=22)] = Field(
        3, description="From 1 to 22 (zstd; usually 3) or 9 (lz4; usually 5): slower and smaller."
    )


def _compress(value: Any) -> tuple[Compress, ...]:
    if isinstance(value, str):
        return (_rule("*", value, ()),)
    if not isinstance(value, dict) or not value:
        what = "zstd, lz4, or a mapping of patterns of names to one of these"
        raise wants(what, value, "compress: zstd")
    if value.keys() <= {"codec", "level"}:
        raise refuse(FieldFault("is by patterns of names", 'write {"*": {codec: zstd, level: 9}}'))
    return tuple(_rule(pattern, item, (pattern,)) for pattern, item in value.items())


def _rule(pattern: Any, value: Any, path: tuple[Any, ...]) -> Compress:
    if not isinstance(pattern, str):
        raise refuse(
            FieldFault(f"has the key {show(pattern)}, which is no name", "quote it", path, True)
        )
    if isinstance(value, str):
        return Compress(_codec(value, path), blobs=pattern)
    if not isinstance(value, dict) or "codec" not in value:
        raise refuse(FieldFault(f"wants {_FORMS}, not {show(value)}", path=path))
    for key in value:
        if key not in ("codec", "level"):
            hint = did_you_mean(str(key), ("codec", "level"))
            raise refuse(FieldFault(f"has an unknown key {show(key)}", hint, (*path, key), True))
    codec = _codec(value["codec"], (*path, "codec"))
    level = value.get("level", 0)
    if isinstance(level, bool) or not isinstance(level, int) or (level < 1 and "level" in value):
        raise refuse(
            FieldFault(f"wants a whole number from 1 up, not {show(level)}", path=(*path, "level"))
        )
    try:
        return Compress(codec, level, pattern)
    except UsageError as error:
        message = error.message.removeprefix("checkpoint.compress: ")
        raise refuse(FieldFault(f"is wrong: {message}", path=(*path, "level"))) from error


def _codec(value: Any, path: tuple[Any, ...]) -> str:
    if isinstance(value, str) and value in _CODECS:
        return value
    hint = did_you_mean(value, _CODECS) if isinstance(value, str) else ""
    raise refuse(FieldFault(f"wants zstd, lz4 or none, not {show(value)}", hint, path))


_Patterns = Annotated[dict[str, _Codec | CompressionModel], Field(min_length=1)]
Compression = Annotated[
    Any,
    BeforeValidator(
        _compress,
        json_schema_input_type=_Codec | _Patterns,
    ),
]
