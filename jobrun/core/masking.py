"""Masking of ``${env.NAME}`` values, which no message, event or file of jobrun may show.

A spec refers to environment variables so that secrets stay out of it; they must stay out of every
message about a run too, whatever its origin: a store that names its URL, an exception of a task.
A value is shown as the ``${env.NAME}`` that it came from.  Not masked are values of
less than four characters, which occur in every text, and paths that exist.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import quote

__all__ = ["mask", "masked", "remember"]

T = TypeVar("T")
_SHORTEST = 4
_LOCAL = frozenset({"run", "run_dir", "path", "checkpoint"})
"""Fields of events with paths of a run, by which files are opened."""
_names: set[str] = set()


def remember(name: str) -> None:
    """Mask the value of this environment variable from now on."""
    _names.add(name)


def mask(text: str) -> str:
    """Return the text with every value of a remembered variable replaced by its name."""
    found = {
        value: f"${{env.{name}}}"
        for name in _names
        if len(value := os.environ.get(name, "")) >= _SHORTEST
        and not (os.path.isabs(value) and os.path.exists(value))
    }
    for value in sorted(found, key=len, reverse=True):
        for form in dict.fromkeys((value, quote(value, safe=""))):
            text = text.replace(form, found[value])
    return text


def masked(value: T) -> T:
    """Return ``value``, an event, mapping or sequence, with ``mask`` applied to all its strings."""
    if not _names:
        return value
    result: Any = value
    if isinstance(value, str):
        result = mask(value)
    elif isinstance(value, Mapping):
        result = {k: masked(v) for k, v in value.items()}
    elif type(value) in (list, tuple):  # not a named tuple of the user
        items = [masked(v) for v in result]
        result = tuple(items) if isinstance(value, tuple) else items
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        found = {f.name: getattr(value, f.name) for f in fields(result)}
        changed = {
            n: new for n, old in found.items() if n not in _LOCAL and (new := masked(old)) != old
        }
        result = replace(result, **changed) if changed else value
    return result  # type: ignore[no-any-return]
