"""The resolved spec for people: with its defaults, as YAML, and where each value comes from.

The text is a spec of the same job: aliases written out, every ``--set`` applied, the name filled
in.  ``${…}`` stay as they are written, since they are known when a task runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from jobrun.errors import Where
from jobrun.jobspec.keys import Model, fields
from jobrun.jobspec.model import SpecModel
from jobrun.jobspec.resolve import Dumper, Spec
from jobrun.jobspec.source import SpecNode

__all__ = ["DEFAULT", "Origin", "origins", "render", "resolved"]

Origin = Callable[[SpecNode], str]
"""Says of a scalar where it comes from."""

DEFAULT = Where("default")
_BARE = ("in", "update", "out", "from", "blobs")
_TWO_NAMES = re.compile(r"[A-Za-z_][\w.*]*:[A-Za-z_][\w.]*", re.ASCII)
_WIDTH = 88
_COMMENT = 48


def resolved(spec: Spec) -> SpecNode:
    """Return the spec with its defaults, as nodes.

    Those that stand nowhere have the place ``DEFAULT``.
    """
    root = _node({k: v for k, v in spec.source.root.value.items() if not str(k).startswith("x-")})
    root.value.setdefault("name", _node(spec.tree["name"]))
    filled = _filled(root, SpecModel)
    order = list(fields(SpecModel))
    return _node(dict(sorted(filled.value.items(), key=lambda item: order.index(item[0]))))


def _node(value: Any) -> SpecNode:
    node = SpecNode(value, 0, 0, 1)
    node.place = DEFAULT
    return node


def _filled(node: SpecNode, model: Model | None) -> SpecNode:
    """Return a node with the defaults of its model, and of those below."""
    if isinstance(node.value, list):
        return _like(node, [_filled(item, model) for item in node.value])
    if model is None or not isinstance(node.value, dict):
        return node
    known = fields(model)
    values = {key: _filled(below, known[key]) for key, below in node.value.items()}
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in values and (default := _default(field.default, known[key])) is not None:
            values[key] = default
    return _like(node, values)


def _default(value: Any, model: Model | None) -> SpecNode | None:
    """Return the default of a key, if there is one that can be written."""
    if isinstance(value, str | int | float):  # also true and false
        return _node(value)
    return _filled(_node({}), model) if value == {} and model is not None else None


def _like(node: SpecNode, value: Any) -> SpecNode:
    """Return a node with another value in the same place."""
    new = SpecNode(value, node.line, node.column, node.width)
    new.place = node.place
    return new


def origins(node: SpecNode, origin: Origin, path: tuple[str, ...] = ()) -> dict[str, str]:
    """Return where every scalar comes from, by its dotted path."""
    if isinstance(node.value, dict):
        below = [(str(key), item) for key, item in node.value.items()]
    elif isinstance(node.value, list):
        below = [(str(number), item) for number, item in enumerate(node.value)]
    else:
        return {".".join(path): origin(node)}
    return {k: v for key, item in below for k, v in origins(item, origin, (*path, key)).items()}


# As text.


def render(root: SpecNode, origin: Origin | None = None) -> str:
    """Return the spec as YAML.

    With ``origin`` each value stands on a line with its origin behind it.
    """
    lines = list(_Writer(origin).mapping(root, 0))
    return "".join(f"{line.text()}\n" for line in lines)


@dataclass(frozen=True)
class _Line:
    content: str
    comment: str = ""

    def text(self) -> str:
        return f"{self.content:<{_COMMENT}}  # {self.comment}" if self.comment else self.content


class _Writer:
    """Writes nodes: short collections on one line, long ones as blocks."""

    def __init__(self, origin: Origin | None) -> None:
        self._origin = origin

    def mapping(self, node: SpecNode, indent: int, first: str = "") -> Iterator[_Line]:
        """Yield the entries of a mapping; ``first`` stands before the first instead of spaces."""
        lead = first or " " * indent
        for key, below in node.value.items():
            yield from self._value(f"{lead}{_scalar(key)}:", below, indent + 2, key in _BARE)
            lead = " " * indent

    def _sequence(self, node: SpecNode, indent: int) -> Iterator[_Line]:
        for item in node.value:
            lead = " " * indent + "-"
            if isinstance(item.value, dict) and not self._is_short(item, indent, False):
                yield from self.mapping(item, indent + 2, lead + " ")
            else:
                yield from self._value(lead, item, indent + 2, False)

    def _value(self, lead: str, node: SpecNode, indent: int, bare: bool) -> Iterator[_Line]:
        """Yield a value after its key or its ``-``, on the same line or below."""
        if self._is_short(node, len(lead), bare):
            yield _Line(f"{lead} {_flow(node, bare)}", self._comment(node))
        elif isinstance(node.value, dict):
            yield _Line(lead)
            yield from self.mapping(node, indent)
        elif isinstance(node.value, list):
            yield _Line(lead)
            yield from self._sequence(node, indent)
        else:
            yield _Line(f"{lead} {_block_head(node.value)}", self._comment(node))
            for text in node.value.splitlines():
                yield _Line(" " * indent + text if text else "")

    def _is_short(self, node: SpecNode, used: int, bare: bool) -> bool:
        """Return whether a value goes on one line: a scalar, or a few of one origin."""
        if not isinstance(node.value, dict | list):
            return not _is_block(node.value)
        if not node.value:
            return True
        below = list(node.value.values()) if isinstance(node.value, dict) else node.value
        if any(isinstance(item.value, dict | list) or _is_block(item.value) for item in below):
            return False
        if self._origin is not None and len({self._origin(item) for item in below}) > 1:
            return False
        return used + len(_flow(node, bare)) < _WIDTH

    def _comment(self, node: SpecNode) -> str:
        """Return the origin of a value; that of a short collection is that of what is in it."""
        if self._origin is None:
            return ""
        while isinstance(node.value, dict | list) and node.value:
            below = node.value.values() if isinstance(node.value, dict) else node.value
            node = next(iter(below))
        return self._origin(node)


def _flow(node: SpecNode, bare: bool) -> str:
    """Return a value on one line; ``bare``: a name that stands for itself has no ``: null``."""
    if isinstance(node.value, list):
        return "[" + ", ".join(_flow(item, False) for item in node.value) + "]"
    if isinstance(node.value, dict):
        pairs = [
            _scalar(key) if bare and item.value is None else f"{_scalar(key)}: {_flow(item, False)}"
            for key, item in node.value.items()
        ]
        return "{" + ", ".join(pairs) + "}"
    return _scalar(node.value)


def _scalar(value: Any) -> str:
    """Return a scalar as YAML has it on one line, also within braces."""
    if isinstance(value, str) and "\n" in value:
        return _quoted(value)
    if isinstance(value, str) and _TWO_NAMES.fullmatch(value):
        return value  # the library would quote it, since other colons within braces are wrong
    text = _dumped([value])[1:-1]
    return text if "\n" not in text else _quoted(value)


def _quoted(text: str) -> str:
    return _dumped([text], default_style='"')[1:-1]


def _dumped(value: Any, **options: Any) -> str:
    made: str = yaml.dump(
        value,
        Dumper=Dumper,
        default_flow_style=True,
        allow_unicode=True,
        width=math.inf,
        **options,
    )
    return made.rstrip("\n")


def _is_block(value: Any) -> bool:
    """Return whether a string is best shown line by line, and comes back from that as it was."""
    if not isinstance(value, str) or "\n" not in value.rstrip("\n"):
        return False
    lines = value.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return plain and not lines[0].startswith(" ") and bool(lines[0])


def _block_head(text: str) -> str:
    """Return ``|`` with how the text ends: in no line break, one, or several."""
    breaks = len(text) - len(text.rstrip("\n"))
    return "|-" if breaks == 0 else "|" if breaks == 1 else "|+"
