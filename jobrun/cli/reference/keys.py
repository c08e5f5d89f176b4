"""The page ``keys``: every key of a spec with its type, default and examples, from its schema."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from jobrun.core.text import either
from jobrun.jobspec.schema import spec_schema

__all__ = ["markdown"]

_INTRO = """
This page is made from the schema that checks specs, which `jobrun schema` prints for editors.
[The spec language](spec.md) explains the keys in their context. `jobrun docs keys task.every`
shows one key.

`task` stands for an entry of the groups `setup`, `init`, `epoch`, `download` and `exit`. The keys
under `stop` are those under `fail` too, and the keys of a source under `zip` and `concat` are
`file`, `call`, `from` and those that belong to them.
"""
_TASK, _SOURCE = "#/$defs/TaskModel", "#/$defs/SourceModel"


def markdown() -> str:
    """Return the page, without its title."""
    parts = [_INTRO.strip()]
    for key in _keys():
        parts += _section(key)
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Key:
    """A key: the way to it, the schema of its value, and whether it must be there."""

    path: tuple[str, ...]
    schema: dict[str, Any]
    required: bool

    @property
    def name(self) -> str:
        """The way to the key, with dots."""
        return ".".join(self.path)


def _keys() -> list[_Key]:
    """Return all keys: those of a level together, then those below each of them."""
    root = spec_schema()
    models: dict[str, Any] = {f"#/$defs/{name}": model for name, model in root["$defs"].items()}
    seen = {_SOURCE}  # its keys are those of a pipe

    def level(path: tuple[str, ...], model: dict[str, Any]) -> Iterator[_Key]:
        needed = model.get("required", ())
        keys = [_Key((*path, n), s, n in needed) for n, s in model["properties"].items()]
        yield from keys
        below = {r: key.path for key in reversed(keys) for r in _references(key.schema)}
        new = {r: path for r, path in reversed(below.items()) if r not in seen}
        seen.update(new)
        for reference, at in new.items():
            yield from level(("task",) if reference == _TASK else at, models[reference])

    return list(level((), root))


def _references(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the models that a value may be, or hold."""
    if "$ref" in schema:
        yield schema["$ref"]
    for form in schema.get("anyOf", ()):
        yield from _references(form)
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from _references(schema[part])


def _section(key: _Key) -> Iterator[str]:
    """Yield the parts of the section of a key."""
    yield f"## {key.name}"
    yield key.schema["description"]
    facts = [f"Type: {_type(key.schema)}."]
    if "default" in key.schema:
        facts.append(f"Default: `{_yaml(key.schema['default'])}`.")
    elif key.required:
        facts.append("Required.")
    yield " ".join(facts)
    examples = [_yaml({key.path[-1]: example})[1:-1] for example in key.schema["examples"]]
    yield "```yaml\n" + "\n".join(examples) + "\n```"


def _yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    written: str = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=math.inf
    )
    return written.removesuffix("\n...\n").strip()


def _type(schema: dict[str, Any]) -> str:
    """Return what a value may be, in words."""
    forms = _forms(schema)
    if any(" or " in form for form in forms[:-1]):
        return f"{'; '.join(forms[:-1])}; or {forms[-1]}"
    return either(forms)


def _forms(schema: dict[str, Any]) -> list[str]:
    """Return the forms that a value may have, in words; no value at all is none."""
    if "anyOf" in schema:
        return [text for form in schema["anyOf"] for text in _forms(form)]
    if "$ref" in schema:
        return [_MODELS.get(schema["$ref"].rpartition("/")[2], "a mapping")]
    if "const" in schema:
        return [f"`{_yaml(schema['const'])}`"]
    if "enum" in schema:
        return [f"`{_yaml(word)}`" for word in schema["enum"]]
    return _OF_TYPE[schema["type"]](schema)


def _number(schema: dict[str, Any]) -> list[str]:
    what = "a whole number" if schema["type"] == "integer" else "a number"
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return [f"{what} above {schema['exclusiveMinimum']}"]
    if low is None:
        return [what]
    return [f"{what} from {low} " + ("up" if high is None else f"to {high}")]


def _string(schema: dict[str, Any]) -> list[str]:
    message: str = schema.get("patternErrorMessage", "a string")
    return [message.removeprefix("expected ")]


def _list(schema: dict[str, Any]) -> list[str]:
    return [f"a list of {_plural(schema['items'])}"]


def _mapping(schema: dict[str, Any]) -> list[str]:
    values = schema["additionalProperties"]
    return [f"a mapping of names to {'values' if values is True else _plural(values)}"]


def _plural(schema: dict[str, Any]) -> str:
    """Return what the values of a list or a mapping may be."""
    return either([_SINGULAR.sub(r"\1s", form) for form in _forms(schema)])


_SINGULAR = re.compile(r"^an? (whole number|\w+)")
_MODELS = {
    "ConditionsModel": "a mapping of conditions",
    "DoStepModel": "a step",
    "MapStepModel": "a step",
    "SourceModel": "a source",
    "TaskModel": "a task",
}
_OF_TYPE: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "array": _list,
    "boolean": lambda schema: ["`true`", "`false`"],
    "integer": _number,
    "null": lambda schema: [],
    "number": _number,
    "object": _mapping,
    "string": _string,
}
