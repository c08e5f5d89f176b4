"""Validators of names, and of what is given for names: lists of them and mappings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from jobrun.core.suggestions import did_you_mean
from jobrun.core.text import either
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.names import blob_fault, reference_fault
from jobrun.jobspec.scalars import show
from jobrun.jobspec.value_validators import CALL_FORM, text_of
from jobrun.model.job import REDUCTIONS

__all__ = [
    "list_faults",
    "list_of",
    "metrics_of",
    "name_of",
    "names_of",
    "reductions_of",
    "state_of",
    "twice",
]

Check = Callable[[str], str | None]

_METRICS = "a name, a list of names, or a mapping {blob: min or max}"
_STATE = "a name, a list of names, or a mapping {name: adapter}"


def name_of(check: Check, what: str) -> Callable[[Any], str]:
    def validate(value: Any) -> str:
        fault = check(text_of(value, what))
        if fault:
            joined = "_".join(value.split())
            hint = "" if joined == value or check(joined) else f"write {joined}"
            raise refuse(FieldFault(f"is wrong: {fault}", hint))
        return str(value)

    return validate


def names_of(
    check: Check, what: str, parameter: Check | None = None, *, distinct: bool = True
) -> Callable[[Any], Any]:
    """Return a validator of a name, a list of names, or a mapping to names.

    Without a value a key stands for itself.
    """

    def validate(value: Any) -> Any:
        faults: list[FieldFault] = []
        if isinstance(value, str):
            faults += _name_faults(check, value, ())
        elif isinstance(value, list):
            faults += list_faults(check, value)
            faults += twice(list(enumerate(value))) if distinct else []
        elif isinstance(value, dict):
            for key, item in value.items():
                faults += _pair_faults(check, parameter, key, item)
            pairs = [(k, k if v is None else v) for k, v in value.items()]
            faults += twice(pairs) if distinct else []
        else:
            raise expected(what, value)
        if faults:
            raise refuse(*faults)
        return value

    return validate


def list_of(check: Check, what: str) -> Callable[[Any], list[str]]:
    """Return a validator of a name or a list of names, which it makes a list."""

    def validate(value: Any) -> list[str]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list):
            raise expected(what, value)
        faults = list_faults(check, names) + twice(list(enumerate(names)))
        if faults:
            raise refuse(*faults)
        return names

    return validate


def list_faults(check: Check, names: Sequence[object]) -> list[FieldFault]:
    """Return what is wrong with each of a list of names."""
    return [f for i, name in enumerate(names) for f in _name_faults(check, name, (i,))]


def _name_faults(check: Check, value: object, path: tuple[str | int, ...]) -> list[FieldFault]:
    if not isinstance(value, str):
        hint = "" if isinstance(value, dict | list) else "quote it if it is a name"
        return [FieldFault(f": expected a name, got {show(value)}", hint, path)]
    fault = check(value)
    return [FieldFault(f"is wrong: {fault}", _list_hint(value), path)] if fault else []


def _list_hint(text: str) -> str:
    """Return how the names of ``a, b``, ``a b`` or ``(a, b)`` are written as a list."""
    names = re.split(r"\s*[,;]\s*|\s+", text.strip("()[] "))
    if len(names) < 2 or not all(name.isidentifier() for name in names):
        return ""
    return f"a list: [{', '.join(names)}]"


def twice(names: Sequence[tuple[Any, object]]) -> list[FieldFault]:
    """Return names, each with its key, that have been there before."""
    seen: set[str] = set()
    found: list[FieldFault] = []
    for key, name in names:
        if not isinstance(name, str):
            continue
        if name in seen:
            found.append(FieldFault(f"has {name!r} twice", path=(key,)))
        seen.add(name)
    return found


def _pair_faults(
    check: Check, parameter: Check | None, key: object, item: object
) -> list[FieldFault]:
    path = (key,) if isinstance(key, str | int) else ()
    if not isinstance(key, str):
        return [
            FieldFault(f"has the key {show(key)}, which is not a name", "quote it", path, key=True)
        ]
    if parameter is not None:
        fault = parameter(key)
        if fault:
            return [FieldFault(fault, _colon_hint(key), path, key=True)]
    if parameter is not None and isinstance(item, int | float):
        hint = f"a value is given by with: {{{key}: {show(item)}}}"
        return [FieldFault(f": expected a name, got {show(item)}", hint, path)]
    if item is not None:
        return _name_faults(check, item, path)
    fault = check(key)
    return [FieldFault(f"is wrong: {fault}", _colon_hint(key), path, key=True)] if fault else []


def _colon_hint(key: str) -> str:
    left, colon, right = key.partition(":")
    if colon and left.isidentifier() and right:
        return f"write '{left}: {right}', with a space, or 'parameter: {key}'"
    return f"write 'parameter: {key}'" if not key.isidentifier() else ""


def state_of(value: Any) -> dict[str, str | None]:
    """Return names, or names with their adapters (``{name: adapter}``), as a mapping."""
    faults: list[FieldFault] = []
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        faults += [f for name, item in value.items() for f in _adapter_faults(name, item, (name,))]
        pairs += [(name, name) for name in value]
        found = value
    else:
        found = {}
        entries = [value] if isinstance(value, str) else value
        if not isinstance(entries, list):
            raise expected(_STATE, value)
        for number, entry in enumerate(entries):
            if isinstance(entry, dict):
                for name, item in entry.items():
                    faults += _adapter_faults(name, item, (number, name))
                    pairs.append((number, name))
                found.update(entry)
            else:
                faults += _name_faults(blob_fault, entry, (number,))
                pairs.append((number, entry))
                found[entry if isinstance(entry, str) else ""] = None
    faults += twice(pairs)
    if faults:
        raise refuse(*faults)
    return found


def _adapter_faults(name: object, item: object, path: tuple[Any, ...]) -> list[FieldFault]:
    fault = blob_fault(name) if isinstance(name, str) else f"{show(name)} is not a name"
    if fault:
        return [FieldFault(f"has a wrong name: {fault}", "", path, key=True)]
    if item is None or (isinstance(item, str) and CALL_FORM.fullmatch(item)):
        return []
    hint = "state: {env: mycode:EnvState}"
    return [FieldFault(f"expected an adapter, module:Class, got {show(item)}", hint, path)]


def metrics_of(value: Any) -> dict[str, str | None]:
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        text = ": expected names, or one mapping, got a list with a mapping"
        raise refuse(FieldFault(text, _one_mapping(value)))
    if isinstance(value, str | list):
        found = names_of(reference_fault, _METRICS)(value)
        return dict.fromkeys([found] if isinstance(found, str) else found)
    if not isinstance(value, dict):
        hint = "metrics: {loss: min, accuracy: max}"
        raise expected(_METRICS, value, hint)
    faults: list[FieldFault] = []
    for key, item in value.items():
        fault = reference_fault(key) if isinstance(key, str) else f"{show(key)} is not a name"
        if fault:
            faults.append(FieldFault(f"has a wrong name: {fault}", "", (key,), key=True))
        elif item not in ("min", "max", None) or isinstance(item, bool):
            begins = [word for word in ("min", "max") if str(item).lower().startswith(word)]
            hint = f"write {begins[0]}" if begins else ""
            if isinstance(item, str) and not begins:
                hint = did_you_mean(item, ("min", "max"))
            message = f": expected min, max or null, got {show(item)}"
            faults.append(FieldFault(message, hint, (key,)))
    if faults:
        raise refuse(*faults)
    return value


def _one_mapping(entries: list[Any]) -> str:
    """Return how a list of metrics, some with a direction, is written as one mapping."""
    pairs = [
        (name, item)
        for entry in entries
        for name, item in (entry.items() if isinstance(entry, dict) else [(entry, None)])
    ]
    if not all(isinstance(name, str) and item in ("min", "max", None) for name, item in pairs):
        return "metrics: {loss: min, accuracy: max}"
    named = ", ".join(f"{name}: {item or 'null'}" for name, item in pairs)
    return f"metrics: {{{named}}}"


def reductions_of(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise expected("a mapping of blobs to reductions", value, "reduce: {loss: last}")
    faults: list[FieldFault] = []
    for key, item in value.items():
        if not isinstance(item, str) or item not in REDUCTIONS:
            hint = did_you_mean(item, REDUCTIONS) if isinstance(item, str) else ""
            message = f": expected {either(REDUCTIONS)}, got {show(item)}"
            faults.append(FieldFault(message, hint, (key,)))
    if faults:
        raise refuse(*faults)
    return value
