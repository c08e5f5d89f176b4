"""The decision to stop a run: the state of each of its conditions, and of all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobrun.conditions.base import Condition, EpochSummary, State

__all__ = [
    "ConditionState",
    "Decision",
    "decide_stop",
    "match_states",
    "observe_all",
    "saved_states",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of all verdicts: ``outcome`` is ``"stop"`` or ``"fail"``."""

    outcome: str
    reason: str
    kind: str

    def to_json(self) -> dict[str, str]:
        """Return the decision as JSON values."""
        return {"outcome": self.outcome, "reason": self.reason, "kind": self.kind}


@dataclass(frozen=True)
class ConditionState:
    """A condition with its state, and whether it is under ``fail``.

    ``none`` counts, for each blob that it observes, the epochs in which it was None; 0 from its
    first value on.
    """

    condition: Condition
    fails: bool
    state: State = field(default_factory=dict)
    none: Mapping[str, int] = field(default_factory=dict)

    def observe(self, seen: EpochSummary) -> ConditionState:
        """Return the condition after a finished epoch."""
        none = dict(self.none)
        for name in self.condition.names:
            if name in seen.scalars:
                none[name] = 0
            elif name in seen.none and none.get(name) != 0:
                none[name] = none.get(name, 0) + 1
        state = self.condition.observe(self.state, seen)
        return ConditionState(self.condition, self.fails, state, none)


def observe_all(
    watched: Sequence[ConditionState], seen: EpochSummary
) -> tuple[ConditionState, ...]:
    """Let **every** condition observe: no short circuit, since each may keep state."""
    return tuple(w.observe(seen) for w in watched)


def decide_stop(watched: Iterable[ConditionState]) -> Decision | None:
    """Return the first true condition under ``fail``, else the first under ``stop``."""
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
    """Return what a checkpoint keeps of the conditions; the inverse of ``match_states``."""
    return [
        {
            "kind": w.condition.kind,
            "metric": w.condition.metric,
            "state": dict(w.state),
            **({"none": dict(w.none)} if w.none else {}),
        }
        for w in watched
    ]
