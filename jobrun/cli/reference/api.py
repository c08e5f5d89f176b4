"""The page ``api``: the public names of ``jobrun``, their signatures and docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import jobrun
from jobrun import errors
from jobrun.errors import JobrunError

__all__ = ["markdown"]

_INTRO = """
This page is made from the docstrings; `help(jobrun.Task)` shows the same in Python. All names are
imported from `jobrun`: `from jobrun import Job, Task`. [Jobs in Python](python.md) shows how they
are used together.
"""
_WIDTH = 88


def markdown() -> str:
    """Return the page, without its title."""
    parts = [_INTRO.strip()]
    for name in jobrun.__all__:
        if not name.startswith("_"):
            parts += _public(name, getattr(jobrun, name))
    return "\n\n".join([*parts, *_errors()]) + "\n"


def _public(name: str, value: Any) -> Iterator[str]:
    """Yield the parts of the section of a public name."""
    yield f"## {name}"
    kind = "class" if inspect.isclass(value) else "def"
    yield f"```python\n{kind} {_call(name, value)}\n```"
    yield _text(value)
    if inspect.isclass(value):
        for method, function in _methods(value):
            yield f"### {name}.{method}"
            if not isinstance(function, property):
                yield f"```python\ndef {_call(method, function)}\n```"
            yield _text_of_method(value, method)


def _methods(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, those of its bases in jobrun too."""
    seen: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.split(".")[0] == "jobrun":
            seen |= vars(base)
    for name, value in seen.items():
        found = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property)):
            yield name, found


class _Shown:
    """A value that a signature shows as ``text``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _call(name: str, value: Callable[..., Any]) -> str:
    """Return a call with its signature, one parameter a line where it is long."""
    signature = inspect.signature(value)
    parameters = [_parameter(p) for p in signature.parameters.values() if p.name != "self"]
    if [p.name for p in parameters] == ["args", "kwargs"]:  # of a protocol, which is not called
        return name
    returned = signature.return_annotation
    end = "" if returned in (None, "None", signature.empty) else f" -> {returned}"
    line = f"{name}{inspect.Signature(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    lines = [f"    {parameter},\n" for parameter in parameters]
    first = next((n for n, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY), None)
    if first is not None:
        lines.insert(first, "    *,\n")
    return f"{name}(\n{''.join(lines)}){end}"


def _parameter(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose annotation and default are shown as they stand in the code."""
    if isinstance(parameter.annotation, str):
        parameter = parameter.replace(annotation=_Shown(parameter.annotation))
    if parameter.default is parameter.empty:
        return parameter
    return parameter.replace(default=_Shown(_default(parameter.default)))


def _default(value: Any) -> str:
    """Return a default; what has no readable form is ``...``."""
    kind = type(value)
    if is_dataclass(kind) and value == kind():
        return f"{kind.__name__}()"
    return "..." if repr(value).startswith("<") else repr(value)


def _text(value: Any) -> str:
    """Return a docstring as Markdown."""
    return (inspect.getdoc(value) or "").replace("``", "`")


def _text_of_method(owner: type, name: str) -> str:
    """Return the docstring of a method; where it only refers to a base, that of the base."""
    texts = [_text(vars(base)[name]) for base in owner.__mro__ if name in vars(base)]
    return next((text for text in texts if not text.startswith("See ")), texts[0])


def _errors() -> Iterator[str]:
    """Yield the parts of the section of the tree of errors."""
    yield "## Errors"
    yield (
        "All are in `jobrun.errors` and derive from `JobrunError`. They have a `message`, and, if "
        "known, a place `where` and a `hint`. The number is the exit code of the command line."
    )
    tree = [v for v in vars(errors).values() if inspect.isclass(v) and issubclass(v, JobrunError)]
    yield "\n".join(
        f"- `{error.__name__}` ({error.exit_code}): {_text(error).splitlines()[0]}"
        for error in tree
    )
