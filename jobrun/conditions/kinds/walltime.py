"""``walltime``: stop when the time is used up, or before a Slurm job ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import Condition, EpochSummary, State
from jobrun.conditions.entry import ConditionEntry
from jobrun.conditions.kinds.value_schema import or_var
from jobrun.core.text import span

__all__ = ["Walltime"]

_SLURM = "slurm"
"""The value of ``walltime`` that stands for the end of the Slurm job."""


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
    schema: ClassVar[Mapping[str, Any]] = or_var({"exclusiveMinimum": 0, "type": "number"})

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Read a time, or ``slurm``."""
        if entry.given == _SLURM:
            if entry.spec.section == "fail":
                entry.refuse("'slurm' interrupts a run: it is not a failure", "write it in 'stop'")
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
