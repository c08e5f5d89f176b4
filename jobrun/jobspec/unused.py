"""Vars of a spec that nothing reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobrun.errors import Problem
from jobrun.jobspec.matrix import is_seed
from jobrun.jobspec.resolve import Spec
from jobrun.jobspec.source import SpecNode

__all__ = ["idle_in_matrix", "unused_vars"]

_WORDS = re.compile(r"[\w.-]+")
_IDENTIFIERS = re.compile(r"\w+")


def unused_vars(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each var whose name stands nowhere but where its value is given."""
    lists = spec.matrix.lists if spec.matrix is not None else {}
    for name, key in _unused(spec).items():
        if name not in lists:
            text = f"var {name!r} is not used"
            yield Problem(text, spec.source.where(key), "no task and no condition names it")
    yield from idle_in_matrix(spec)


def idle_in_matrix(spec: Spec) -> Iterator[Problem]:
    """Yield a warning for each var of the matrix that nothing reads: its runs will be equal."""
    lists = spec.matrix.lists if spec.matrix is not None else {}
    unused = _unused(spec) if lists else {}
    for name, key in unused.items():
        if name in lists:
            text = f"var {name!r} is not used: the runs of the matrix that differ in it are equal"
            hint = "no task and no condition names it"
            if is_seed(name, ()):
                hint = "take it out of 'vars': the matrix then goes over the seed of the job"
            yield Problem(text, spec.source.where(key), hint)


def _unused(spec: Spec) -> dict[str, SpecNode]:
    """Return the vars that stand nowhere but where their value is given, with their keys."""
    used: set[str] = set()
    for section, node in spec.source.root.value.items():
        if section not in ("vars", "nodes", "matrix"):
            used.update(_words(node))
    own = spec.source.root.get("vars")
    nodes = spec.source.root.get("nodes")
    per_node = nodes.value.values() if nodes is not None and isinstance(nodes.value, dict) else ()
    found: dict[str, SpecNode] = {}
    for holder in (own, *per_node):
        if holder is None or not isinstance(holder.value, dict):
            continue
        for name, key in holder.keys.items():
            if isinstance(name, str) and name not in used:
                found.setdefault(name, key)
    return found


def _words(node: SpecNode) -> Iterator[str]:
    """Yield all words of the keys and strings of a tree: names, and those in expressions."""
    waiting = [node]
    while waiting:
        value = waiting.pop().value
        if isinstance(value, dict):
            waiting += value.values()
            for key in value:
                yield from _in_text(str(key))
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            yield from _in_text(value)


def _in_text(text: str) -> Iterator[str]:
    yield text
    yield from _WORDS.findall(text)
    yield from _IDENTIFIERS.findall(text)
