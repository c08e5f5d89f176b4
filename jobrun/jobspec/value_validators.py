"""Validators of the values of a spec: functions, commands, counts, times and literals."""

from __future__ import annotations

import keyword
import re
from typing import Any

from jobrun.core.template import TemplateError, template
from jobrun.core.text import TIMES, seconds_of
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.names import reference_fault
from jobrun.jobspec.scalars import show
from jobrun.model.shell import split

__all__ = [
    "CALL_FORM",
    "COUNT",
    "call_of",
    "command_of",
    "count_of",
    "literals_of",
    "parameter_fault",
    "run_path_of",
    "script_of",
    "seconds_from",
    "template_faults",
    "text_of",
    "with_form",
]

CALL_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
COUNT = "a whole number from 1 up, or the name of a var or blob that holds one"
_CALLED = re.compile(r"([A-Za-z_][\w.]*)[.:]([A-Za-z_]\w*)\(.*\)")


def text_of(value: Any, what: str = "a string") -> str:
    """Return a value that is a string; else raise an error that expected ``what``."""
    if not isinstance(value, str):
        hint = "quote it" if isinstance(value, int | float) else ""
        raise expected(what, value, hint)
    return value


def call_of(value: Any) -> str:
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


def command_of(value: Any) -> str:
    text = text_of(value, "the words of a command")
    faults = template_faults(text, ())
    if faults:
        raise refuse(*faults)
    try:
        split(text)
    except ValueError as error:
        raise refuse(FieldFault(f"is wrong: {error}")) from None
    return text


def script_of(value: Any) -> str:
    text = text_of(value, "the text of a script")
    if not text.strip():
        raise refuse(FieldFault("is an empty script"))
    return text


def count_of(value: Any) -> int | str:
    """Return a whole number from 1 up, or a name."""
    if isinstance(value, str):
        fault = "write it without quotes" * value.isdigit() or reference_fault(value)
        if fault:
            raise expected(COUNT, value, fault)
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise expected(COUNT, value)
    return value


def seconds_from(value: Any) -> float:
    seconds = seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise expected(TIMES, value)
    try:
        return float(seconds)
    except OverflowError:  # an int that no float can hold
        raise expected(TIMES, value) from None


def parameter_fault(key: str) -> str | None:
    if not key.isidentifier() or keyword.iskeyword(key):
        return f"has {key!r}, which is not a parameter of a function"
    return None


def literals_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise expected("a mapping of parameters to values", value)
    if faults := with_form(value):
        raise refuse(*faults)
    return value


def with_form(value: dict[Any, Any], path: tuple[Any, ...] = ()) -> list[FieldFault]:
    """Return what is wrong with literal keyword arguments."""
    faults: list[FieldFault] = []
    for key, item in value.items():
        fault = parameter_fault(key) if isinstance(key, str) else f"has the key {show(key)}"
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


def run_path_of(value: Any) -> str:
    text = text_of(value, "the directory of a run or checkpoint")
    faults = template_faults(text, ())
    if faults or not text:
        raise refuse(*faults or [FieldFault("is an empty path")])
    return text
