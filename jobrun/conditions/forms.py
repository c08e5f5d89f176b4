"""The forms of each stop condition as written, and what is wrong with one.

Every reader takes a ``WrittenCondition`` and returns the conditions that it stands for; what is
wrong with it goes to ``WrittenCondition.problems``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from jobrun.conditions.base import (
    BlobTrue,
    Condition,
    DataFinished,
    Epochs,
    NotFinite,
    Patience,
    Walltime,
    When,
)
from jobrun.conditions.expression import Expression, ExpressionError
from jobrun.core.blob_paths import levels
from jobrun.core.text import TIMES, seconds_of
from jobrun.errors import Problem, Where, did_you_mean
from jobrun.model.job import ConditionSpec

__all__ = ["KINDS", "Known", "WrittenCondition"]

_PATIENCE_KEYS = ("epochs", "min_delta", "start")


@dataclass(frozen=True)
class Known:
    """What a condition may refer to.  ``blobs``, ``metrics`` and ``pipes``: None is not looked at.

    ``pipes`` maps the pipes of the epoch to their passes.
    """

    shared: Mapping[str, Any]
    split: Collection[str] = ()
    blobs: Collection[str] | None = None
    metrics: Mapping[str, str | None] | None = None
    pipes: Mapping[str, Any] | None = None
    nodes: Sequence[str] = ()


@dataclass
class WrittenCondition:
    """One condition as written, and where to report what is wrong with it."""

    spec: ConditionSpec
    problems: list[Problem]
    known: Known

    @property
    def value(self) -> Any:
        """The value as written."""
        return self.spec.value

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
        """A number or the var that holds it, checked; None after a problem was reported."""
        name = value if isinstance(value, str) else None
        if name is not None:
            if name in self.known.split:
                hint = "a condition needs one value for all"
                self.refuse(f"var {name!r} differs by node", hint, *path)
                return None
            if name not in self.known.shared:
                hint = did_you_mean(name, list(self.known.shared))
                self.refuse(f"wants {what}; there is no var {name!r}", hint, *path)
                return None
            value = self.known.shared[name]
        found = _as_number(value, whole)
        if found is None or not found >= least:
            via = f" (the var {name!r})" if name is not None else ""
            self.refuse(f"wants {what}, not {_shown(value)}{via}", "", *path)
            return None
        return found

    def blob(self, value: Any, *path: str, key: bool = False) -> str | None:
        """The name of a scalar blob, checked; None after a problem was reported."""
        if not isinstance(value, str) or not value:
            self.refuse(f"wants the name of a blob, not {_shown(value)}", "", *path)
            return None
        hint = self.unknown(value)
        if hint is not None:
            self.refuse(f"no task writes a blob {value!r}", hint, *path, key=key)
            return None
        return value

    def unknown(self, name: str) -> str | None:
        """A hint if no blob is called ``name``, else None."""
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
        return did_you_mean(name, written) or _listed("the tasks write", written)


def _as_number(value: Any, whole: bool) -> float | int | None:
    """A finite number, as int if ``whole``; None for what is none."""
    if isinstance(value, bool):
        return None
    if whole:
        return int(value) if isinstance(value, Integral) else None
    try:
        return float(value) if isinstance(value, Real) and math.isfinite(value) else None
    except OverflowError:  # an int that no float can hold
        return None


def _listed(text: str, names: Sequence[str], most: int = 8) -> str:
    more = ", …" if len(names) > most else ""
    return f"{text} {', '.join(names[:most])}{more}" if names else ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)[:40]


def _epochs(entry: WrittenCondition) -> list[Condition]:
    what = "a number of epochs from 1 up"
    n = entry.number(entry.value, least=1, whole=True, what=what)
    return [] if n is None else [Epochs(int(n))]


def _walltime(entry: WrittenCondition) -> list[Condition]:
    value = entry.value
    held = entry.known.shared.get(value, value) if isinstance(value, str) else value
    if isinstance(held, str) and value not in entry.known.split:
        seconds = seconds_of(held)
        if seconds is None:
            via = f" (the var {value!r})" if value in entry.known.shared else ""
            hint = "" if via else did_you_mean(value, list(entry.known.shared))
            entry.refuse(f"wants {TIMES}, not {held!r}{via}", hint)
            return []
        value = seconds
    found = entry.number(value, least=0, whole=False, what=TIMES)
    if found == 0:
        entry.refuse(f"wants {TIMES}, not 0")
    return [Walltime(found)] if found else []


def _blob(entry: WrittenCondition) -> list[Condition]:
    name = entry.blob(entry.value)
    return [] if name is None else [BlobTrue(name)]


def _not_finite(entry: WrittenCondition) -> list[Condition]:
    if isinstance(entry.value, list | tuple):
        entry.refuse("wants one metric", "for several, fail: [{not_finite: a}, {not_finite: b}]")
        return []
    name = entry.blob(entry.value)
    return [] if name is None else [NotFinite(name)]


def _data_finished(entry: WrittenCondition) -> list[Condition]:
    name, pipes = entry.value, entry.known.pipes
    if not isinstance(name, str):
        entry.refuse(f"wants the name of a pipe's task, not {_shown(name)}")
    elif pipes is None:
        pass
    elif name not in pipes:
        hint = did_you_mean(name, list(pipes)) or _listed("there are", list(pipes))
        entry.refuse(f"'epoch' has no pipe {name!r}", hint or "'epoch' has no pipe at all")
    elif pipes[name] is None:
        text = f"this can never be true: pipe {name!r} reads its data again and again"
        entry.refuse(text, "give the pipe 'passes: 1'")
    else:
        what = f"'passes' of pipe {name!r} to be a number from 1 up"
        limit = entry.number(pipes[name], least=1, whole=True, what=what)
        return [] if limit is None else [DataFinished(name, int(limit))]
    return []


def _when(entry: WrittenCondition) -> list[Condition]:
    text = entry.value
    if isinstance(text, bool) or not isinstance(text, str):
        entry.refuse(f"wants an expression such as 'loss < 0.1', not {_shown(text)}")
        return []
    try:
        expression = Expression.parse(text)
    except ExpressionError as error:
        entry.report(str(error), _within(entry, error.column - 1), "")
        return []
    before = len(entry.problems)
    for name in expression.names:
        _check_name(entry, name, text)
    if len(entry.problems) > before:
        return []
    shared = entry.known.shared
    return [When(expression, {n: shared[n] for n in expression.names if n in shared})]


def _check_name(entry: WrittenCondition, name: str, text: str) -> None:
    """A name of an expression: ``epoch``, ``elapsed``, a var that is a number, or a blob."""
    known = entry.known
    where = _within(entry, _find(name, text), len(name))
    is_blob = known.blobs is not None and name in known.blobs
    if name in ("epoch", "elapsed"):
        if is_blob or name in known.shared:
            entry.report(f"{name!r} has two meanings here", where, "rename the blob or var")
    elif name in known.split:
        entry.report(f"var {name!r} differs by node", where, "a condition needs one value for all")
    elif name in known.shared and not is_blob:
        value = known.shared[name]
        if not isinstance(value, Real):
            entry.report(f"var {name!r} is no number: {_shown(value)}", where, "")
    elif (hint := entry.unknown(name)) is not None:
        near = did_you_mean(name, [*known.shared, "epoch", "elapsed"]) if known.blobs else ""
        hint = hint if hint.startswith(("did", "a condition")) else near or hint
        if hint.startswith("a condition"):
            hint = "a condition names the node: " + f'blob("{hint.rpartition(": ")[2]}")'
        entry.report(f"{name!r} is no blob and no var", where, hint)


def _find(name: str, text: str) -> int:
    found = re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text)
    return found.start() if found else 0


def _within(entry: WrittenCondition, offset: int, width: int = 1) -> Where | None:
    """The place of a piece of the expression, where the spec has it on one line."""
    marks = entry.spec.marks
    start = marks.get("text")
    if start is None:
        return marks.get("")
    width = max(1, min(width, len(start.text) - start.column - offset + 1))
    return replace(start, column=start.column + offset, width=width)


def _patience(entry: WrittenCondition) -> list[Condition]:
    if not isinstance(entry.value, Mapping) or not entry.value:
        hint = f"patience: {{loss: {entry.value}}}" if isinstance(entry.value, int) else ""
        entry.refuse(f"wants {{metric: epochs}}, not {_shown(entry.value)}", hint)
        return []
    found = [_patience_with(entry, name, value) for name, value in entry.value.items()]
    return [c for c in found if c is not None]


def _patience_with(entry: WrittenCondition, name: Any, value: Any) -> Condition | None:
    if not isinstance(name, str):
        entry.refuse(f"wants the name of a metric, not {_shown(name)}")
        return None
    direction = _direction(entry, name)
    options = value if isinstance(value, Mapping) else {"epochs": value}
    for key in options:
        if key not in _PATIENCE_KEYS:
            near = did_you_mean(str(key), _PATIENCE_KEYS)
            hint = near or f"there are {', '.join(_PATIENCE_KEYS)}"
            entry.refuse(f"unknown key {str(key)!r}", hint, name, str(key), key=True)
    if set(options) - set(_PATIENCE_KEYS):
        return None
    if "epochs" not in options:
        entry.refuse("'epochs' is missing here", f"{{{name}: {{epochs: 5}}}}", name)
        return None
    path = (name, "epochs") if options is value else (name,)
    what = "a number of epochs from 1 up"
    epochs = entry.number(options["epochs"], *path, least=1, whole=True, what=what)
    delta, start = options.get("min_delta", 0.0), options.get("start", 0)
    what = "a number from 0 up"
    delta = entry.number(delta, name, "min_delta", least=0, whole=False, what=what)
    what = "a number of epochs from 0 up"
    start = entry.number(start, name, "start", least=0, whole=True, what=what)
    if epochs is None or delta is None or start is None or direction is None:
        return None
    return Patience(name, int(epochs), direction, delta, int(start))


def _direction(entry: WrittenCondition, name: str) -> str | None:
    """``min`` or ``max``; an empty string where metrics are not looked at; None after a problem."""
    metrics = entry.known.metrics
    if metrics is None:
        return ""
    bare = name.rpartition(":")[2]
    if name not in metrics and bare not in metrics:
        if entry.unknown(name) is not None:
            entry.blob(name, name, key=True)
            return None
        hint = did_you_mean(name, list(metrics)) or f"metrics: {{{name}: min}}"
        entry.refuse(f"{name!r} is not among the metrics", hint, name, key=True)
        return None
    if entry.known.nodes and ":" not in name:
        entry.blob(name, name, key=True)
        return None
    direction = metrics.get(name, metrics.get(bare))
    if direction is None:
        hint = f"metrics: {{{name}: min}}, or max"
        entry.refuse(
            f"metric {name!r} has no direction, so nothing is better", hint, name, key=True
        )
    return direction


KINDS: dict[str, Callable[[WrittenCondition], list[Condition]]] = {
    "epochs": _epochs,
    "when": _when,
    "blob": _blob,
    "data_finished": _data_finished,
    "patience": _patience,
    "walltime": _walltime,
    "not_finite": _not_finite,
}
