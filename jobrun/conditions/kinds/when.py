"""``when``: stop where an expression is true."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from jobrun.conditions.base import Condition, EpochSummary, State
from jobrun.conditions.entry import ConditionEntry
from jobrun.conditions.expression import Expression, MissingName

__all__ = ["When"]

_FARTHEST = 10_000
"""The largest number of epochs searched for the first at which a condition on the epoch is true."""


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

    def blocked(self, without: Collection[str]) -> bool:
        """Return whether the expression cannot be true while these blobs have no value."""
        return self.expression.blocked(without)

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
