"""Strings with ``${…}``, such as ``${spec.dir}``, ``${run.name}``, ``${node}`` and ``${env.X}``.

A spec's strings under ``with`` and its paths are templates.  They are rendered when a task is
called, never before: what is stored of a job, and compared, is the string as written, so that a run
can be moved to another folder and holds no secrets of the environment.  ``$${`` stands for ``${``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobrun.core.masking import remember
from jobrun.core.suggestions import did_you_mean
from jobrun.errors import TaskError

__all__ = ["PLACES", "Template", "TemplateError", "render", "template", "templated", "templates_in"]

PLACES = ("spec.dir", "run.dir", "run.name", "node")
_PART = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_ENV = re.compile(r"env\.[A-Za-z_][A-Za-z0-9_]*")


class TemplateError(ValueError):
    """An invalid ``${…}``; ``offset`` is its place in the string, from 0."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Template:
    """A string with ``${…}``, checked; ``names`` are what it refers to, in order."""

    text: str
    names: tuple[str, ...]

    def render(self, places: Mapping[str, str]) -> str:
        """Return the string with every ``${…}`` replaced.

        ``places`` maps ``spec.dir``, ``run.dir``, ``run.name`` and ``node`` to their values;
        ``env.NAME`` is looked up in the environment.  Raises TaskError for a name without a value.
        """

        def value(match: re.Match[str]) -> str:
            return "${" if match.group(1) is None else _value(match.group(1).strip(), places)

        return _PART.sub(value, self.text)

    def __str__(self) -> str:
        return self.text


def template(text: str) -> Template:
    """Return a checked template; raises TemplateError for the first invalid ``${…}``."""
    names: list[str] = []
    for match in _PART.finditer(text):
        if match.group(1) is None:
            continue
        name = match.group(1).strip()
        if not match.group(2):
            raise TemplateError("'${' without '}'", match.start(), "write '$${' for a literal '${'")
        if name not in PLACES and not _ENV.fullmatch(name):
            raise TemplateError(f"'${{{name}}}' is unknown", match.start(), _hint(name))
        names.append(name)
        if name.startswith("env."):
            remember(name[4:])
    return Template(text, tuple(names))


def templated(value: Any) -> Any:
    """Return a value with its strings that hold ``${`` as templates, in lists and dicts too.

    Raises TemplateError.
    """
    if isinstance(value, str):
        return template(value) if "${" in value else value
    if isinstance(value, dict):
        return {k: templated(v) for k, v in value.items()}
    if isinstance(value, list):
        return [templated(v) for v in value]
    return value


def _hint(name: str) -> str:
    near = did_you_mean(name, PLACES)
    there_are = "there are ${spec.dir}, ${run.dir}, ${run.name}, ${node} and ${env.NAME}"
    return near or there_are + "; vars and blobs are read by name, with 'in'"


def _value(name: str, places: Mapping[str, str]) -> str:
    if name in places:
        return places[name]
    if name.startswith("env."):
        try:
            return os.environ[name[4:]]
        except KeyError:
            message = f"${{{name}}}: the environment variable {name[4:]} is not set"
            raise TaskError(message, hint=f"export {name[4:]}=…") from None
    missing = "the job is of no spec" if name == "spec.dir" else "this run has no directory"
    raise TaskError(f"${{{name}}} has no value here: {missing}")


def render(value: Any, places: Mapping[str, str]) -> Any:
    """Return ``value`` with every template in it rendered, in nested lists and dicts too."""
    if isinstance(value, Template):
        return value.render(places)
    if isinstance(value, dict):
        return {k: render(v, places) for k, v in value.items()}
    if isinstance(value, list):
        return [render(v, places) for v in value]
    return value


def templates_in(value: Any) -> Iterator[Template]:
    """Yield every template in a value, in nested lists and dicts too."""
    if isinstance(value, Template):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from templates_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from templates_in(item)
