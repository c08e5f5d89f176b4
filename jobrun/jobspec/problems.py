"""Errors of pydantic as problems: at the node they are about, in the words of the spec."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from jobrun.core.suggestions import ALL, did_you_mean, did_you_mean_or_all
from jobrun.errors import Problem, Where
from jobrun.jobspec.faults import FieldFault
from jobrun.jobspec.keys import every_key, fields, model_at
from jobrun.jobspec.scalars import show
from jobrun.jobspec.source import SpecNode, SpecSource

__all__ = ["problems_of"]

_EXPECTED = {
    "string_type": "a string",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_TUPLE_BEGUN = re.compile(r"\(([^()]*, *)$")
_COMMA = re.compile(r"[ :]\d+,$")
_YAML_1_1 = ("yes", "no", "on", "off", "y", "n")


def problems_of(items: Sequence[ErrorDetails], source: SpecSource) -> list[Problem]:
    """Return every error of pydantic with its place."""
    found: list[Problem] = []
    misspelt = {item["loc"][:-1] for item in items if item["type"] == "extra_forbidden"}
    for item in items:
        if item["type"] == "missing" and item["loc"][:-1] in misspelt:
            continue  # it is there, under a name that is reported
        found += _problems(item["type"], item["loc"], item["input"], item.get("ctx", {}), source)
    return found


def _problems(
    kind: str, loc: tuple[int | str, ...], value: Any, ctx: dict[str, Any], source: SpecSource
) -> Iterator[Problem]:
    place = _Place(source, loc)
    if kind == "jobrun":
        for fault in ctx["faults"]:
            yield _fault_problem(source, loc, fault)
    elif kind == "extra_forbidden":
        yield _unknown_key(place, loc, value)
    elif kind == "invalid_key":
        where = place.key_where()
        yield Problem(f"the key {_as_written(where, loc[-1])} is not a name", where, "quote it")
    elif kind == "missing":
        yield Problem(f"{loc[-1]!r} is missing here", place.where(), _example(str(loc[-1])))
    else:
        yield place.problem(_message(kind, value, ctx), _advice(kind, value))


def _as_written(where: Where | None, key: int | str) -> str:
    """Return a key as it stands in the spec: of ``true`` only the number 1 is left."""
    text = where.text[where.column - 1 :][: where.width] if where is not None else ""
    return text or show(key)


def _fault_problem(source: SpecSource, loc: tuple[int | str, ...], fault: FieldFault) -> Problem:
    place = _Place(source, (*loc, *fault.path))
    where = place.key_where() if fault.key else place.where(fault.offset)
    if fault.message.startswith("|"):
        return Problem(fault.message[1:], where, fault.hint)
    label = _Place(source, loc).label if fault.key or place.entry else place.label
    hint = _in_two_hint(where) if fault.key else ""
    return Problem(_labelled(label, fault.message), where, hint or fault.hint)


def _in_two_hint(where: Where | None) -> str:
    """Return how ``(3, 4)`` and ``1,5`` are written, where a key is what follows their comma."""
    before = where.text[: where.column - 1] if where is not None else ""
    if found := _TUPLE_BEGUN.search(before):
        rest = where.text[where.column - 1 :].partition(")")[0] if where is not None else ""
        return f"a list: [{found[1]}{rest}]"
    return "a number: 1.5, not 1,5" if _COMMA.search(before) else ""


class _Place:
    """The place of a pydantic location in the source, as deep as the tree goes."""

    def __init__(self, source: SpecSource, loc: tuple[int | str, ...]) -> None:
        self.source = source
        self.node: SpecNode = source.root
        self.key: SpecNode | None = None
        self.name = ""
        self.entry = False
        for part in loc:
            below = self.node.value
            if isinstance(below, dict) and part in below:
                self.key, self.name = self.node.keys.get(part), str(part)
                self.node, self.entry = below[part], False
            elif isinstance(below, list) and isinstance(part, int) and part < len(below):
                self.key, self.node, self.entry = None, below[part], True

    @property
    def label(self) -> str:
        """The nearest key, for a message."""
        if not self.name:
            return "the spec"
        return f"an entry of {self.name!r}" if self.entry else repr(self.name)

    def where(self, offset: int = 0) -> Any:
        """Return the value's place; the key's where there is no value to point at."""
        if self.key is not None and self.node.value is None and self.node.width <= 1:
            return self.source.where(self.key)
        return self.source.where(self.node, offset)

    def key_where(self) -> Any:
        """Return the key's place."""
        return self.source.where(self.key if self.key is not None else self.node)

    def problem(self, message: str, hint: str) -> Problem:
        """Return a problem with the value here."""
        return Problem(_labelled(self.label, message), self.where(), hint)


def _labelled(label: str, message: str) -> str:
    """Return a message behind what it is about: ``'seed': expected …``, ``'in' has …``."""
    return f"{label}{message}" if message.startswith(":") else f"{label} {message}"


def _message(kind: str, value: Any, ctx: dict[str, Any]) -> str:
    if kind in _EXPECTED:
        return f": expected {_EXPECTED[kind]}, got {show(value)}"
    if kind == "literal_error":
        return f": expected {ctx['expected']}, got {show(value)}"
    if kind == "greater_than_equal":
        return f": expected a number of {ctx['ge']} or more, got {show(value)}"
    if kind == "less_than":
        return f": expected a number below {ctx['lt']}, got {show(value)}"
    return f"cannot be {show(value)}"


def _advice(kind: str, value: Any) -> str:
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _YAML_1_1:
        return f"in YAML 1.2 {value!r} is a string"
    if kind in ("int_type", "float_type") and isinstance(value, str):
        digits = value.replace("_", "").replace(",", "")
        return f"write {digits}" if digits.isdigit() else ""
    if kind == "model_type" and isinstance(value, str) and re.fullmatch(r"[\w.]+:[\w.]+", value):
        return f"write call: {value}"
    if kind == "string_type" and isinstance(value, int | float | bool):
        return "quote it"
    return ""


def _example(key: str) -> str:
    return {"call": "call: module:function", "metric": "best: loss"}.get(key, "")


def _unknown_key(place: _Place, loc: tuple[int | str, ...], value: Any) -> Problem:
    name = str(loc[-1])
    hint = _nearest_key(name, value, loc[:-1])
    return Problem(f"unknown key {name!r}", place.key_where(), hint)


def _nearest_key(name: str, value: Any, parent: tuple[int | str, ...]) -> str:
    """Return what an unknown key may have meant: a key of this level, one below, or two."""
    model = model_at(parent)
    if model is None:
        return ""
    keys = fields(model)
    left, colon, right = name.partition(":")
    if colon and left in keys and right:
        return f"write '{left}: {right}', with a space"
    below = [key for key, sub in keys.items() if sub is not None and name in fields(sub)]
    if below:
        return f"it belongs under {' or '.join(repr(b) for b in below[:3])}"
    if word := other_word(name, keys):
        return f"did you mean {word!r}?"
    for key in ("stop", "checkpoint"):
        if key in keys and (word := other_word(name, fields(keys[key] or model))):
            return f"did you mean {key}: {{{word}: {_short(value)}}}?"
    if {"call", "with"} <= set(keys) and _may_be_parameter(name, keys):
        near = did_you_mean(name, list(keys))
        argument = f"an argument of the function is given by with: {{{name}: {_short(value)}}}"
        return f"{near} ({argument})" if near else argument
    return did_you_mean_or_all(name, list(keys), most=ALL)


def _short(value: Any) -> str:
    return "…" if isinstance(value, dict | list) else show(value)


def _may_be_parameter(name: str, keys: Iterable[str]) -> bool:
    """Return whether a name is neither a key of another level nor very near to one of this."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), list(keys), cutoff=0.75)
    return name.isidentifier() and not near and name not in every_key()


_OTHER_WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("random_seed", "random_state", "rng_seed"), ("seed",)),
    **dict.fromkeys(("variables", "globals"), ("vars",)),
    **dict.fromkeys(("prepare", "load_data", "before"), ("setup",)),
    **dict.fromkeys(("start", "begin", "initialize", "initialise"), ("init",)),
    **dict.fromkeys(("finally", "finish", "end", "cleanup", "teardown", "post"), ("exit",)),
    **dict.fromkeys(("iterations", "max_epochs", "num_epochs", "n_epochs"), ("epochs",)),
    **dict.fromkeys(("max_iter", "max_iterations", "n_iter"), ("epochs",)),
    **dict.fromkeys(("timeout", "max_time", "time_limit"), ("walltime",)),
    **dict.fromkeys(("id", "task_id", "task", "rule", "job", "title"), ("name",)),
    **dict.fromkeys(("python_callable", "_target_", "uses", "target"), ("call",)),
    **dict.fromkeys(("cmd", "command", "script"), ("shell",)),
    **dict.fromkeys(("depends_on", "depends", "needs", "upstream"), ("after",)),
    **dict.fromkeys(("deps", "op_args"), ("in",)),
    **dict.fromkeys(("outs", "produces"), ("out",)),
    **dict.fromkeys(("save_every", "interval", "frequency"), ("every",)),
    **dict.fromkeys(("sweep", "grid", "search"), ("matrix",)),
    **dict.fromkeys(("params", "parameters", "config", "constants"), ("vars", "with")),
    **dict.fromkeys(
        ("loop", "train", "step", "steps", "stages", "jobs", "tasks", "repeat"), ("epoch",)
    ),
    **dict.fromkeys(("function", "fn", "func", "run"), ("call",)),
    **dict.fromkeys(("args", "arguments", "input", "inputs", "reads"), ("in",)),
    **dict.fromkeys(("kwargs", "op_kwargs"), ("with",)),
    **dict.fromkeys(("return", "returns", "output", "outputs", "result", "writes"), ("out",)),
    **dict.fromkeys(("inout", "updates", "state", "mutates"), ("update",)),
    **dict.fromkeys(("until", "if", "condition"), ("when",)),
    "early_stopping": ("patience",),
}
"""The words that other tools use, each with the keys that mean the same here."""


def other_word(name: str, keys: Container[str]) -> str:
    """Return the one of ``keys`` that is meant by a word of other tools, or an empty string."""
    return next((key for key in _OTHER_WORDS.get(name.lower(), ()) if key in keys), "")
