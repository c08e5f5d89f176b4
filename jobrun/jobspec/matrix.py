"""``matrix``: vars that take several values, and the combinations of these: the runs of a sweep.

``matrix: {lr: [0.1, 0.01], hidden: [32, 64]}`` is four runs.  Their order is that of the spec, the
last var changing fastest.  ``--set lr=0.1`` picks the runs with that value; a value that is not in
the list is added to it.  ``seed`` stands for the job's seed, unless a var has that name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from jobrun.core.suggestions import did_you_mean
from jobrun.errors import Problem
from jobrun.jobspec.faults import FieldFault, expected, refuse
from jobrun.jobspec.scalars import Scalar, ScalarError, show, typed
from jobrun.jobspec.source import SpecNode, SpecSource

__all__ = ["SEEDS", "Matrix", "MatrixField", "Values", "is_seed", "read_matrix", "same"]

Values = Mapping[str, Scalar]
"""One combination: a value for each var of the matrix, and for ``seed``."""

_SEED = "seed"

SEEDS = 2**63
"""A seed is below this."""
MOST = 10_000
"""The most runs that a matrix may make."""
_EXAMPLE = "matrix: {lr: [0.1, 0.01]}"
_FEW = 100
"""Up to so many combinations are all checked: about a second's work."""


@dataclass(frozen=True)
class Matrix:
    """The values of each var, and what ``--set`` has picked of them."""

    lists: Mapping[str, list[Scalar]]
    picked: Values = field(default_factory=dict)

    def combinations(self) -> list[Values]:
        """Return all of them, in the order of the spec, the last var changing fastest."""
        return _product(self.lists)

    @property
    def count(self) -> int:
        """The number of combinations to run."""
        return math.prod(map(len, self._wanted_lists().values()))

    def wanted(self) -> list[Values]:
        """Return those with the values that ``--set`` has picked."""
        return _product(self._wanted_lists())

    def covering(self) -> list[Values]:
        """Return combinations to be checked: all if they are few, else each value in one of them.

        What is wrong with a combination is wrong with one of its values, but for rare cases that
        its own run finds.
        """
        lists = self._wanted_lists()
        if self.count <= _FEW:
            return _product(lists)
        longest = max(map(len, lists.values()))
        return [{n: v[i % len(v)] for n, v in lists.items()} for i in range(longest)]

    def _wanted_lists(self) -> dict[str, list[Scalar]]:
        return {n: [self.picked[n]] if n in self.picked else v for n, v in self.lists.items()}


def _product(lists: Mapping[str, list[Scalar]]) -> list[Values]:
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def same(a: Scalar, b: Scalar) -> bool:
    """Return whether two values are one, in type too: 1, 1.0 and true are three."""
    return type(a) is type(b) and repr(a) == repr(b)


def is_seed(name: str, vars: Container[str]) -> bool:
    """Return whether a name in a matrix stands for the job's seed: it does, unless a var has it."""
    return name == _SEED and name not in vars


# The field of the model: what can be said without the vars.


def _matrix(value: Any) -> Any:
    if not isinstance(value, dict):
        raise expected("a mapping of vars to lists of values", value, _EXAMPLE)
    if not value:
        raise refuse(FieldFault("names no var", f"{_EXAMPLE}, or remove the key"))
    faults: list[FieldFault] = []
    for name, values in value.items():
        if not isinstance(name, str):
            text = f"has the key {show(name)}, which is not a name"
            faults.append(FieldFault(text, "quote it", (name,), key=True))
        elif not isinstance(values, list):
            text = f": expected a list of values, got {show(values)}"
            faults.append(FieldFault(text, _list_hint(name, values), (name,)))
        elif not values:
            faults.append(FieldFault("is an empty list", "give it values, or remove it", (name,)))
        else:
            faults += _value_faults(name, values)
    if faults:
        raise refuse(*faults)
    return value


def _list_hint(name: str, value: Any) -> str:
    if value is None or isinstance(value, dict):
        return _EXAMPLE
    return f"write [{value}]; --set {name}={value} picks one value for a start"


def _value_faults(name: str, values: list[Any]) -> Iterator[FieldFault]:
    for number, value in enumerate(values):
        if isinstance(value, list | dict):
            text = f": expected one number, string or truth value, got {show(value)}"
            yield FieldFault(text, path=(name, number))
        elif isinstance(value, str) and "${" in value:
            text = "holds '${…}', which is for 'with' and paths"
            yield FieldFault(text, path=(name, number))


_Form = Annotated[list[bool | int | float | str | None], Field(min_length=1)]
MatrixField = Annotated[
    dict[str, list[Any]], BeforeValidator(_matrix, json_schema_input_type=dict[str, _Form])
]


# With the vars.


def read_matrix(source: SpecSource, sets: Iterable[str]) -> tuple[Matrix | None, list[Problem]]:
    """Return the matrix of a spec that fits the model, ``--set`` applied; None without one.

    Its values get the types of their vars; what is wrong with them is given as problems.
    """
    root = source.root.get("matrix")
    if root is None:
        return None, []
    reader = _Reader(source)
    lists = {str(name): reader.values(str(name), node) for name, node in root.value.items()}
    reader.check_number(lists)
    if reader.problems:
        return None, reader.problems
    named = {text.partition("=")[0].strip().removeprefix("vars.") for text in sets}
    picked = {n: reader.target(n).value for n in lists if n in named}
    for name, value in picked.items():
        if not any(same(value, v) for v in lists[name]):
            lists[name].append(value)
    return Matrix(lists, picked), []


def _seed(value: Scalar) -> int:
    """Return a value as a seed; raises ScalarError, whose message says what a seed is."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < SEEDS:
        raise ScalarError("a whole number from 0 up", "")
    return value


class _Reader:
    """Reads the lists of a matrix beside the vars, and collects what is wrong."""

    def __init__(self, source: SpecSource) -> None:
        self._source = source
        self._root = source.root
        own = source.root.get("vars")
        self._vars: Mapping[str, SpecNode] = own.value if own is not None else {}
        self.problems: list[Problem] = []

    def target(self, name: str) -> SpecNode:
        """Return the value that those of a list replace: that of a var, or the seed."""
        if name in self._vars:
            return self._vars[name]
        return self._root.get(_SEED) or SpecNode(0, 0, 0, 1)

    def values(self, name: str, node: SpecNode) -> list[Scalar]:
        """Return the values of one var, of its type, or of the seed."""
        seed = is_seed(name, self._vars)
        if not seed and not self._is_var(name):
            return []
        found: list[Scalar] = []
        for entry in node.value:
            try:
                value = _seed(entry.value) if seed else typed(entry.value, self.target(name).value)
            except ScalarError as error:
                what = f"{name!r}" if seed else f"the var {name!r}"
                text = f"{what} is {error.message}, and {show(entry.value)} is not"
                self._problem(text, entry, error.hint)
                continue
            if any(same(value, v) for v in found):
                self._problem(f"{show(value)} is in the list of {name!r} already", entry)
            else:
                found.append(value)
        return found

    def _is_var(self, name: str) -> bool:
        key = self._root.value["matrix"].keys[name]
        if name not in self._vars:
            hint = did_you_mean(name, list(self._vars)) or (
                f"a matrix ranges over vars, which have a value without it too: vars: {{{name}: …}}"
            )
            self._problem(f"there is no var {name!r}", key, hint)
            return False
        var = self._vars[name].value
        if isinstance(var, list | dict):
            hint = "a matrix ranges over vars of one value"
            self._problem(f"the var {name!r} is {show(var)}", key, hint)
            return False
        nodes = self._root.get("nodes")
        if nodes is not None and isinstance(nodes.value, dict):
            maps = [n.value for n in nodes.value.values()]
            if all(isinstance(m, dict) and name in m for m in maps):
                hint = "the matrix would change nothing"
                self._problem(f"every node has a value of its own for {name!r}", key, hint)
                return False
        return True

    def check_number(self, lists: Mapping[str, list[Scalar]]) -> None:
        """Refuse a matrix of too many runs."""
        count = math.prod(map(len, lists.values()))
        if count > MOST:
            text = f"'matrix' makes {count:,} runs; {MOST:,} are the most"
            self._problem(text, self._root.value["matrix"], "leave out values")

    def _problem(self, message: str, node: SpecNode, hint: str = "") -> None:
        self.problems.append(Problem(message, self._source.where(node), hint))
