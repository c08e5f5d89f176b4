"""Faults of a field, and the validators that every field shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from jobrun.core.suggestions import did_you_mean
from jobrun.jobspec.scalars import show

__all__ = ["FieldFault", "Optional", "choice", "expected", "refuse"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A fault at a place below a field: ``path`` leads there, to its key if ``key``."""

    message: str
    hint: str = ""
    path: tuple[str | int, ...] = ()
    key: bool = False
    offset: int = 0


def refuse(*faults: FieldFault) -> PydanticCustomError:
    """Return the faults as one error of pydantic.

    ``jobrun.jobspec.problems`` takes them apart again.
    """
    return PydanticCustomError("jobrun", "wrong", {"faults": faults})


def expected(what: str, value: object, hint: str = "") -> PydanticCustomError:
    """Return the error of a value that is something else."""
    return refuse(FieldFault(f": expected {what}, got {show(value)}", hint))


def _given(value: Any) -> Any:
    if value is None:
        raise refuse(FieldFault("has no value", "give it one, or remove the key"))
    return value


class _NotNull:
    """Takes the null of ``T | None`` out of the JSON Schema: the key may only be left out."""

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core)
        forms = [f for f in schema.get("anyOf", ()) if f != {"type": "null"}]
        if not forms:
            return schema
        return forms[0] if len(forms) == 1 else {**schema, "anyOf": forms}


Optional = Annotated[T | None, BeforeValidator(_given), _NotNull()]
"""A key that may be left out, but not be empty."""


def choice(*options: str) -> Callable[[Any], Any]:
    """Return a validator for one of a few words."""

    def validate(value: Any) -> Any:
        if value not in options or not isinstance(value, str):
            hint = did_you_mean(value, options) if isinstance(value, str) else ""
            raise expected(" or ".join(options), value, hint)
        return value

    return validate
