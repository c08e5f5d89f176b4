"""``patience``: stop where a metric does not improve any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import EpochSummary, State
from jobrun.conditions.entry import ConditionEntry, shown
from jobrun.conditions.kinds.of_blob import OfBlob
from jobrun.conditions.kinds.value_schema import EPOCHS, or_var
from jobrun.core.ranking import better
from jobrun.core.suggestions import did_you_mean_or_all

__all__ = ["Patience"]

_KEYS: Mapping[str, Any] = {
    "epochs": {
        **or_var(EPOCHS),
        "description": "Epochs without improvement after which to stop.",
        "examples": [5],
    },
    "min_delta": {
        **or_var({"minimum": 0, "type": "number"}),
        "default": 0.0,
        "description": "The smallest improvement that counts: more than this.",
        "examples": [0.001],
    },
    "start": {
        **or_var({"minimum": 0, "type": "integer"}),
        "default": 0,
        "description": "Epochs at the beginning that are ignored.",
        "examples": [10],
    },
}
_SCHEMA: Mapping[str, Any] = {
    "additionalProperties": {
        "anyOf": [EPOCHS, {"type": "string"}, {"$ref": "#/$defs/PatienceModel"}]
    },
    "minProperties": 1,
    "type": "object",
    "$defs": {
        "PatienceModel": {
            "additionalProperties": False,
            "description": "How long to wait for a metric to improve.",
            "properties": _KEYS,
            "required": ["epochs"],
            "title": "Patience",
            "type": "object",
        }
    },
}


@dataclass(frozen=True)
class Patience(OfBlob):
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
    schema: ClassVar[Mapping[str, Any]] = _SCHEMA

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read metrics, each with its epochs or a mapping of options."""
        written = entry.value
        if not isinstance(written, Mapping) or not written:
            hint = f"patience: {_form(written)}" if written else ""
            entry.refuse(f"expected {{metric: epochs}}, got {shown(written)}", hint)
            return []
        if isinstance(written.get("metric"), str) and "metric" not in (entry.known.metrics or ()):
            hint = f"patience: {_form(written['metric'], written)}"
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
            if key not in _KEYS:
                hint = did_you_mean_or_all(str(key), list(_KEYS))
                entry.refuse(f"unknown key {str(key)!r}", hint, name, str(key), key=True)
        if set(options) - set(_KEYS):
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
        value = self.number_in(seen)
        if seen.epoch <= self.start:
            return dict(state)
        if value is None:
            return {**state, "missing": True}
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
            **({"missing": True} if state.get("missing") else {}),
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
        epochs += " with a value" if state.get("missing") else ""  # as of a task with 'every'
        return f"patience: {self.name} has not improved for {epochs} ({since})"

    def progress_text(self, state: State) -> str:
        """Return the epochs without improvement out of ``epochs``."""
        return f"patience {self.name} {state.get('wait', 0)}/{self.epochs}"


def _form(given: Any, options: Mapping[str, Any] = {}) -> str:
    """Return the right form of ``patience`` for a metric, or a number of epochs, that is given."""
    if isinstance(given, int):
        return f"{{loss: {given}}}"
    name = given if isinstance(given, str) and " " not in given else "loss"
    known = {key: options[key] for key in _KEYS if key in options} or {"epochs": 5}
    if list(known) == ["epochs"]:
        return f"{{{name}: {known['epochs']}}}"
    return f"{{{name}: {{{', '.join(f'{key}: {value}' for key, value in known.items())}}}}}"
