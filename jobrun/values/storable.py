"""The check that the values of a workspace can be saved, and advice about those that cannot."""

from __future__ import annotations

from collections.abc import Iterator

from jobrun.core.names import CASE_HINT, case_twins
from jobrun.errors import ValueRefusedError
from jobrun.values.boxes import Box, Tree, Value
from jobrun.values.dtypes import why_not_saved
from jobrun.values.refusals import why_opaque

__all__ = ["check_storable", "is_storable"]


def check_storable(value: Value, name: str) -> None:
    """Raise ValueRefusedError, naming the leaf and the remedy, if ``value`` cannot be saved."""
    if is_storable(value):
        return
    if found := _twin_keys(value, name):
        path, (one, other) = found
        raise ValueRefusedError(
            f"blob {path!r} persists, but cannot be saved: its keys {one!r} and {other!r} differ "
            "in case only",
            hint=CASE_HINT,
        )
    for path, box in _named_leaves(value, name):
        reason = _why_not(box)
        if reason:
            raise ValueRefusedError(
                f"blob {path!r} persists, but cannot be saved: it is {reason[0]}", hint=reason[1]
            )


def is_storable(value: Value) -> bool:
    """Return whether ``value`` can be saved."""
    if type(value) is Box:
        return _why_not(value) is None
    assert isinstance(value, Tree)
    if value.kind != "list" and case_twins(value.items):
        return False
    return value.whole or all(map(is_storable, value.items.values()))


def _twin_keys(value: Value, path: str) -> tuple[str, tuple[str, str]] | None:
    """Return the first tree in a value with two keys that differ in case only, and these keys."""
    if not isinstance(value, Tree):
        return None
    if value.kind != "list" and (twins := case_twins(value.items)):
        return path, twins
    below = (_twin_keys(item, f"{path}/{key}") for key, item in value.items.items())
    return next(filter(None, below), None)


def _named_leaves(value: Value, name: str) -> Iterator[tuple[str, Box]]:
    """Yield every leaf with its path; keys that are no names stand in it as Python writes them."""
    if isinstance(value, Box):
        yield name, value
        return
    for (level, item), key in zip(value.items.items(), value.names, strict=True):
        below = f"{name}/{level}" if key == level else f"{name}[{key!r}]"
        yield from _named_leaves(item, below)


def _why_not(box: Box) -> tuple[str, str] | None:
    if box.kind in ("array", "scalar"):
        dtype = box.value.dtype
        why = why_not_saved(dtype)
        hint = "convert it with .astype(), e.g. to float64 or a 'U' dtype"
        return (f"of dtype {dtype}: {why}", hint) if why else None
    if box.kind != "opaque":
        return None
    return why_opaque(box.value)
