"""Forms of JSON values that are read from untrusted files.

A ``Form`` is a predicate of a value.  ``misfit`` names the first field of a mapping that does not
have the form that a table declares for it.  So one table per kind of file declares its fields, and
code that reads a field need not check it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

__all__ = [
    "Form",
    "any_value",
    "flag",
    "list_of",
    "mapping_of",
    "metric",
    "misfit",
    "named",
    "one_of",
    "optional",
    "pair_of",
    "record_of",
    "scalar",
    "seconds",
    "text",
    "time",
    "whole",
]

Form = Callable[[Any], bool]

_LARGEST = 1 << 63
_INT_64 = range(-_LARGEST, 2 * _LARGEST)
_SURROGATE = re.compile("[\ud800-\udbff]|[\udc00-\udc7f]|[\udd00-\udfff]")
"""Surrogates, which no stream can write.  U+DC80 to U+DCFF stand for bytes of paths."""


def any_value(value: Any) -> bool:
    """Accept any JSON value: for fields that are kept and never interpreted."""
    return True


def flag(value: Any) -> bool:
    """Accept a bool."""
    return type(value) is bool


def whole(value: Any) -> bool:
    """Accept an integer from 0 to 2^63 - 1: a count, a length, an epoch."""
    return type(value) is int and 0 <= value < _LARGEST


def seconds(value: Any) -> bool:
    """Accept seconds: a finite, non-negative number that can be shown (below 10^15)."""
    return type(value) in (int, float) and 0 <= value < 1e15


def metric(value: Any) -> bool:
    """Accept a number (NaN and infinities too), a bool, or None."""
    return value is None or type(value) in (bool, float) or (type(value) is int and _fits(value))


def _fits(value: int) -> bool:
    return value in _INT_64


def scalar(value: Any) -> bool:
    """Accept a metric or a string."""
    return metric(value) or text(value)


def text(value: Any) -> bool:
    """Accept a string that can be shown."""
    return type(value) is str and (value.isascii() or _SURROGATE.search(value) is None)


def time(value: Any) -> bool:
    """Accept a time in ISO 8601 with its zone."""
    if type(value) is not str:
        return False
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def named(pattern: str) -> Form:
    """Return the form of strings that ``pattern`` matches completely."""
    whole_text = re.compile(pattern)
    return lambda value: type(value) is str and whole_text.fullmatch(value) is not None


def one_of(*values: Any) -> Form:
    """Return the form of one of some strings, or None."""
    return lambda value: (
        (value is None and None in values) or (type(value) is str and value in values)
    )


def optional(form: Form) -> Form:
    """Return the form that accepts None too."""
    return lambda value: value is None or form(value)


def list_of(form: Form) -> Form:
    """Return the form of a list whose items have one form."""
    return lambda value: type(value) is list and (not value or all(map(form, value)))


def pair_of(*forms: Form) -> Form:
    """Return the form of a list of fixed length, each item of its own form."""

    def fits(value: Any) -> bool:
        if type(value) is not list or len(value) != len(forms):
            return False
        for form, item in zip(forms, value, strict=True):  # noqa: SIM110 - all() takes twice as long
            if not form(item):
                return False
        return True

    return fits


def mapping_of(form: Form, key: Form = text) -> Form:
    """Return the form of a mapping whose keys and values have one form each."""
    return lambda value: (
        type(value) is dict
        and (not value or (all(map(key, value)) and all(map(form, value.values()))))
    )


def record_of(required: Mapping[str, Form], maybe: Mapping[str, Form] | None = None) -> Form:
    """Return the form of a mapping with fields of their own forms; other fields are ignored."""
    return lambda value: not misfit(value, required, maybe)


def misfit(
    value: Any, required: Mapping[str, Form], maybe: Mapping[str, Form] | None = None
) -> str:
    """Return the name of the first field that is missing or lacks its form; empty if none.

    Fields of ``maybe`` may be missing.  A value that is not a mapping is called ``it``.
    """
    if type(value) is not dict:
        return "it"
    for name, form in required.items():
        if name not in value or not form(value[name]):
            return name
    if maybe:
        for name, form in maybe.items():
            if name in value and not form(value[name]):
                return name
    return ""
