"""``not_finite``: stop, or fail, where a metric is NaN or infinite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import EpochSummary, State
from jobrun.conditions.entry import ConditionEntry
from jobrun.conditions.kinds.of_blob import OfBlob

__all__ = ["NotFinite"]


@dataclass(frozen=True)
class NotFinite(OfBlob):
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
        value = self.number_in(seen)
        if value is None or math.isfinite(value):
            return {}
        return {"value": str(float(value)), "epoch": seen.epoch}

    def verdict(self, state: State) -> str | None:
        """Return a reason if the metric was not finite in the last observed epoch."""
        if "value" in state:
            return f"{self.name} is not finite ({state['value']}) in epoch {state['epoch']}"
        return None
