"""``data_finished``: stop where a pipe has no rows left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from jobrun.conditions.base import Condition, EpochSummary, State
from jobrun.conditions.entry import ConditionEntry, shown
from jobrun.core.suggestions import did_you_mean_or_all

__all__ = ["DataFinished"]


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
            hint = did_you_mean_or_all(name, list(pipes))
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
