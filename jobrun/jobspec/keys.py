"""The models as a tree of keys: which there are at a path of a spec."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel

from jobrun.jobspec.model import SpecModel

__all__ = ["Model", "every_key", "fields", "has_short_form", "keys_of", "model_at"]

Model = type[BaseModel]


def keys_of(path: tuple[str | int, ...]) -> list[str]:
    """Return the keys that the language has at a path of a spec; none where it leaves them free."""
    model = model_at(path)
    return list(fields(model)) if model is not None else []


def model_at(path: tuple[int | str, ...]) -> Model | None:
    """Return the model of what a path of a spec leads to.

    None where the language leaves it free.
    """
    model: Model | None = SpecModel
    of_entries: Model | None = None
    for part in path:
        if isinstance(part, int):
            continue
        if of_entries is not None:
            model, of_entries = of_entries, None
        elif model is not None and part in fields(model):
            model, of_entries = fields(model)[part], _entries(model)[part]
        else:
            return None
    return model


@cache
def fields(model: Model) -> dict[str, Model | None]:
    """Return the keys of a model, each with the model of its value where it has one."""
    return {f.alias or n: _submodel(f.annotation) for n, f in model.model_fields.items()}


@cache
def every_key(model: Model = SpecModel) -> frozenset[str]:
    """Return all keys of the language, of a model and those below it."""
    below = {*fields(model).values(), *_entries(model).values()} - {None, model}
    return frozenset(fields(model)).union(*(every_key(sub) for sub in below if sub is not None))


@cache
def has_short_form(model: Model, key: str) -> bool:
    """Return whether the value of a key may be one scalar, too, where it can be a mapping."""
    field = next(f for n, f in model.model_fields.items() if (f.alias or n) == key)
    forms = [getattr(m, "json_schema_input_type", None) for m in field.metadata]
    return any(_is_scalar(part) for form in forms for part in get_args(form))


def _is_scalar(form: Any) -> bool:
    if get_origin(form) is Annotated:
        form = get_args(form)[0]
    return form in (str, int, float, bool) or get_origin(form) is Literal


@cache
def _entries(model: Model) -> dict[str, Model | None]:
    """Return the keys of a model, each with the model of the values of a mapping of names."""
    return {f.alias or n: _submodel(f.annotation, dict) for n, f in model.model_fields.items()}


def _submodel(annotation: Any, of: type | None = None) -> Model | None:
    """Return the first model in an annotation; that of a ``dict``'s values if ``of`` is that."""
    if of is None and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) is dict:
        return _submodel(get_args(annotation)[1]) if of is dict else None
    for argument in get_args(annotation):
        found = _submodel(argument, of)
        if found is not None:
            return found
    return None
