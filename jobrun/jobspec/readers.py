"""The types of the fields that state what a pipe reads, and how."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from jobrun.core.suggestions import did_you_mean
from jobrun.core.text import either
from jobrun.data.formats import COLUMN_TYPES, endings, format_of
from jobrun.jobspec.closed import ClosedModel
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.fields import annotated, like
from jobrun.jobspec.name_validators import list_faults, names_of
from jobrun.jobspec.names import plain_fault, reference_fault
from jobrun.jobspec.scalars import show
from jobrun.jobspec.value_validators import count_of, template_faults, text_of
from jobrun.model.job import SHARD

__all__ = ["BufferModel", "CellLimit", "Columns", "FilePath", "Shard", "Shuffle", "Types"]

_MOST_CELL = 2**31 - 1  # a C long holds it everywhere
_RENAME = "write a mapping: {column: its name in the file}"
_SHARD = "'node', or i/n, each a number or a var, i counted from 0"
_FROM = "a blob, a list of blobs, or a mapping {column: blob}"


def _file(value: Any) -> str:
    text = text_of(value, "the path of a file")
    faults = template_faults(text, ())
    if faults:
        raise refuse(*faults)
    if format_of(text) is None:
        raise expected(f"a {either(endings())} file", value)
    return text


def _columns(value: Any, info: ValidationInfo) -> Any:
    """Return the columns of a pipe: blobs, or whatever names a file or an item has for them."""
    given = info.data
    if given.get("file") is None and given.get("call") is None:
        return names_of(reference_fault, _FROM, plain_fault, distinct=False)(value)
    check = names_of(_foreign_fault, _FROM, plain_fault, distinct=False)
    check(_without_matrices(_named_after_themselves(value)))
    return value


def _without_matrices(value: Any) -> Any:
    """Return the columns with one name for the lists of names, each of which makes a matrix."""
    if not isinstance(value, dict):
        return value
    lists = {c: names for c, names in value.items() if isinstance(names, list)}
    faults: list[FieldFault] = []
    for column, names in lists.items():
        if not names:
            faults.append(FieldFault("names no column", path=(column,)))
        faults += [
            FieldFault(f.message, f.hint, (column, *f.path))
            for f in list_faults(_foreign_fault, names)
        ]
    if faults:
        raise refuse(*faults)
    return {c: names[0] if c in lists else names for c, names in value.items()}


def _named_after_themselves(value: Any) -> Any:
    """Refuse names in a list, and keys without a value, that cannot be names of columns."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list):
        faults = list_faults(plain_fault, names)
        if faults:
            raise refuse(*(FieldFault(f.message, _RENAME, f.path) for f in faults))
    return value


def _foreign_fault(name: str) -> str | None:
    return None if name else "an empty name"


def _types(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise expected("a mapping of columns to int, float or text", value, "types: {id: text}")
    faults = [
        FieldFault(
            f": expected {either(COLUMN_TYPES)}, got {show(item)}",
            did_you_mean(item, COLUMN_TYPES) if isinstance(item, str) else "",
            (key,),
        )
        for key, item in value.items()
        if item not in COLUMN_TYPES or isinstance(item, bool)
    ]
    if faults:
        raise refuse(*faults)
    return value


def _cell_limit(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CELL:
        raise expected(f"a whole number of characters from 1 to {_MOST_CELL}", value)
    return value


def _shuffle(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict) or list(value) != ["buffer"]:
        hint = f"in YAML 1.2 {value!r} is a string" if value in ("yes", "no", "on", "off") else ""
        raise expected("true or false, or {buffer: rows}", value, hint)
    try:
        return {"buffer": count_of(value["buffer"])}
    except PydanticCustomError as error:
        faults = (error.context or {})["faults"]
        raise refuse(*(FieldFault(f.message, f.hint, ("buffer",)) for f in faults)) from None


def _shard(value: Any) -> str:
    text = text_of(value, _SHARD)
    if text != "node" and not SHARD.fullmatch(text):
        raise expected(_SHARD, value)
    return text


class BufferModel(ClosedModel):
    """Shuffling within blocks, for what is read from front to back."""

    buffer: Annotated[int, Field(ge=1)] | str = Field(
        description="Rows of a block: a number, or a var or blob that holds one.",
        examples=[10000],
    )


FilePath = Annotated[str, annotated(_file, str)]
_ColumnForms = str | list[str] | dict[str, str | list[str] | None]
Columns = Annotated[Any, annotated(_columns, _ColumnForms)]
Types = Annotated[dict[str, str], annotated(_types, dict[str, Literal["int", "float", "text"]])]
CellLimit = Annotated[int, annotated(_cell_limit, Annotated[int, Field(ge=1, le=_MOST_CELL)])]
Shuffle = Annotated[Any, annotated(_shuffle, bool | BufferModel)]
Shard = Annotated[str, annotated(_shard, like("^(node|[^/]+/[^/]+)$", _SHARD))]
