"""The common base of the conditions on one scalar blob."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from jobrun.conditions.base import Condition, EpochSummary
from jobrun.errors import TaskError

__all__ = ["OfBlob"]


@dataclass(frozen=True)
class OfBlob(Condition):
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

    def number_in(self, seen: EpochSummary) -> Any:
        """Return the number of the blob, None without a value; raises TaskError if not a number."""
        value = seen.scalars.get(self.name)
        if value is None:
            return None
        try:
            math.isnan(value)
        except TypeError:
            message = f"metric {self.name!r} is not a number: {value!r}"
            raise TaskError(
                message, hint=f"'{self.kind}' needs a number after each epoch"
            ) from None
        return value
