"""Which values of a workspace can be saved, and what to do about the others."""

from __future__ import annotations

import numpy as np

from jobrun.core.names import CASE_HINT, case_twins
from jobrun.errors import ValueRefusedError, with_article
from jobrun.values.adapted import take_apart
from jobrun.values.boxes import Box, Tree, Value, leaves
from jobrun.values.dtypes import why_not_saved

__all__ = ["check_storable", "is_storable"]


def check_storable(value: Value, name: str) -> None:
    """Raise ValueRefusedError, naming the leaf and the remedy, if ``value`` cannot be saved."""
    if found := _twin_keys(value, name):
        path, (one, other) = found
        raise ValueRefusedError(
            f"blob {path!r} persists, but cannot be saved: its keys {one!r} and {other!r} differ "
            "in case only",
            hint=CASE_HINT,
        )
    for path, box in leaves(value, name):
        reason = _why_not(box)
        if reason:
            raise ValueRefusedError(
                f"blob {path!r} persists, but cannot be saved: it is {reason[0]}", hint=reason[1]
            )


def is_storable(value: Value) -> bool:
    """Return whether ``value`` can be saved."""
    return not _twin_keys(value, "") and all(_why_not(box) is None for _, box in leaves(value))


def _twin_keys(value: Value, path: str) -> tuple[str, tuple[str, str]] | None:
    """Return the first tree in a value with two keys that differ in case only, and these keys."""
    if not isinstance(value, Tree):
        return None
    if value.kind != "list" and (twins := case_twins(value.items)):
        return path, twins
    below = (_twin_keys(item, f"{path}/{key}") for key, item in value.items.items())
    return next(filter(None, below), None)


def _why_not(box: Box) -> tuple[str, str] | None:
    if box.kind in ("array", "scalar"):
        dtype = box.value.dtype
        why = why_not_saved(dtype)
        hint = "convert it with .astype(), e.g. to float64 or a 'U' dtype"
        return (f"of dtype {dtype}: {why}", hint) if why else None
    if box.kind != "opaque":
        return None
    obj = box.value
    name = f"{type(obj).__module__}.{type(obj).__qualname__}".removeprefix("builtins.")
    if refusal := _refusal(obj):
        return f"{with_article(name)}: {refusal.message}", refusal.hint
    if isinstance(obj, np.ndarray):
        what = "an array of Python objects"
        return (
            what if obj.dtype.hasobject else with_article(type(obj).__name__),
            "turn it into an array of numbers or fixed strings",
        )
    if isinstance(obj, dict):
        return (
            f"{with_article(type(obj).__name__)} whose keys are not all strings, numbers or tuples",
            "keys are strings, numbers, None, and tuples of these; dict(x) makes a plain dict",
        )
    return (
        with_article(name),
        "blobs that persist are arrays, numbers, strings, and dicts, lists and tuples of those; "
        "what can be rebuilt belongs in 'setup'",
    )


def _refusal(obj: object) -> ValueRefusedError | None:
    """Return why the adapter of an object does not take it apart; None if it does, or is none."""
    try:
        take_apart(obj)
    except ValueRefusedError as error:
        return error
    return None
