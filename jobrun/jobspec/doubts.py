"""Strings of a spec that look as if another value was meant: ``no``, ``(3, 4)``, a var's name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobrun.errors import Problem
from jobrun.jobspec.source import SpecNode, SpecSource
from jobrun.model.job import GROUPS

__all__ = ["doubts"]

_BOOLS = {"yes": "true", "on": "true", "no": "false", "off": "false", "none": "null"}
_FLOATS = {"nan": ".nan", "inf": ".inf", "infinity": ".inf"}
_BINARY = re.compile(r"[+-]?0[bB][01]+")
_TUPLE = re.compile(r"\(([^,]*,.*)\)")
_COMMA = re.compile(r"([+-]?\d+),(\d+)")
_GROUPED = re.compile(r"[+-]?\d+(_\d+)+(\.\d*)?")
_COMPUTED = re.compile(r"[\d.]+ *(\*\*?|/|\^) *[\d.]+")


def doubts(source: SpecSource) -> Iterator[Problem]:
    """Yield a warning for each unquoted string, of a var or under ``with``, that looks like more.

    The functions get it as a string.
    """
    found = [source.root.get("vars"), source.root.get("matrix")]
    own = [node for node in found if node is not None and isinstance(node.value, dict)]
    variables = {name for holder in own for name in holder.value}
    given = [holder for group in GROUPS for holder in _arguments(source.root.get(group))]
    for holder in (*own, *given):
        for name, node in _strings(holder):
            hint = _meant(str(node.value).strip())
            if holder in given and node.value in variables:
                hint = f"the var is given by in: {{{name}: {node.value}}}"
            if node.indent == 0 and hint:
                text = f"{name!r} is the string {node.value!r}"
                yield Problem(text, source.where(node), f"{hint}, or quote it if a string is meant")


def _arguments(node: SpecNode | None) -> Iterator[SpecNode]:
    """Yield the mappings under ``with`` of the tasks of a group, and of the steps of its pipes."""
    if node is None:
        return
    if isinstance(node.value, list):
        for entry in node.value:
            yield from _arguments(entry)
    elif isinstance(node.value, dict):
        for key, below in node.value.items():
            if key == "with":
                yield below
            elif key in ("pipe", "map", "do", "zip", "concat"):
                yield from _arguments(below)


def _strings(holder: SpecNode | None) -> Iterator[tuple[str, SpecNode]]:
    """Yield the strings of a mapping, and of the lists and mappings in it, with their keys."""
    if holder is None or not isinstance(holder.value, dict):
        return
    for name, node in holder.value.items():
        yield from ((str(name), entry) for entry in _strings_in(node))


def _strings_in(node: SpecNode) -> Iterator[SpecNode]:
    if isinstance(node.value, str):
        yield node
    elif isinstance(node.value, list | dict):
        below = node.value.values() if isinstance(node.value, dict) else node.value
        for entry in below:
            yield from _strings_in(entry)


def _meant(text: str) -> str:
    """Return how the value that a string looks like is written; empty: it looks like a string."""
    if text.lower() in _BOOLS:
        return f"write {_BOOLS[text.lower()]}"
    if floats := _FLOATS.get(text.lower().lstrip("+-")):
        return f"write {'-' * text.startswith('-')}{floats}"
    if _BINARY.fullmatch(text):
        return f"write {int(text, 2)}"
    if found := _TUPLE.fullmatch(text):
        return f"a list: [{found[1].rstrip(', ')}]"
    if found := _COMMA.fullmatch(text):
        return f"write {found[1]}.{found[2]}, or a list: [{found[1]}, {found[2]}]"
    if _GROUPED.fullmatch(text):
        return f"write {text.replace('_', '')}"
    if _COMPUTED.fullmatch(text):
        return "write the result: nothing is computed here"
    return ""
