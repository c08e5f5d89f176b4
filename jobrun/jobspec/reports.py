"""``report``: the reporters of the run, beside the terminal and the files of the run."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from jobrun.jobspec.faults import FieldFault, refuse
from jobrun.jobspec.scalars import show
from jobrun.jobspec.value_validators import CALL_FORM, template_faults, with_form

__all__ = ["Reports", "reporter_parts"]

_WHAT = "a reporter: a name, {name: options}, or {call: module:function, with: {…}}"


def reporter_parts(entry: Any) -> tuple[str, Any, dict[str, Any]]:
    """Return the name, the value and the options of an entry that fits the language."""
    if isinstance(entry, str):
        return entry, None, {}
    if "call" in entry:
        return entry["call"], None, entry.get("with", {})
    ((name, given),) = entry.items()
    return (name, None, given) if isinstance(given, dict) else (name, given, {})


def _reports(value: Any) -> list[Any]:
    entries = value if isinstance(value, list) else [value]
    faults: list[FieldFault] = []
    for number, entry in enumerate(entries):
        path = (number,) if isinstance(value, list) else ()
        faults += _faults(entry, path)
    if faults:
        raise refuse(*faults)
    return entries


def _faults(entry: Any, path: tuple[Any, ...]) -> list[FieldFault]:
    if isinstance(entry, str) and entry:
        if ":" in entry:
            hint = f"{{call: {entry}}}" if CALL_FORM.fullmatch(entry) else "{name: value}"
            return [FieldFault(f": expected {_WHAT}, got {show(entry)}", f"write {hint}", path)]
        return []
    if not isinstance(entry, dict):
        return [FieldFault(f": expected {_WHAT}, got {show(entry)}", "", path)]
    if "call" in entry:
        return _call_faults(entry, path)
    if len(entry) != 1 or not all(isinstance(name, str) for name in entry):
        return [FieldFault(f": expected {_WHAT}, got {show(entry)}", "one reporter an entry", path)]
    ((name, given),) = entry.items()
    if isinstance(given, dict):
        return _option_faults(given, (*path, name))
    if isinstance(given, list):
        return [
            FieldFault(f": expected one value or a mapping of options, got {show(given)}", "", path)
        ]
    return template_faults(given, (*path, name))


def _call_faults(entry: dict[Any, Any], path: tuple[Any, ...]) -> list[FieldFault]:
    call = entry["call"]
    if not isinstance(call, str) or not CALL_FORM.fullmatch(call):
        return [FieldFault(f": expected module:function, got {show(call)}", "", (*path, "call"))]
    faults = [
        FieldFault(
            f"|a reporter has no {key!r}", "it has 'call' and 'with'", (*path, key), key=True
        )
        for key in entry
        if key not in ("call", "with")
    ]
    return faults + _option_faults(entry.get("with", {}), (*path, "with"))


def _option_faults(options: Any, path: tuple[Any, ...]) -> list[FieldFault]:
    if not isinstance(options, dict):
        return [FieldFault(f": expected a mapping of options, got {show(options)}", "", path)]
    return with_form(options, path)


_Entry = str | dict[str, Any]
Reports = Annotated[
    list[Any], BeforeValidator(_reports, json_schema_input_type=_Entry | list[_Entry])
]
