"""A stop condition as written: reading its value, and reporting its problems."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from jobrun.conditions.expression import Expression, ExpressionError
from jobrun.core.blob_paths import levels
from jobrun.core.suggestions import did_you_mean, did_you_mean_or_all
from jobrun.core.text import TIMES, seconds_of
from jobrun.errors import Problem, Where
from jobrun.model.job import ConditionSpec

__all__ = ["ConditionEntry", "KnownNames", "shown"]


_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class KnownNames:
    """The names a condition may refer to; ``blobs``, ``metrics``, ``pipes`` are unchecked if None.

    ``pipes`` maps the pipes of the epoch to their passes.
    """

    shared: Mapping[str, Any]
    split: Collection[str] = ()
    blobs: Collection[str] | None = None
    metrics: Mapping[str, str | None] | None = None
    pipes: Mapping[str, Any] | None = None
    nodes: Sequence[str] = ()


@dataclass
class ConditionEntry:
    """A condition as written, with the list to report its problems to."""

    spec: ConditionSpec
    problems: list[Problem]
    known: KnownNames

    @property
    def value(self) -> Any:
        """The value as written."""
        return self.spec.value

    @property
    def given(self) -> Any:
        """The value, or that of the var it names."""
        value = self.value
        return self.known.shared.get(value, value) if isinstance(value, str) else value

    def refuse(
        self, message: str, hint: str = "", *path: str, whole: bool = False, key: bool = False
    ) -> None:
        """Report a problem at the value that ``path`` leads to, or at its key."""
        marks = self.spec.marks
        places = [".".join(path[:n]) for n in range(len(path), -1, -1)]
        if key:
            places.insert(0, places[0] + ":")
        where = next((marks[p] for p in places if p in marks), None)
        self.report(message, where, hint, *path, whole=whole)

    def report(
        self, message: str, where: Where | None, hint: str, *path: str, whole: bool = False
    ) -> None:
        """Report a problem at a place."""
        name = self.spec.section if whole else ".".join((self.spec.section, self.spec.kind, *path))
        self.problems.append(Problem(f"{name}: {message}", where, hint))

    def number(
        self, value: Any, *path: str, least: float, whole: bool, what: str
    ) -> float | int | None:
        """Return a number, given directly or by a var; None after reporting a problem."""
        name = value if isinstance(value, str) else None
        if name is not None:
            if name in self.known.split:
                hint = "a condition needs one value for all"
                self.refuse(f"var {name!r} differs by node", hint, *path)
                return None
            if name not in self.known.shared:
                hint = did_you_mean(name, list(self.known.shared))
                problem = f"expected {what}; there is no var {name!r}"
                if _NUMBER.fullmatch(name):
                    problem, hint = f"expected {what}, got a string", f"without quotes: {name}"
                self.refuse(problem, hint, *path)
                return None
            value = self.known.shared[name]
        found = _as_number(value, whole)
        if found is None or not found >= least:
            via = f" (the var {name!r})" if name is not None else ""
            exact = isinstance(value, float) and value.is_integer() and value >= least
            hint = f"write {int(value)}" if exact else ""
            self.refuse(f"expected {what}, got {shown(value)}{via}", hint, *path)
            return None
        return found

    def blob(self, value: Any, *path: str, key: bool = False) -> str | None:
        """Return the name of a scalar blob, checked; None after reporting a problem."""
        if not isinstance(value, str) or not value:
            self.refuse(f"expected the name of a blob, got {shown(value)}", "", *path)
            return None
        hint = self.unknown(value)
        if hint is not None:
            self.refuse(f"no task writes a blob {value!r}", hint, *path, key=key)
            return None
        return value

    def unknown(self, name: str) -> str | None:
        """Return a hint if no blob is called ``name``, else None."""
        blobs = self.known.blobs
        if blobs is None:
            return None
        if self.known.nodes and ":" not in name:
            qualified = [f"{n}:{name}" for n in self.known.nodes if f"{n}:{name}" in blobs]
            if qualified:
                return f"a condition names the node: {qualified[0]}"
        if any(level in blobs for level in levels(name)):
            return None
        if name in self.known.shared:
            return "it is a var, which never changes"
        written = sorted(b for b in blobs if not self.known.nodes or ":" in b)
        return did_you_mean_or_all(name, written, "the tasks write")

    def epochs(self, value: Any, *path: str) -> int | None:
        """Return a number of epochs of at least 1; None after reporting a problem."""
        n = self.number(value, *path, least=1, whole=True, what="a number of epochs from 1 up")
        return None if n is None else int(n)

    def seconds(self) -> float | None:
        """Return the value as a time in seconds; None after reporting a problem."""
        value = self.value
        held = self.given
        if isinstance(held, str) and value not in self.known.split:
            seconds = seconds_of(held)
            if seconds is None:
                via = f" (the var {value!r})" if value in self.known.shared else ""
                hint = "" if via else did_you_mean(value, list(self.known.shared))
                self.refuse(f"expected {TIMES}, got {held!r}{via}", hint)
                return None
            value = seconds
        found = self.number(value, least=0, whole=False, what=TIMES)
        if found == 0:
            self.refuse(f"expected {TIMES}, got 0")
        return found or None

    def expression(self) -> Expression | None:
        """Return the value as an expression, with its names checked; None after a problem."""
        text = self.value
        if isinstance(text, bool) or not isinstance(text, str):
            self.refuse(f"expected an expression such as 'loss < 0.1', got {shown(text)}")
            return None
        try:
            expression = Expression.parse(text)
        except ExpressionError as error:
            self.report(str(error), self._within(error.column - 1), error.hint)
            return None
        before = len(self.problems)
        for name in expression.names:
            self._check_name(name, text)
        return expression if len(self.problems) == before else None

    def _check_name(self, name: str, text: str) -> None:
        """Check a name of an expression: ``epoch``, ``elapsed``, a numeric var, or a blob."""
        known = self.known
        where = self._within(_find(name, text), len(name))
        is_blob = known.blobs is not None and name in known.blobs
        if name in ("epoch", "elapsed"):
            if is_blob or name in known.shared:
                self.report(f"{name!r} has two meanings here", where, "rename the blob or var")
        elif name in known.split:
            self.report(
                f"var {name!r} differs by node", where, "a condition needs one value for all"
            )
        elif name in known.shared and not is_blob:
            value = known.shared[name]
            if not isinstance(value, Real):
                self.report(f"var {name!r} is not a number: {shown(value)}", where, "")
        elif (hint := self.unknown(name)) is not None:
            near = did_you_mean(name, [*known.shared, "epoch", "elapsed"]) if known.blobs else ""
            hint = hint if hint.startswith(("did", "a condition")) else near or hint
            if hint.startswith("a condition"):
                hint = "a condition names the node: " + f'blob("{hint.rpartition(": ")[2]}")'
            self.report(f"{name!r} is neither a blob nor a var", where, hint)

    def _within(self, offset: int, width: int = 1) -> Where | None:
        """Return the place of a part of the expression, if the spec has it on one line."""
        marks = self.spec.marks
        start = marks.get("text")
        if start is None:
            return marks.get("")
        width = max(1, min(width, len(start.text) - start.column - offset + 1))
        return replace(start, column=start.column + offset, width=width)

    def direction(self, name: str) -> str | None:
        """Return ``min`` or ``max`` of a metric; None after reporting a problem.

        Empty if metrics are not checked.
        """
        metrics = self.known.metrics
        if metrics is None:
            return ""
        bare = name.rpartition(":")[2]
        if name not in metrics and bare not in metrics:
            if self.unknown(name) is not None:
                self.blob(name, name, key=True)
                return None
            hint = did_you_mean(name, list(metrics)) or f"metrics: {{{name}: min}}"
            self.refuse(f"{name!r} is not among the metrics", hint, name, key=True)
            return None
        if self.known.nodes and ":" not in name:
            self.blob(name, name, key=True)
            return None
        direction = metrics.get(name, metrics.get(bare))
        if direction is None:
            hint = f"metrics: {{{name}: min}}, or max"
            self.refuse(
                f"metric {name!r} has no direction, so no value is better", hint, name, key=True
            )
        return direction


def _as_number(value: Any, whole: bool) -> float | int | None:
    """Return a finite number, as int if ``whole``; None for anything else."""
    if isinstance(value, bool):
        return None
    if whole:
        return int(value) if isinstance(value, Integral) else None
    try:
        return float(value) if isinstance(value, Real) and math.isfinite(value) else None
    except OverflowError:  # an int that no float can hold
        return None


def shown(value: Any) -> str:
    """Return a value as shown in a message."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)[:40]


def _find(name: str, text: str) -> int:
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)
    return found.start() if found else 0
