"""The types of a spec's fields: what a value may be, and what is said where it is something else.

Each is one function and no union, so that a wrong value gives one error and not one for each form
it might have had.  The unions stand in the JSON Schema alone.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from jobrun.core.suggestions import did_you_mean
from jobrun.core.template import TemplateError, template
from jobrun.core.text import TIMES, either, seconds_of
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.names import (
    blob_fault,
    node_fault,
    output_fault,
    pattern_fault,
    plain_fault,
    reference_fault,
)
from jobrun.jobspec.node_reductions import InputForms, with_reductions
from jobrun.jobspec.scalars import show
from jobrun.model.job import REDUCTIONS
from jobrun.model.shell import dtype_fault, split

__all__ = [
    "CALL_FORM",
    "After",
    "BlobName",
    "Call",
    "ColumnName",
    "Command",
    "Count",
    "Dtype",
    "Globs",
    "Inputs",
    "Loaded",
    "Metrics",
    "Name",
    "NameForms",
    "NodePattern",
    "Outs",
    "Reductions",
    "RunPath",
    "Script",
    "Seconds",
    "State",
    "StateNames",
    "StepInputs",
    "TaskInputs",
    "Updates",
    "With",
    "annotated",
    "count_of",
    "like",
    "list_faults",
    "names_of",
    "template_faults",
    "text_of",
    "twice",
    "with_form",
]

Check = Callable[[str], str | None]

CALL_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_CALLED = re.compile(r"([A-Za-z_][\w.]*)[.:]([A-Za-z_]\w*)\(.*\)")
_COUNT = "a whole number from 1 up, or the name of a var or blob that holds one"


def text_of(value: Any, what: str = "a string") -> str:
    """Return a value that is a string; else raise an error that expected ``what``."""
    if not isinstance(value, str):
        hint = "quote it" if isinstance(value, int | float) else ""
        raise expected(what, value, hint)
    return value


def _checked(check: Check, what: str) -> Callable[[Any], str]:
    def validate(value: Any) -> str:
        fault = check(text_of(value, what))
        if fault:
            joined = "_".join(value.split())
            hint = "" if joined == value or check(joined) else f"write {joined}"
            raise refuse(FieldFault(f"is wrong: {fault}", hint))
        return str(value)

    return validate


def _call(value: Any) -> str:
    text = text_of(value, "a function, module:function")
    if CALL_FORM.fullmatch(text) and ".py:" not in text:
        return text
    hint = ""
    module, dot, function = text.rpartition(".")
    if called := _CALLED.fullmatch(text):
        hint = f"write {called[1]}:{called[2]}; what it is called with is under 'in' and 'with'"
    elif text.count(":") == 1 and ".py:" in text:
        hint = f"write {text.replace('.py:', ':').replace('/', '.')}"
    elif "-" in text and CALL_FORM.fullmatch(python_name := text.replace("-", "_")):
        hint = f"a name in Python has no '-': rename it, and write {python_name}"
    elif ":" not in text and dot and CALL_FORM.fullmatch(f"{module}:{function}"):
        hint = f"write {module}:{function}"
    raise refuse(FieldFault(f": expected module:function, got {show(value)}", hint))


def _command(value: Any) -> str:
    text = text_of(value, "the words of a command")
    faults = template_faults(text, ())
    if faults:
        raise refuse(*faults)
    try:
        split(text)
    except ValueError as error:
        raise refuse(FieldFault(f"is wrong: {error}")) from None
    return text


def _script(value: Any) -> str:
    text = text_of(value, "the text of a script")
    if not text.strip():
        raise refuse(FieldFault("is an empty script"))
    return text


def count_of(value: Any) -> int | str:
    """Return a whole number from 1 up, or a name."""
    if isinstance(value, str):
        fault = "write it without quotes" * value.isdigit() or reference_fault(value)
        if fault:
            raise expected(_COUNT, value, fault)
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise expected(_COUNT, value)
    return value


def _seconds(value: Any) -> float:
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise expected(TIMES, value)
    try:
        return float(seconds)
    except OverflowError:  # an int that no float can hold
        raise expected(TIMES, value) from None


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


def _task_inputs(value: Any, info: ValidationInfo) -> Any:
    """The keys are parameters, of a function; those of a program are files, which Task checks."""
    of_program = "shell" not in info.data or info.data["shell"] is not None
    return names_of(reference_fault, _IN, None if of_program else _parameter, distinct=False)(value)


def _listed(check: Check, what: str) -> Callable[[Any], list[str]]:
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


def _parameter(key: str) -> str | None:
    if not key.isidentifier() or keyword.iskeyword(key):
        return f"has {key!r}, which is not a parameter of a function"
    return None


def _with(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise expected("a mapping of parameters to values", value)
    if faults := with_form(value):
        raise refuse(*faults)
    return value


def with_form(value: dict[Any, Any], path: tuple[Any, ...] = ()) -> list[FieldFault]:
    """Return what is wrong with literal keyword arguments."""
    faults: list[FieldFault] = []
    for key, item in value.items():
        fault = _parameter(key) if isinstance(key, str) else f"has the key {show(key)}"
        if fault:
            faults.append(FieldFault(fault, path=(*path, key), key=True))
        faults += template_faults(item, (*path, key))
    return faults


def template_faults(value: Any, path: tuple[Any, ...]) -> list[FieldFault]:
    """Return what is wrong with the ``${…}`` of the texts in a value."""
    if isinstance(value, str):
        if "${" not in value:
            return []
        try:
            template(value)
        except TemplateError as error:
            return [FieldFault(f": {error.message}", error.hint, path, offset=error.offset)]
        return []
    if isinstance(value, dict):
        return [f for k, v in value.items() for f in template_faults(v, (*path, k))]
    if isinstance(value, list):
        return [f for i, v in enumerate(value) for f in template_faults(v, (*path, i))]
    return []


def _run_path(value: Any) -> str:
    text = text_of(value, "the directory of a run or checkpoint")
    faults = template_faults(text, ())
    if faults or not text:
        raise refuse(*faults or [FieldFault("is an empty path")])
    return text


def _state(value: Any) -> dict[str, str | None]:
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


def _metrics(value: Any) -> dict[str, str | None]:
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


def _reduce(value: Any) -> dict[str, str]:
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


_METRICS = "a name, a list of names, or a mapping {blob: min or max}"
NameForms = str | list[str] | dict[str, str | None]
_IN = "a name, a list of names, or a mapping {parameter: name}"
_OUT = "a name, a list of names, or a mapping {key of the result: name}"
_STATE = "a name, a list of names, or a mapping {name: adapter}"
_LOADED = "a name, a list of names, or a mapping {name there: name here}"


def annotated(validator: Callable[..., Any], schema: Any) -> BeforeValidator:
    """Return a validator, with the type that stands for its forms in the JSON Schema."""
    return BeforeValidator(validator, json_schema_input_type=schema)


def like(pattern: str, what: str) -> Any:
    """Return a string of a form, for the JSON Schema: at least as wide as the validator.

    ``what`` is the form in words, which editors show where the pattern does not match.
    """
    extra: dict[str, Any] = {"patternErrorMessage": f"expected {what}"}
    return Annotated[str, Field(pattern=pattern, json_schema_extra=extra)]


def _says(what: str) -> dict[str, Any]:
    """Return what makes editors say ``what`` is expected, where the type is another."""
    return {"errorMessage": f"expected {what}"}


_NUMBER = r"[0-9][0-9. ]*"
_Time = like(rf"^ *({_NUMBER}h *)?({_NUMBER}m *)?({_NUMBER}s *)?$", TIMES)
_Positive = Annotated[int, Field(ge=1, json_schema_extra=_says(_COUNT))]
_PositiveSeconds = Annotated[float, Field(gt=0, json_schema_extra=_says(TIMES))]
Name = Annotated[
    str,
    annotated(
        _checked(plain_fault, "a name"),
        like("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", "a name of letters, digits, '_', '.' and '-'"),
    ),
]
NodePattern = Annotated[str, BeforeValidator(_checked(node_fault, "a node or pattern of nodes"))]
ColumnName = Annotated[str, BeforeValidator(_checked(blob_fault, "the name of a column"))]
BlobName = Annotated[str, BeforeValidator(_checked(reference_fault, "the name of a blob"))]
Call = Annotated[str, annotated(_call, like(r"^[^:\s]+:[^:\s]+$", "module:function"))]
Command = Annotated[str, BeforeValidator(_command)]
Script = Annotated[str, annotated(_script, like(r"\S", "a script that is not empty"))]
Dtype = Annotated[str, BeforeValidator(_checked(dtype_fault, "a dtype"))]
Count = Annotated[
    Any,
    annotated(
        count_of,
        _Positive | like("[^0-9]", "the name of a var or blob that holds a number"),
    ),
]
Seconds = Annotated[Any, annotated(_seconds, _PositiveSeconds | _Time)]
Inputs = Annotated[
    Any, annotated(names_of(reference_fault, _IN, _parameter, distinct=False), NameForms)
]
TaskInputs = Annotated[Any, annotated(with_reductions(_task_inputs), InputForms)]
StepInputs = Annotated[
    Any,
    annotated(
        with_reductions(names_of(reference_fault, _IN, _parameter, distinct=False)), InputForms
    ),
]
Updates = Annotated[Any, annotated(names_of(output_fault, _IN, _parameter), NameForms)]
Outs = Annotated[Any, annotated(names_of(output_fault, _OUT), NameForms)]
Loaded = Annotated[Any, annotated(names_of(output_fault, _LOADED), NameForms)]
RunPath = Annotated[str, BeforeValidator(_run_path)]
After = Annotated[
    Any, annotated(_listed(plain_fault, "a task, or a list of tasks"), str | list[str])
]
Globs = Annotated[
    Any, annotated(_listed(pattern_fault, "a list of names or patterns"), str | list[str])
]
_Adapter: Any = like(r"^[^:\s]+:[^:\s]+$", "an adapter, module:Class")
_Adapters: Any = dict[str, _Adapter | None]
State = Annotated[Any, annotated(_state, str | list[str | _Adapters] | _Adapters)]
StateNames = Annotated[
    Any, annotated(_listed(blob_fault, "a name, or a list of names"), str | list[str])
]
With = Annotated[dict[str, Any], BeforeValidator(_with)]
Metrics = Annotated[
    Any,
    annotated(_metrics, str | list[str] | dict[str, Literal["min", "max"] | None]),
]
Reductions = Annotated[
    Any,
    annotated(_reduce, dict[str, Literal["mean", "last", "sum", "min", "max"]]),
]
