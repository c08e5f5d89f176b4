"""Stop conditions: each observes every finished epoch, and gives a verdict on what it has seen.

``observe(state, seen) -> state`` and ``verdict(state) -> reason or None`` are pure.  The state is
JSON and is saved with each checkpoint, so that an interrupted run stops where an uninterrupted one
does; parameters come from the spec of now, so that a resume with other limits obeys those.

Keras's EarlyStopping (patience, min_delta, start_from_epoch) and Ray Tune's stoppers are the models
of the conditions; unlike Keras, NaN never becomes the best value, and the counters survive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from jobrun.conditions.expression import Expression, MissingName
from jobrun.core.duration import span
from jobrun.core.ranking import better
from jobrun.errors import TaskError

__all__ = [
    "BlobTrue",
    "Condition",
    "ConditionState",
    "DataFinished",
    "Decision",
    "EpochSummary",
    "Epochs",
    "NotFinite",
    "Patience",
    "Walltime",
    "When",
    "decide_stop",
    "match_states",
    "observe_all",
]

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """What the conditions are shown of a finished epoch.

    ``epoch`` is the number of epochs done, ``elapsed`` the run's seconds over all attempts,
    ``scalars`` the one-element blobs by name (absent: no value this epoch), ``passes`` the passes
    over its data that each pipe has finished (the largest over its nodes), ``none`` the blobs that
    were written in this epoch and are None.
    """

    epoch: int
    elapsed: float
    scalars: Mapping[str, Any] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    none: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Condition:
    """The base of all conditions; ``kind`` is the key in the spec."""

    kind: ClassVar[str] = ""

    @property
    def metric(self) -> str | None:
        """What tells two conditions of one kind apart when saved states are matched."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The scalar blobs that the condition looks at."""
        return ()

    @property
    def needs(self) -> frozenset[str]:
        """The scalar blobs without a value of which the condition cannot come true."""
        return frozenset(self.names)

    def describe(self) -> str:
        """The condition as the spec has it, for messages: ``patience: loss``."""
        return self.kind if self.metric is None else f"{self.kind}: {self.metric}"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """The state after a finished epoch; ``state`` is ``{}`` at first."""
        raise AssertionError(self)  # every kind has its own

    def verdict(self, state: State) -> str | None:
        """Why the run should stop, or None; ``{}``, nothing seen yet, is never a reason."""
        raise AssertionError(self)

    def gauge(self, state: State) -> str:
        """How near the condition is, for the progress display: ``patience loss 2/5``."""
        return ""


@dataclass(frozen=True)
class Epochs(Condition):
    """Stop after ``n`` epochs in all, counted over resumes."""

    n: int
    kind: ClassVar[str] = "epochs"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember how many epochs are done."""
        return {"epoch": seen.epoch}

    def verdict(self, state: State) -> str | None:
        """True once ``n`` epochs are done."""
        if state.get("epoch", 0) >= self.n:
            return f"{self.n} epoch{'s' if self.n != 1 else ''} done"
        return None

    def gauge(self, state: State) -> str:
        """Epochs done of how many."""
        return f"epochs {state.get('epoch', 0)}/{self.n}"


@dataclass(frozen=True)
class When(Condition):
    """Stop when an expression over scalar blobs, vars, ``epoch`` and ``elapsed`` is true."""

    expression: Expression
    constants: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "when"

    @property
    def names(self) -> tuple[str, ...]:
        """The blobs of the expression."""
        own = {"epoch", "elapsed", *self.constants}
        return tuple(n for n in self.expression.names if n not in own)

    @property
    def needs(self) -> frozenset[str]:
        """The blobs of the expression without which it is never true."""
        return self.expression.needs().intersection(self.names)

    def describe(self) -> str:
        """The expression."""
        return f"when: {self.expression.text}"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember every scalar, since the expression may be another one at the verdict."""
        return {**seen.scalars, "epoch": seen.epoch, "elapsed": seen.elapsed}

    def verdict(self, state: State) -> str | None:
        """True if the expression is; false where one of its blobs has no value."""
        if not state:
            return None
        try:
            value = self.expression.value({**self.constants, **state})
        except MissingName:
            return None
        return f"when: {self.expression.text}" if value and value == value else None

    def gauge(self, state: State) -> str:
        """The expression."""
        return f"when: {self.expression.text}"


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


@dataclass(frozen=True)
class BlobTrue(_OfBlob):
    """Stop when a one-element blob is truthy."""

    kind: ClassVar[str] = "blob"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember whether the blob is true."""
        return {"value": bool(seen.scalars.get(self.name, False))}

    def verdict(self, state: State) -> str | None:
        """True if the blob was."""
        return f"blob {self.name} is true" if state.get("value") else None


@dataclass(frozen=True)
class DataFinished(Condition):
    """Stop when nothing is left to read in a pipe: its ``limit`` of passes is reached."""

    task: str
    limit: int
    kind: ClassVar[str] = "data_finished"

    @property
    def metric(self) -> str:
        """The pipe's task."""
        return self.task

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember how many passes are finished."""
        return {"passes": seen.passes.get(self.task, 0)}

    def verdict(self, state: State) -> str | None:
        """True once all passes are finished."""
        if state.get("passes", 0) >= self.limit:
            return f"data finished: {self.task} has read all its data"
        return None

    def gauge(self, state: State) -> str:
        """Passes finished of how many."""
        return f"passes {self.task} {state.get('passes', 0)}/{self.limit}"


@dataclass(frozen=True)
class Patience(_OfBlob):
    """Stop when a metric has not improved for ``epochs`` epochs.

    Improvement is strict: for ``min``, value < best - min_delta.  NaN and the infinities are no
    improvement and never the best.  The first ``start`` epochs are not looked at; an epoch without
    a value does not count.
    """

    epochs: int
    direction: str = "min"
    min_delta: float = 0.0
    start: int = 0
    kind: ClassVar[str] = "patience"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Move the best value, or count an epoch without improvement."""
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
        """True once the counter has reached ``epochs``."""
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

    def gauge(self, state: State) -> str:
        """Epochs without improvement of how many."""
        return f"patience {self.name} {state.get('wait', 0)}/{self.epochs}"


@dataclass(frozen=True)
class Walltime(Condition):
    """Stop once the run has taken ``seconds``, accumulated over resumes."""

    seconds: float
    kind: ClassVar[str] = "walltime"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember the run's seconds."""
        return {"elapsed": seen.elapsed}

    def verdict(self, state: State) -> str | None:
        """True once the time is over."""
        if state.get("elapsed", 0.0) >= self.seconds:
            return f"walltime of {self.seconds:g} s is over"
        return None

    def gauge(self, state: State) -> str:
        """The run's time of how much."""
        return f"walltime {span(state.get('elapsed', 0.0))}/{span(self.seconds)}"


@dataclass(frozen=True)
class NotFinite(_OfBlob):
    """True when a metric is NaN or infinite; meant for ``fail:``."""

    kind: ClassVar[str] = "not_finite"

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Remember the value if it is not finite."""
        value = _number(self, seen)
        if value is None or math.isfinite(value):
            return {}
        return {"value": str(float(value)), "epoch": seen.epoch}

    def verdict(self, state: State) -> str | None:
        """True if the metric was not finite in the epoch observed last."""
        if "value" in state:
            return f"{self.name} is not finite ({state['value']}) in epoch {state['epoch']}"
        return None


def _number(condition: Patience | NotFinite, seen: EpochSummary) -> Any:
    """The metric of a condition, None without a value; raises TaskError if it is no number."""
    value = seen.scalars.get(condition.name)
    if value is None:
        return None
    try:
        math.isnan(value)
    except TypeError:
        message = f"metric {condition.name!r} is no number: {value!r}"
        raise TaskError(
            message, hint=f"'{condition.kind}' needs a number after each epoch"
        ) from None
    return value


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of all verdicts: ``outcome`` is ``"stop"`` or ``"fail"``."""

    outcome: str
    reason: str
    kind: str

    def to_json(self) -> dict[str, str]:
        """The decision as JSON values."""
        return {"outcome": self.outcome, "reason": self.reason, "kind": self.kind}


@dataclass(frozen=True)
class ConditionState:
    """A condition with its state, and whether it stands under ``fail``.

    ``none`` has, for each blob that it looks at, in how many epochs it was None; 0 from its first
    value on.
    """

    condition: Condition
    fails: bool
    state: State = field(default_factory=dict)
    none: Mapping[str, int] = field(default_factory=dict)

    def observe(self, seen: EpochSummary) -> ConditionState:
        """The condition after a finished epoch."""
        none = dict(self.none)
        for name in self.condition.names:
            if name in seen.scalars:
                none[name] = 0
            elif name in seen.none and none.get(name) != 0:
                none[name] = none.get(name, 0) + 1
        return replace(self, state=self.condition.observe(self.state, seen), none=none)


def observe_all(
    watched: Sequence[ConditionState], seen: EpochSummary
) -> tuple[ConditionState, ...]:
    """Let **every** condition observe: no short circuit, since each may keep state."""
    return tuple(w.observe(seen) for w in watched)


def decide_stop(watched: Iterable[ConditionState]) -> Decision | None:
    """Of several true conditions one under ``fail`` wins, else the first under ``stop``."""
    first: Decision | None = None
    for w in watched:
        reason = w.condition.verdict(w.state)
        if reason is None:
            continue
        if w.fails:
            return Decision("fail", reason, w.condition.kind)
        first = first or Decision("stop", reason, w.condition.kind)
    return first


def match_states(
    conditions: Sequence[tuple[Condition, bool]],
    saved: Sequence[Mapping[str, Any]],
    seen: EpochSummary | None = None,
) -> tuple[ConditionState, ...]:
    """Pair conditions (with their ``fails``) with saved states.

    Matched by kind, metric and occurrence, since the conditions may have been edited; a condition
    without a saved state starts with ``seen``, the epoch finished last, if there is one.
    """
    pool: dict[tuple[str, str | None], list[Mapping[str, Any]]] = {}
    for entry in saved:
        pool.setdefault((entry["kind"], entry.get("metric")), []).append(entry)
    found: list[ConditionState] = []
    for condition, fails in conditions:
        entries = pool.get((condition.kind, condition.metric), [])
        watched = ConditionState(condition, fails)
        if entries:
            entry = entries.pop(0)
            state, none = dict(entry["state"]), dict(entry.get("none", {}))
            watched = replace(watched, state=state, none=none)
        elif seen is not None:
            watched = watched.observe(seen)
        found.append(watched)
    return tuple(found)


def saved_states(watched: Iterable[ConditionState]) -> list[dict[str, Any]]:
    """What a checkpoint keeps of the conditions; the inverse of ``match_states``."""
    return [
        {
            "kind": w.condition.kind,
            "metric": w.condition.metric,
            "state": dict(w.state),
            **({"none": dict(w.none)} if w.none else {}),
        }
        for w in watched
    ]
