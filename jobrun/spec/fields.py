"""The types of a spec's fields: what a value may be, and what is said where it is something else.

Each is one function and no union, so that a wrong value gives one error and not one for each form
it might have had.  The unions stand in the JSON Schema alone.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from jobrun.duration import TIMES, duration
from jobrun.errors import did_you_mean
from jobrun.job import REDUCTIONS, SHARD
from jobrun.shell import dtype_fault, split
from jobrun.spec.closed import ClosedModel
from jobrun.spec.faults import Fault, refuse, wants
from jobrun.spec.names import (
    blob_fault,
    node_fault,
    output_fault,
    plain_fault,
    reference_fault,
)
from jobrun.spec.scalars import show
from jobrun.template import TemplateError, template

__all__ = [
    "After",
    "BlobName",
    "BufferModel",
    "Call",
    "Columns",
    "Command",
    "Count",
    "Dtype",
    "FilePath",
    "Globs",
    "Inputs",
    "Loaded",
    "Metrics",
    "Name",
    "NodePattern",
    "Nodes",
    "Outs",
    "Reductions",
    "RunPath",
    "Script",
    "Seconds",
    "Shard",
    "Shuffle",
    "TaskInputs",
    "Types",
    "Updates",
    "Vars",
    "With",
]

Check = Callable[[str], str | None]

CALL_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ENDINGS = (".npz", ".npy", ".csv", ".tsv", ".jsonl", ".txt", ".zarr")
_TYPES = ("int", "float", "text")
_RENAME = "write a mapping: {column: its name in the file}"
_SHARD = "'node', or i/n, each a number or a var, i counted from 0"
_COUNT = "a whole number from 1 up, or the name of a var or blob that holds one"


def _text(value: Any, what: str = "a text") -> str:
    if not isinstance(value, str):
        hint = "quote it" if isinstance(value, int | float) else ""
        raise wants(what, value, hint)
    return value


def _checked(check: Check, what: str) -> Callable[[Any], str]:
    def validate(value: Any) -> str:
        fault = check(_text(value, what))
        if fault:
            raise refuse(Fault(f"is wrong: {fault}"))
        return str(value)

    return validate


def _call(value: Any) -> str:
    text = _text(value, "a function, module:function")
    if CALL_FORM.fullmatch(text) and ".py:" not in text:
        return text
    hint = ""
    module, dot, function = text.rpartition(".")
    if text.count(":") == 1 and ".py:" in text:
        hint = f"write {text.replace('.py:', ':').replace('/', '.')}"
    elif ":" not in text and dot and CALL_FORM.fullmatch(f"{module}:{function}"):
        hint = f"write {module}:{function}"
    raise refuse(Fault(f"wants module:function, not {show(value)}", hint))


def _command(value: Any) -> str:
    text = _text(value, "the words of a command")
    faults = template_faults(text, ())
    if faults:
        raise refuse(*faults)
    try:
        split(text)
    except ValueError as error:
        raise refuse(Fault(f"is wrong: {error}")) from None
    return text


def _script(value: Any) -> str:
    text = _text(value, "the text of a script")
    if not text.strip():
        raise refuse(Fault("is an empty script"))
    return text


def _count(value: Any) -> int | str:
    if isinstance(value, str):
        fault = "write it without quotes" * value.isdigit() or reference_fault(value)
        if fault:
            raise wants(_COUNT, value, fault)
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wants(_COUNT, value)
    return value


def _seconds(value: Any) -> float:
    seconds = duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise wants(TIMES, value)
    return float(seconds)


def _names(
    check: Check, what: str, parameter: Check | None = None, *, distinct: bool = True
) -> Callable[[Any], Any]:
    """A name, a list of names, or a mapping to names; without a value a key stands for itself."""

    def validate(value: Any) -> Any:
        faults: list[Fault] = []
        if isinstance(value, str):
            faults += _name_faults(check, value, ())
        elif isinstance(value, list):
            faults += _list_faults(check, value)
            faults += _twice(list(enumerate(value))) if distinct else []
        elif isinstance(value, dict):
            for key, item in value.items():
                faults += _pair_faults(check, parameter, key, item)
            pairs = [(k, k if v is None else v) for k, v in value.items()]
            faults += _twice(pairs) if distinct else []
        else:
            raise wants(what, value)
        if faults:
            raise refuse(*faults)
        return value

    return validate


def _task_inputs(value: Any, info: ValidationInfo) -> Any:
    """The keys are parameters, of a function; those of a program are files, which Task checks."""
    of_program = "shell" not in info.data or info.data["shell"] is not None
    return _names(reference_fault, _IN, None if of_program else _parameter, distinct=False)(value)


def _listed(check: Check, what: str) -> Callable[[Any], list[str]]:
    """A name or a list of names, as a list."""

    def validate(value: Any) -> list[str]:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list):
            raise wants(what, value)
        faults = _list_faults(check, names) + _twice(list(enumerate(names)))
        if faults:
            raise refuse(*faults)
        return names

    return validate


def _list_faults(check: Check, names: Sequence[object]) -> list[Fault]:
    return [f for i, name in enumerate(names) for f in _name_faults(check, name, (i,))]


def _name_faults(check: Check, value: object, path: tuple[str | int, ...]) -> list[Fault]:
    if not isinstance(value, str):
        hint = "" if isinstance(value, dict | list) else "quote it if it is a name"
        return [Fault(f"wants a name, not {show(value)}", hint, path)]
    fault = check(value)
    return [Fault(f"is wrong: {fault}", path=path)] if fault else []


def _twice(names: Sequence[tuple[Any, object]]) -> list[Fault]:
    """Names, each with its key, that have been there before."""
    seen: set[str] = set()
    found: list[Fault] = []
    for key, name in names:
        if not isinstance(name, str):
            continue
        if name in seen:
            found.append(Fault(f"has {name!r} twice", path=(key,)))
        seen.add(name)
    return found


def _pair_faults(check: Check, parameter: Check | None, key: object, item: object) -> list[Fault]:
    path = (key,) if isinstance(key, str | int) else ()
    if not isinstance(key, str):
        return [Fault(f"has the key {show(key)}, which is no name", "quote it", path, key=True)]
    if parameter is not None:
        fault = parameter(key)
        if fault:
            return [Fault(fault, _colon_hint(key), path, key=True)]
    if item is not None:
        return _name_faults(check, item, path)
    fault = check(key)
    return [Fault(f"is wrong: {fault}", _colon_hint(key), path, key=True)] if fault else []


def _colon_hint(key: str) -> str:
    left, colon, right = key.partition(":")
    if colon and left.isidentifier() and right:
        return f"write '{left}: {right}', with a space, or 'parameter: {key}'"
    return f"write 'parameter: {key}'" if not key.isidentifier() else ""


def _parameter(key: str) -> str | None:
    if not key.isidentifier() or keyword.iskeyword(key):
        return f"has {key!r}, which is no parameter of a function"
    return None


def _with(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wants("a mapping of parameters to values", value)
    if faults := with_form(value):
        raise refuse(*faults)
    return value


def with_form(value: dict[Any, Any], path: tuple[Any, ...] = ()) -> list[Fault]:
    """What is wrong with literal keyword arguments."""
    faults: list[Fault] = []
    for key, item in value.items():
        fault = _parameter(key) if isinstance(key, str) else f"has the key {show(key)}"
        if fault:
            faults.append(Fault(fault, path=(*path, key), key=True))
        faults += template_faults(item, (*path, key))
    return faults


def template_faults(value: Any, path: tuple[Any, ...]) -> list[Fault]:
    """What is wrong with the ``${…}`` of the texts in a value."""
    if isinstance(value, str):
        if "${" not in value:
            return []
        try:
            template(value)
        except TemplateError as error:
            return [Fault(f": {error.message}", error.hint, path, offset=error.offset)]
        return []
    if isinstance(value, dict):
        return [f for k, v in value.items() for f in template_faults(v, (*path, k))]
    if isinstance(value, list):
        return [f for i, v in enumerate(value) for f in template_faults(v, (*path, i))]
    return []


def _file(value: Any) -> str:
    text = _text(value, "the path of a file")
    faults = template_faults(text, ())
    if faults:
        raise refuse(*faults)
    if not text.endswith(_ENDINGS) and not any(p.endswith(".zarr") for p in text.split("/")):
        known = ", ".join(_ENDINGS[:-1])
        raise refuse(Fault(f"wants a {known} or {_ENDINGS[-1]} file, not {show(value)}"))
    return text


def _columns(value: Any, info: ValidationInfo) -> Any:
    """The columns of a pipe: blobs, or whatever names a file or an item has for them."""
    given = info.data
    if given.get("file") is None and given.get("call") is None:
        return _names(reference_fault, _FROM, plain_fault, distinct=False)(value)
    return _names(_foreign_fault, _FROM, plain_fault, distinct=False)(
        _named_after_themselves(value)
    )


def _named_after_themselves(value: Any) -> Any:
    """Names in a list, and keys without a value, must be names of columns themselves."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list):
        faults = _list_faults(plain_fault, names)
        if faults:
            raise refuse(*(Fault(f.message, _RENAME, f.path) for f in faults))
    return value


def _foreign_fault(name: str) -> str | None:
    return None if name else "an empty name"


def _types(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wants("a mapping of columns to int, float or text", value, "types: {id: text}")
    faults = [
        Fault(
            f"wants {', '.join(_TYPES[:-1])} or {_TYPES[-1]}, not {show(item)}",
            did_you_mean(item, _TYPES) if isinstance(item, str) else "",
            (key,),
        )
        for key, item in value.items()
        if item not in _TYPES or isinstance(item, bool)
    ]
    if faults:
        raise refuse(*faults)
    return value


def _shuffle(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict) or list(value) != ["buffer"]:
        hint = f"in YAML 1.2 {value!r} is a text" if value in ("yes", "no", "on", "off") else ""
        raise wants("true or false, or {buffer: rows}", value, hint)
    try:
        return {"buffer": _count(value["buffer"])}
    except PydanticCustomError as error:
        faults = (error.context or {})["faults"]
        raise refuse(*(Fault(f.message, f.hint, ("buffer",)) for f in faults)) from None


def _shard(value: Any) -> str:
    text = _text(value, _SHARD)
    if text != "node" and not SHARD.fullmatch(text):
        raise wants(_SHARD, value)
    return text


def _run_path(value: Any) -> str:
    text = _text(value, "the directory of a run or checkpoint")
    faults = template_faults(text, ())
    if faults or not text:
        raise refuse(*faults or [Fault("is an empty path")])
    return text


def _vars(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wants("a mapping of names to values", value)
    faults: list[Fault] = []
    for key, item in value.items():
        if not isinstance(key, str):
            text = f"has the key {show(key)}, which is no name"
            faults.append(Fault(text, "quote it", (key,), key=True))
            continue
        fault = output_fault(key) or (f"{key!r} is the name of a node's blob" * (":" in key))
        if fault:
            faults.append(Fault(f"has a wrong name: {fault}", path=(key,), key=True))
        faults += _var_faults(item, (key,))
    if faults:
        raise refuse(*faults)
    return value


def _var_faults(value: Any, path: tuple[Any, ...]) -> list[Fault]:
    """A var is read like a blob: texts are as they are, keys of mappings are names."""
    if isinstance(value, str) and "${" in value:
        return [Fault("holds '${…}', which is for 'with' and paths", path=path)]
    if isinstance(value, list):
        return [f for i, v in enumerate(value) for f in _var_faults(v, (*path, i))]
    found: list[Fault] = []
    if isinstance(value, dict):
        for key, item in value.items():
            fault = blob_fault(key) if isinstance(key, str) else f"{show(key)} is no name"
            if fault:
                found.append(Fault(f"has a wrong key: {fault}", "", (*path, key), key=True))
            found += _var_faults(item, (*path, key))
    return found


def _nodes(value: Any) -> Any:
    if isinstance(value, list):
        items: list[tuple[Any, tuple[Any, ...]]] = [(v, (i,)) for i, v in enumerate(value)]
        faults = _twice(list(enumerate(value)))
    elif isinstance(value, dict):
        items, faults = [(k, (k,)) for k in value], []
    else:
        raise wants("a list of names, or a mapping of names to vars", value)
    if not items:
        raise refuse(Fault("names no node", "name one, or remove the key"))
    for name, path in items:
        fault = plain_fault(name) if isinstance(name, str) else f"{show(name)} is no name"
        if fault is None and name == "best":
            fault = "'best' stands for the best checkpoint"
        if fault:
            faults.append(Fault(f"has a wrong name: {fault}", "", path, isinstance(value, dict)))
    if isinstance(value, dict):
        faults += _node_vars_faults(value)
    if faults:
        raise refuse(*faults)
    return value


def _node_vars_faults(nodes: Mapping[Any, Any]) -> list[Fault]:
    found: list[Fault] = []
    for name, own in nodes.items():
        try:
            _vars(own)
        except PydanticCustomError as error:
            found += [
                Fault(f.message, f.hint, (name, *f.path), f.key, f.offset)
                for f in (error.context or {})["faults"]
            ]
    return found


def _metrics(value: Any) -> dict[str, str | None]:
    if not isinstance(value, dict):
        hint = "metrics: {loss: min, accuracy: max}"
        raise wants("a mapping of blobs to what is better", value, hint)
    faults: list[Fault] = []
    for key, item in value.items():
        fault = reference_fault(key) if isinstance(key, str) else f"{show(key)} is no name"
        if fault:
            faults.append(Fault(f"has a wrong name: {fault}", "", (key,), key=True))
        elif item not in ("min", "max", None) or isinstance(item, bool):
            hint = did_you_mean(item, ("min", "max")) if isinstance(item, str) else ""
            message = f"wants min, max or null, not {show(item)}"
            faults.append(Fault(message, hint, (key,)))
    if faults:
        raise refuse(*faults)
    return value


def _reduce(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wants("a mapping of blobs to reductions", value, "reduce: {loss: last}")
    faults: list[Fault] = []
    for key, item in value.items():
        if not isinstance(item, str) or item not in REDUCTIONS:
            hint = did_you_mean(item, REDUCTIONS) if isinstance(item, str) else ""
            message = f"wants {', '.join(REDUCTIONS[:-1])} or {REDUCTIONS[-1]}, not {show(item)}"
            faults.append(Fault(message, hint, (key,)))
    if faults:
        raise refuse(*faults)
    return value


class BufferModel(ClosedModel):
    """Shuffling within blocks, for what is read from front to back."""

    buffer: Annotated[int, Field(ge=1)] | str = Field(
        description="Rows of a block: a number, or a var or blob that holds one."
    )


_NameForms = str | list[str] | dict[str, str | None]
_IN = "a name, a list of names, or a mapping {parameter: name}"
_OUT = "a name, a list of names, or a mapping {key of the result: name}"
_LOADED = "a name, a list of names, or a mapping {name there: name here}"
_FROM = "a blob, a list of blobs, or a mapping {column: blob}"


def _annotated(validator: Callable[..., Any], schema: Any) -> BeforeValidator:
    return BeforeValidator(validator, json_schema_input_type=schema)


def _like(pattern: str) -> Any:
    """A text of a form, for the JSON Schema: at least as wide as the validator."""
    return Annotated[str, Field(pattern=pattern)]


_NUMBER = r"[0-9][0-9. ]*"
_Time = _like(rf"^ *({_NUMBER}h *)?({_NUMBER}m *)?({_NUMBER}s *)?$")
_Positive = Annotated[int, Field(ge=1)]
Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[
    str, _annotated(_checked(plain_fault, "a name"), _like("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"))
]
NodePattern = Annotated[str, BeforeValidator(_checked(node_fault, "a node or pattern of nodes"))]
BlobName = Annotated[str, BeforeValidator(_checked(reference_fault, "the name of a blob"))]
Call = Annotated[str, _annotated(_call, _like(r"^[^:\s]+:[^:\s]+$"))]
FilePath = Annotated[str, BeforeValidator(_file)]
Command = Annotated[str, BeforeValidator(_command)]
Script = Annotated[str, _annotated(_script, _like(r"\S"))]
Dtype = Annotated[str, BeforeValidator(_checked(dtype_fault, "a dtype"))]
Count = Annotated[Any, _annotated(_count, _Positive | _like("[^0-9]"))]
Seconds = Annotated[Any, _annotated(_seconds, Annotated[float, Field(gt=0)] | _Time)]
Inputs = Annotated[
    Any, _annotated(_names(reference_fault, _IN, _parameter, distinct=False), _NameForms)
]
TaskInputs = Annotated[Any, _annotated(_task_inputs, _NameForms)]
Updates = Annotated[Any, _annotated(_names(output_fault, _IN, _parameter), _NameForms)]
Outs = Annotated[Any, _annotated(_names(output_fault, _OUT), _NameForms)]
Loaded = Annotated[Any, _annotated(_names(output_fault, _LOADED), _NameForms)]
RunPath = Annotated[str, BeforeValidator(_run_path)]
Columns = Annotated[Any, _annotated(_columns, _NameForms)]
Types = Annotated[dict[str, str], _annotated(_types, dict[str, Literal["int", "float", "text"]])]
Shuffle = Annotated[Any, _annotated(_shuffle, bool | BufferModel)]
Shard = Annotated[str, _annotated(_shard, _like("^(node|[^/]+/[^/]+)$"))]
After = Annotated[
    Any, _annotated(_listed(plain_fault, "a task, or a list of tasks"), str | list[str])
]
Globs = Annotated[
    Any, _annotated(_listed(lambda _: None, "a list of names or patterns"), str | list[str])
]
With = Annotated[dict[str, Any], BeforeValidator(_with)]
Vars = Annotated[dict[str, Any], _annotated(_vars, dict[str, Any] | None)]
_SomeNames = Annotated[list[str], Field(min_length=1)]
_VarsByNode = Annotated[dict[str, dict[str, Any] | None], Field(min_length=1)]
Nodes = Annotated[Any, _annotated(_nodes, _SomeNames | _VarsByNode)]
Metrics = Annotated[
    Any,
    _annotated(_metrics, dict[str, Literal["min", "max"] | None]),
]
Reductions = Annotated[
    Any,
    _annotated(_reduce, dict[str, Literal["mean", "last", "sum", "min", "max"]]),
]
