"""The built-in stop conditions, one class each: syntax, observation and verdict.

A new one is a class here with ``@_kind``, a test, and a row in the table of ``docs/spec.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from jobrun.conditions.base import Condition, EpochSummary, State
from jobrun.conditions.entry import ConditionEntry, listed, shown
from jobrun.conditions.expression import Expression, MissingName
from jobrun.core.ranking import better
from jobrun.core.text import span
from jobrun.errors import TaskError, did_you_mean

__all__ = [
    "KINDS",
    "BlobTrue",
    "DataFinished",
    "Epochs",
    "NotFinite",
    "Patience",
    "Walltime",
    "When",
]

KINDS: dict[str, type[Condition]] = {}
"""Every condition by its key in the spec."""

_Kind = TypeVar("_Kind", bound=Condition)

_SLURM = "slurm"
"""The value of ``walltime`` that stands for the end of the Slurm job."""

_FARTHEST = 10_000
"""The largest number of epochs searched for the first at which a condition on the epoch is true."""


def _kind(condition: type[_Kind]) -> type[_Kind]:
    """Register a condition under its key."""
    KINDS[condition.kind] = condition
    return condition


def _either(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a value, or of the name of a var that has it."""
    return {"anyOf": [form, {"type": "string"}]}


_EPOCHS = {"minimum": 1, "type": "integer"}
_PATIENCE_KEYS: Mapping[str, Any] = {
    "epochs": {
        **_either(_EPOCHS),
        "description": "Epochs without improvement after which to stop.",
        "examples": [5],
    },
    "min_delta": {
        **_either({"minimum": 0, "type": "number"}),
        "default": 0.0,
        "description": "The smallest improvement that counts: more than this.",
        "examples": [0.001],
    },
    "start": {
        **_either({"minimum": 0, "type": "integer"}),
        "default": 0,
        "description": "Epochs at the beginning that are ignored.",
        "examples": [10],
    },
}
_PATIENCE: Mapping[str, Any] = {
    "additionalProperties": {
        "anyOf": [_EPOCHS, {"type": "string"}, {"$ref": "#/$defs/PatienceModel"}]
    },
    "minProperties": 1,
    "type": "object",
    "$defs": {
        "PatienceModel": {
            "additionalProperties": False,
            "description": "How long to wait for a metric to improve.",
            "properties": _PATIENCE_KEYS,
            "required": ["epochs"],
            "title": "Patience",
            "type": "object",
        }
    },
}


@_kind
@dataclass(frozen=True)
class Epochs(Condition):
    """Stop after ``n`` epochs in all, counted over resumes."""

    n: int
    kind: ClassVar[str] = "epochs"
    summary: ClassVar[str] = "True after this many epochs in total, counted over resumes."
    example: ClassVar[Any] = 50
    schema: ClassVar[Mapping[str, Any]] = _either(_EPOCHS)

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read a number of epochs."""
        n = entry.epochs(entry.value)
        return [] if n is None else [cls(n)]

    @property
    def epoch_limit(self) -> int:
        """The number of epochs."""
        return self.n

    def describe(self) -> str:
        """Return the epoch after which it is true."""
        return f"after epoch {self.n}"

    def earliest(self, state: State, epoch: int, limit: int | None) -> tuple[int | None, bool]:
        """Return the last epoch, or the next one if more are done."""
        return max(self.n, epoch + 1), True

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep the number of finished epochs."""
        return {"epoch": seen.epoch}

    def verdict(self, state: State) -> str | None:
        """Return a reason once ``n`` epochs are finished."""
        if state.get("epoch", 0) >= self.n:
            return f"{self.n} epoch{'s' if self.n != 1 else ''} done"
        return None

    def progress_text(self, state: State) -> str:
        """Return the finished epochs out of ``n``."""
        return f"epochs {state.get('epoch', 0)}/{self.n}"


@_kind
@dataclass(frozen=True)
class When(Condition):
    """Stop when an expression over scalar blobs, vars, ``epoch`` and ``elapsed`` is true."""

    expression: Expression
    constants: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "when"
    summary: ClassVar[str] = (
        "An expression over scalar blobs, vars, epoch and elapsed: loss < 0.1 and epoch >= 3."
    )
    example: ClassVar[Any] = "loss < 0.1 and epoch >= 3"

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read an expression, with the vars that it names."""
        expression, shared = entry.expression(), entry.known.shared
        if expression is None:
            return []
        return [cls(expression, {n: shared[n] for n in expression.names if n in shared})]

    @property
    def names(self) -> tuple[str, ...]:
        """The blobs of the expression."""
        own = {"epoch", "elapsed", *self.constants}
        return tuple(n for n in self.expression.names if n not in own)

    @property
    def needs(self) -> frozenset[str]:
        """The blobs of the expression without which it is never true."""
        return self.expression.needs().intersection(self.names)

    @property
    def label(self) -> str:
        """The expression."""
        return f"when: {self.expression.text}"

    def describe(self) -> str:
        """Return the expression."""
        return f"when {self.expression.text}"

    def earliest(self, state: State, epoch: int, limit: int | None) -> tuple[int | None, bool]:
        """Return the epoch for an expression of ``epoch`` and vars only, else the next one."""
        if self.names:
            return epoch + 1, False
        try:
            for number in range(epoch + 1, min(limit or _FARTHEST, _FARTHEST) + 1):
                if self.expression.value({**self.constants, "epoch": number}):
                    return number, True
        except MissingName:
            return epoch + 1, False
        return None, limit is not None

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep every scalar, since the expression may have been edited before the verdict."""
        return {**seen.scalars, "epoch": seen.epoch, "elapsed": seen.elapsed}

    def verdict(self, state: State) -> str | None:
        """Return the expression if it is true; None if one of its blobs has no value."""
        if not state:
            return None
        try:
            value = self.expression.value({**self.constants, **state})
        except MissingName:
            return None
        return self.label if value and value == value else None

    def progress_text(self, state: State) -> str:
        """Return the expression."""
        return self.label


@dataclass(frozen=True)
class _OfBlob(Condition):
    """A condition on one scalar blob, ``name``."""

    name: str

    @property
    def metric(self) -> str:
        """The blob."""
        return self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The blob."""
        return (self.name,)


@_kind
@dataclass(frozen=True)
class BlobTrue(_OfBlob):
    """Stop when a one-element blob is truthy."""

    kind: ClassVar[str] = "blob"
    summary: ClassVar[str] = "True if this one-element blob is."
    example: ClassVar[Any] = "converged"

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read the name of a blob."""
        name = entry.blob(entry.value)
        return [] if name is None else [cls(name)]

    def describe(self) -> str:
        """Return the blob that has to be true."""
        return f"{self.name} is true"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep whether the blob is true."""
        return {"value": bool(seen.scalars.get(self.name, False))}

    def verdict(self, state: State) -> str | None:
        """Return a reason if the blob was true."""
        return f"blob {self.name} is true" if state.get("value") else None


@_kind
@dataclass(frozen=True)
class DataFinished(Condition):
    """Stop when a pipe has no rows left: its ``limit`` of passes is reached."""

    task: str
    limit: int
    kind: ClassVar[str] = "data_finished"
    summary: ClassVar[str] = "A pipe's task: true when nothing is left to read in it."
    example: ClassVar[Any] = "train"

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read the name of a pipe of the epoch that has a limit of passes."""
        name, pipes = entry.value, entry.known.pipes
        if not isinstance(name, str):
            hint = f"data_finished: {next(iter(pipes), 'train')}" if pipes is not None else ""
            entry.refuse(f"expected the name of a pipe's task, got {shown(name)}", hint)
        elif pipes is None:
            pass
        elif name not in pipes:
            hint = did_you_mean(name, list(pipes)) or listed("there are", list(pipes))
            entry.refuse(f"'epoch' has no pipe {name!r}", hint or "'epoch' has no pipe at all")
        elif pipes[name] is None:
            text = f"this can never be true: pipe {name!r} repeats its data without end"
            entry.refuse(text, "give the pipe 'passes: 1'")
        else:
            what = f"'passes' of pipe {name!r} to be a number from 1 up"
            limit = entry.number(pipes[name], least=1, whole=True, what=what)
            return [] if limit is None else [cls(name, int(limit))]
        return []

    def describe(self) -> str:
        """Return the pipe's task."""
        return f"{self.task} has no rows left"

    @property
    def metric(self) -> str:
        """The pipe's task."""
        return self.task

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep the number of finished passes, and the node, if others have finished fewer."""
        found: State = {"passes": seen.passes.get(self.task, 0)}
        node = seen.ahead.get(self.task)
        return found if node is None else {**found, "node": node}

    def verdict(self, state: State) -> str | None:
        """Return a reason once all passes are finished."""
        if state.get("passes", 0) >= self.limit:
            node = f" of node {state['node']}" if "node" in state else ""
            return f"data finished: {self.task}{node} has read all its data"
        return None

    def progress_text(self, state: State) -> str:
        """Return the finished passes out of ``limit``."""
        return f"passes {self.task} {state.get('passes', 0)}/{self.limit}"


def _patience_form(given: Any, options: Mapping[str, Any] = {}) -> str:
    """Return the right form of ``patience`` for a metric, or a number of epochs, that is given."""
    if isinstance(given, int):
        return f"{{loss: {given}}}"
    name = given if isinstance(given, str) and " " not in given else "loss"
    known = {key: options[key] for key in _PATIENCE_KEYS if key in options} or {"epochs": 5}
    if list(known) == ["epochs"]:
        return f"{{{name}: {known['epochs']}}}"
    return f"{{{name}: {{{', '.join(f'{key}: {value}' for key, value in known.items())}}}}}"


@_kind
@dataclass(frozen=True)
class Patience(_OfBlob):
    """Stop when a metric has not improved for ``epochs`` epochs.

    Improvement is strict: for ``min``, value < best - min_delta.  NaN and the infinities are no
    improvement and never the best.  The first ``start`` epochs are ignored; an epoch without a
    value does not count.
    """

    epochs: int
    direction: str = "min"
    min_delta: float = 0.0
    start: int = 0
    kind: ClassVar[str] = "patience"
    summary: ClassVar[str] = "True when a metric has not improved for this many epochs."
    example: ClassVar[Any] = {"loss": 5}
    schema: ClassVar[Mapping[str, Any]] = _PATIENCE

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read metrics, each with its epochs or a mapping of options."""
        written = entry.value
        if not isinstance(written, Mapping) or not written:
            hint = f"patience: {_patience_form(written)}" if written else ""
            entry.refuse(f"expected {{metric: epochs}}, got {shown(written)}", hint)
            return []
        if isinstance(written.get("metric"), str) and "metric" not in (entry.known.metrics or ()):
            hint = f"patience: {_patience_form(written['metric'], written)}"
            entry.refuse("the metric is the key here", hint, "metric", key=True)
            entry.direction(written["metric"])
            return []
        found = [cls._of(entry, name, value) for name, value in entry.value.items()]
        return [c for c in found if c is not None]

    @classmethod
    def _of(cls, entry: ConditionEntry, name: Any, value: Any) -> Self | None:
        if not isinstance(name, str):
            entry.refuse(f"expected the name of a metric, got {shown(name)}")
            return None
        direction = entry.direction(name)
        options = value if isinstance(value, Mapping) else {"epochs": value}
        for key in options:
            if key not in _PATIENCE_KEYS:
                near = did_you_mean(str(key), list(_PATIENCE_KEYS))
                hint = near or f"there are {', '.join(_PATIENCE_KEYS)}"
                entry.refuse(f"unknown key {str(key)!r}", hint, name, str(key), key=True)
        if set(options) - set(_PATIENCE_KEYS):
            return None
        if "epochs" not in options:
            entry.refuse("'epochs' is missing here", f"{{{name}: {{epochs: 5}}}}", name)
            return None
        path = (name, "epochs") if options is value else (name,)
        epochs = entry.epochs(options["epochs"], *path)
        delta, start = options.get("min_delta", 0.0), options.get("start", 0)
        what = "a number from 0 up"
        delta = entry.number(delta, name, "min_delta", least=0, whole=False, what=what)
        what = "a number of epochs from 0 up"
        start = entry.number(start, name, "start", least=0, whole=True, what=what)
        if epochs is None or delta is None or start is None or direction is None:
            return None
        return cls(name, epochs, direction, delta, int(start))

    def describe(self) -> str:
        """Return the metric and the epochs."""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        return f"{self.name} has not improved for {epochs}"

    def earliest(self, state: State, epoch: int, limit: int | None) -> tuple[int | None, bool]:
        """Return the epoch after the remaining epochs without improvement."""
        left = max(self.epochs - int(state.get("wait", 0)), 1)
        return max(epoch, self.start) + left, True

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Update the best value, or count an epoch without improvement."""
        if state.get("direction", self.direction) != self.direction:
            state = {}
        value = _number(self, seen)
        if value is None or seen.epoch <= self.start:
            return dict(state)
        if better(value, state.get("best"), self.direction, self.min_delta):
            return {
                "direction": self.direction,
                "best": value,
                "best_epoch": seen.epoch,
                "wait": 0,
            }
        return {
            "direction": self.direction,
            "best": state.get("best"),
            "best_epoch": state.get("best_epoch"),
            "wait": state.get("wait", 0) + 1,
        }

    def verdict(self, state: State) -> str | None:
        """Return a reason once the counter has reached ``epochs``."""
        if state.get("direction", self.direction) != self.direction:
            return None
        if state.get("wait", 0) < self.epochs:
            return None
        best = state.get("best")
        since = "no finite value yet" if best is None else f"best {best:.6g}"
        if state.get("best_epoch") is not None:
            since += f" at epoch {state['best_epoch']}"
        epochs = "1 epoch" if state["wait"] == 1 else f"{state['wait']} epochs"
        return f"patience: {self.name} has not improved for {epochs} ({since})"

    def progress_text(self, state: State) -> str:
        """Return the epochs without improvement out of ``epochs``."""
        return f"patience {self.name} {state.get('wait', 0)}/{self.epochs}"


@_kind
@dataclass(frozen=True)
class Walltime(Condition):
    """Stop once the run has taken ``seconds``, accumulated over resumes.

    None stands for ``slurm``: the run is interrupted before its Slurm job ends, and the condition
    itself is never true (see ``engine/slurm.py``).
    """

    seconds: float | None
    kind: ClassVar[str] = "walltime"
    summary: ClassVar[str] = (
        "True after 90s, 15m or 2h of run time, counted over resumes; slurm: the run is saved and "
        "interrupted before its Slurm job ends."
    )
    example: ClassVar[Any] = "8h"
    schema: ClassVar[Mapping[str, Any]] = _either({"exclusiveMinimum": 0, "type": "number"})

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read a time, or ``slurm``."""
        if entry.given == _SLURM:
            if entry.spec.section == "fail":
                entry.refuse("'slurm' interrupts a run, which is no failure", "write it in 'stop'")
                return []
            return [cls(None)]
        seconds = entry.seconds()
        return [] if seconds is None else [cls(seconds)]

    @property
    def time_limit(self) -> float | None:
        """The time in seconds, or None for ``slurm``."""
        return self.seconds

    @property
    def interrupts(self) -> bool:
        """Whether it is ``slurm``."""
        return self.seconds is None

    def describe(self) -> str:
        """Return the time after which, or before which, it acts."""
        if self.seconds is None:
            return "interrupted before the Slurm job ends"
        return f"after {self.seconds:g} s"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep the elapsed seconds of the run."""
        return {"elapsed": seen.elapsed}

    def verdict(self, state: State) -> str | None:
        """Return a reason once the time is used up."""
        if self.seconds is not None and state.get("elapsed", 0.0) >= self.seconds:
            return f"walltime of {self.seconds:g} s is over"
        return None

    def progress_text(self, state: State) -> str:
        """Return the elapsed time out of the limit."""
        if self.seconds is None:
            return ""
        return f"walltime {span(state.get('elapsed', 0.0))}/{span(self.seconds)}"


@_kind
@dataclass(frozen=True)
class NotFinite(_OfBlob):
    """Stop when a metric is NaN or infinite; meant for ``fail:``."""

    kind: ClassVar[str] = "not_finite"
    summary: ClassVar[str] = "True when a metric is NaN or infinite; for 'fail'."
    example: ClassVar[Any] = "loss"

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read the name of a metric."""
        if isinstance(entry.value, list | tuple):
            hint = "for several, fail: [{not_finite: a}, {not_finite: b}]"
            entry.refuse("expected one metric", hint)
            return []
        name = entry.blob(entry.value)
        return [] if name is None else [cls(name)]

    def describe(self) -> str:
        """Return the metric that is not finite."""
        return f"{self.name} is not finite"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Keep the value if it is not finite."""
        value = _number(self, seen)
        if value is None or math.isfinite(value):
            return {}
        return {"value": str(float(value)), "epoch": seen.epoch}

    def verdict(self, state: State) -> str | None:
        """Return a reason if the metric was not finite in the last observed epoch."""
        if "value" in state:
            return f"{self.name} is not finite ({state['value']}) in epoch {state['epoch']}"
        return None


def _number(condition: Patience | NotFinite, seen: EpochSummary) -> Any:
    """Return the metric of a condition, None without a value; raises TaskError if not a number."""
    value = seen.scalars.get(condition.name)
    if value is None:
        return None
    try:
        math.isnan(value)
    except TypeError:
        message = f"metric {condition.name!r} is not a number: {value!r}"
        raise TaskError(
            message, hint=f"'{condition.kind}' needs a number after each epoch"
        ) from None
    return value
