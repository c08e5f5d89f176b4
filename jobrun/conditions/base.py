"""The base of stop conditions: each observes every finished epoch and returns a verdict.

``observe(state, seen) -> state`` and ``verdict(state) -> reason or None`` are pure.  The state is
JSON and is saved with each checkpoint, so that an interrupted run stops where an uninterrupted one
does; parameters come from the current spec, so that a resume with other limits obeys them.

Keras's EarlyStopping (patience, min_delta, start_from_epoch) and Ray Tune's stoppers are the models
of the conditions; unlike Keras, NaN never becomes the best value, and the counters survive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from jobrun.conditions.entry import ConditionEntry

__all__ = ["Condition", "EpochSummary", "State"]

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """A finished epoch as conditions observe it.

    ``epoch`` is the number of epochs done, ``elapsed`` the run's seconds over all attempts,
    ``scalars`` the one-element blobs by name (absent: no value this epoch), ``passes`` the passes
    over its data that each pipe has finished (the largest over its nodes), ``ahead`` the nodes that
    have finished it, of pipes of which others have not, ``none`` the blobs that were written in
    this epoch and are None.
    """

    epoch: int
    elapsed: float
    scalars: Mapping[str, Any] = field(default_factory=dict)
    passes: Mapping[str, int] = field(default_factory=dict)
    none: frozenset[str] = frozenset()
    ahead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """The base of all conditions.

    ``kind`` is the key in the spec, ``summary`` its description in the JSON Schema of the language,
    ``example`` a value of it, and ``schema`` that of its value; ``$defs`` in it are lifted to those
    of the whole.
    """

    kind: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    example: ClassVar[Any] = None
    schema: ClassVar[Mapping[str, Any]] = {"type": "string"}

    @classmethod
    def parse(cls, entry: ConditionEntry) -> list[Self]:
        """Return the conditions that an entry stands for; problems are reported to the entry."""
        raise AssertionError(cls)  # every kind has its own

    @property
    def metric(self) -> str | None:
        """The name that distinguishes conditions of one kind when saved states are matched."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """The scalar blobs that the condition observes."""
        return ()

    @property
    def needs(self) -> frozenset[str]:
        """The scalar blobs without a value of which the condition cannot be true."""
        return frozenset(name for name in self.names if self.blocked((name,)))

    def blocked(self, without: Collection[str]) -> bool:
        """Return whether the condition cannot be true while these scalar blobs have no value."""
        return any(name in without for name in self.names)

    @property
    def epoch_limit(self) -> int | None:
        """The number of epochs after which it is true, or None if it is not a limit of epochs."""
        return None

    @property
    def time_limit(self) -> float | None:
        """The seconds after which it is true, or None if it is not a limit of time."""
        return None

    @property
    def interrupts(self) -> bool:
        """Whether it interrupts the run, which resumes later, and never ends it."""
        return False

    @property
    def label(self) -> str:
        """The condition as the spec has it, for messages: ``patience: loss``."""
        return self.kind if self.metric is None else f"{self.kind}: {self.metric}"

    def describe(self) -> str:
        """Return when the condition is true, in a few words: ``after epoch 3``."""
        raise AssertionError(self)

    def earliest(self, state: State, epoch: int, limit: int | None) -> tuple[int | None, bool]:
        """Return the first epoch after ``epoch`` where it can be true, and whether that is certain.

        ``limit`` is the last epoch of the run, or None.  The first epoch is None if there is none
        up to ``limit``.
        """
        return epoch + 1, False

    def observe(self, state: State, seen: EpochSummary) -> State:
        """Return the state after a finished epoch; the first ``state`` is ``{}``."""
        raise AssertionError(self)

    def verdict(self, state: State) -> str | None:
        """Return the reason to stop, or None; ``{}``, the state before any epoch, is never one."""
        raise AssertionError(self)

    def progress_text(self, state: State) -> str:
        """Return the progress towards the condition for display: ``patience loss 2/5``."""
        return ""
