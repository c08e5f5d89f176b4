"""``epochs``: stop after a number of epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import Condition, EpochSummary, State
from jobrun.conditions.entry import ConditionEntry
from jobrun.conditions.kinds.value_schema import EPOCHS, or_var

__all__ = ["Epochs"]


@dataclass(frozen=True)
class Epochs(Condition):
    """Stop after ``n`` epochs in all, counted over resumes."""

    n: int
    kind: ClassVar[str] = "epochs"
    summary: ClassVar[str] = "True after this many epochs in total, counted over resumes."
    example: ClassVar[Any] = 50
    schema: ClassVar[Mapping[str, Any]] = or_var(EPOCHS)

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
