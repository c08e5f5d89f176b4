"""``{reduce: mean, of: "trainer_*:g"}`` under ``in``: a blob of several nodes as one value."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal

from pydantic import Field

from jobrun.core.suggestions import did_you_mean
from jobrun.core.text import either
from jobrun.jobspec.closed import ClosedModel
from jobrun.jobspec.faults import FieldFault, refuse
from jobrun.jobspec.names import reference_fault
from jobrun.jobspec.scalars import show
from jobrun.model.task import NODE_REDUCTIONS

__all__ = ["InputForms", "with_reductions"]

_KEYS = ("reduce", "of")
_EXAMPLE = "{reduce: mean, of: 'trainer_*:g'}"


class NodeReductionModel(ClosedModel):
    """A blob of several nodes, reduced to one value over a fixed tree in node order."""

    reduce: Literal["mean", "sum", "min", "max"] = Field(
        description="How its values are joined.", examples=["mean"]
    )
    of: Annotated[
        str,
        Field(
            pattern=":",
            json_schema_extra={"patternErrorMessage": "expected the blob of some nodes: '*:g'"},
        ),
    ] = Field(description="The blob of some nodes: '*:g'.", examples=["trainer_*:g"])


_Input = str | NodeReductionModel
InputForms = str | list[_Input] | dict[str, _Input | None]


def with_reductions(validate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a validator of inputs, of which some may be reductions over nodes."""

    @wraps(validate)  # pydantic looks at the signature
    def validate_all(value: Any, *info: Any) -> Any:
        faults: list[FieldFault] = []

        def name_of(key: Any, item: Any) -> Any:
            if not isinstance(item, dict) or not set(item) & set(_KEYS):
                return item
            faults.extend(_faults(item, (key,)))
            return item.get("of") if isinstance(item.get("of"), str) else "x"

        plain = value
        if isinstance(value, list):
            plain = [name_of(number, item) for number, item in enumerate(value)]
        elif isinstance(value, dict):
            plain = {key: name_of(key, item) for key, item in value.items()}
        if faults:
            raise refuse(*faults)
        validate(plain, *info)
        return value

    return validate_all


def _faults(item: dict[Any, Any], path: tuple[Any, ...]) -> list[FieldFault]:
    """Return what is wrong with one reduction."""
    found = [
        FieldFault(
            f": expected the keys 'reduce' and 'of', got {show(key)}",
            did_you_mean(key, _KEYS) if isinstance(key, str) else "",
            (*path, key),
            key=True,
        )
        for key in item
        if key not in _KEYS
    ]
    missing = [key for key in _KEYS if key not in item]
    if missing:
        found.append(FieldFault(f": a reduction over nodes has no {missing[0]!r}", _EXAMPLE, path))
        return found
    how, name = item["reduce"], item["of"]
    if how not in NODE_REDUCTIONS:
        hint = did_you_mean(how, NODE_REDUCTIONS) if isinstance(how, str) else ""
        text = f": expected {either(NODE_REDUCTIONS)}, got {show(how)}"
        found.append(FieldFault(text, hint, (*path, "reduce")))
    if not isinstance(name, str) or ":" not in name:
        text = f": expected the blob of some nodes, got {show(name)}"
        found.append(FieldFault(text, _EXAMPLE, (*path, "of")))
    elif fault := reference_fault(name):
        found.append(FieldFault(f"is wrong: {fault}", path=(*path, "of")))
    return found
