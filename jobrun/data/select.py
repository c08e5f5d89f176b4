"""Which columns of a file are read: by name, or by a pattern that makes a matrix of several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import TypeVar

import numpy as np

from jobrun.data.source import TEXT, Columns, Permutation, Table
from jobrun.errors import DataError, did_you_mean

__all__ = [
    "Matrices",
    "Plan",
    "common_dtype",
    "expand",
    "grouped",
    "names_in",
    "stacked",
]

Plan = dict[str, str | tuple[str, ...]]
"""The column of the file that each column is, or those of the matrix that it is."""

_SHOWN = 12

A = TypeVar("A")


def expand(wanted: Mapping[str, str], names: Sequence[str], lacks: str) -> Plan:
    """Return the names in a file that each column takes; all of them if none is chosen.

    Raises DataError, which begins with ``lacks``, for what is not there.
    """
    if not wanted:
        return {name: name for name in names}
    plan: Plan = {}
    for column, name in wanted.items():
        if name in names:
            plan[column] = name
            continue
        matching = tuple(n for n in names if fnmatchcase(n, name))
        if not matching:
            hint = did_you_mean(name, names) or f"there are {_listed(names)}"
            raise DataError(f"{lacks} {name!r}", hint=hint)
        plan[column] = matching
    return plan


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def names_in(plan: Plan) -> list[str]:
    """Return the names that a plan takes from the file, each once."""
    return list(
        dict.fromkeys(n for g in plan.values() for n in ((g,) if isinstance(g, str) else g))
    )


def stacked(columns: Columns, plan: Plan) -> Columns:
    """Return the columns of a plan, from the columns of the file.

    Those of a matrix are put side by side.
    """
    found: Columns = {}
    for column, group in plan.items():
        if isinstance(group, str):
            found[column] = columns[group]
            continue
        parts = [a.reshape(len(a), prod(a.shape[1:])) for a in (columns[n] for n in group)]
        found[column] = np.concatenate(parts, axis=1)
        found[column].setflags(write=False)
    return found


def grouped(make: Callable[[dict[str, A]], Table], arrays: dict[str, A], plan: Plan) -> Table:
    """Return a table of a plan over arrays, or what gives them, by their names in the file."""
    if all(isinstance(group, str) for group in plan.values()):
        return make({c: arrays[group] for c, group in plan.items() if isinstance(group, str)})
    return Matrices(make(arrays), plan)


class Matrices(Table):
    """A table of which some columns are several columns of another, side by side."""

    def __init__(self, table: Table, plan: Plan) -> None:
        self.name = table.name
        self.rows = table.rows
        self._table = table
        self._plan = plan
        self.dtypes = {
            column: table.dtypes[group]
            if isinstance(group, str)
            else common_dtype(table.dtypes, group, table.name)
            for column, group in plan.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._plan)

    def slice(self, low: int, high: int, step: int = 1) -> Columns:
        """Return rows by their numbers, evenly."""
        return stacked(self._table.slice(low, high, step), self._plan)

    def take(self, rows: Permutation) -> Columns:
        """Return rows by their numbers."""
        return stacked(self._table.take(rows), self._plan)


def common_dtype(dtypes: Mapping[str, str], group: Sequence[str], name: str) -> str:
    """Return the dtype of a matrix; raises DataError for a column that is not of numbers."""
    for column in group:
        if dtypes[column] == TEXT or np.dtype(dtypes[column]).kind not in "biufc":
            raise DataError(f"{name}: a matrix is of numbers, which column {column!r} is not")
    return np.result_type(*(dtypes[n] for n in group)).str
