"""``blob``: stop where a blob is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import EpochSummary, State
from jobrun.conditions.entry import ConditionEntry
from jobrun.conditions.kinds.of_blob import OfBlob

__all__ = ["BlobTrue"]


@dataclass(frozen=True)
class BlobTrue(OfBlob):
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
