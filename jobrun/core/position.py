"""The position in a run: finished work, the state of each reader, the stop conditions.

A position is small and plain JSON: it is saved in ``_SUCCESS`` of a checkpoint, and a session that
is given a position continues exactly there.  At the boundary of an epoch ``tasks`` and ``pipes``
are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

__all__ = ["PipeState", "Position", "ReaderState"]


@dataclass(frozen=True, slots=True)
class ReaderState:
    """The state of a reader.

    ``passes`` passes are complete and ``row`` rows of the current one have been used.
    ``rows`` and ``dtypes`` (column name to dtype) describe the source, so that a resume over
    another source is noticed; of a source without a length, ``rows`` is that of the last pass.
    ``mark`` is what a source that is read from front to back needs to find the row again: JSON
    values; None where it needs nothing.
    """

    passes: int = 0
    row: int = 0
    rows: int | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    mark: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "passes": self.passes,
            "row": self.row,
            "rows": self.rows,
            "dtypes": dict(self.dtypes),
            **({} if self.mark is None else {"mark": self.mark}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReaderState:
        """Return the inverse of ``to_json``."""
        dtypes = dict(data["dtypes"])
        return cls(data["passes"], data["row"], data["rows"], dtypes, data.get("mark"))


@dataclass(frozen=True, slots=True)
class PipeState:
    """A pipe within an unfinished epoch: batches applied, and the reductions so far.

    ``reduced`` maps an output to ``(how, value, rows)``: the running reduction, and over how many
    rows.  ``last`` stands for an output that is not a number so far, and keeps its last value.
    """

    batches: int = 0
    reduced: Mapping[str, tuple[str, float, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values; floats survive exactly (shortest round-trip form)."""
        return {"batches": self.batches, "reduced": {k: list(v) for k, v in self.reduced.items()}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PipeState:
        """Return the inverse of ``to_json``."""
        return cls(data["batches"], {k: (v[0], v[1], v[2]) for k, v in data["reduced"].items()})


_State = TypeVar("_State", PipeState, ReaderState)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a run.

    ``epochs`` are completed.  Within the next one, the tasks named in ``tasks`` are finished, and
    ``pipes`` holds the unfinished pipes.  ``readers`` holds every pipe's reader, by the task's key.
    Pipe and task keys are unique within a job (``node`` and task name).
    """

    epochs: int = 0
    tasks: tuple[str, ...] = ()
    pipes: Mapping[str, PipeState] = field(default_factory=dict)
    readers: Mapping[str, ReaderState] = field(default_factory=dict)

    @property
    def at_boundary(self) -> bool:
        """Whether the position lies between two epochs."""
        return not self.tasks and not self.pipes

    @property
    def place(self) -> str:
        """The position in words: ``epoch 2``, or ``epoch 3, after batch 10 of pipe 'train'``."""
        if self.at_boundary:
            return f"epoch {self.epochs}"
        return f"epoch {self.epochs + 1}, {self._inside()}"

    def _inside(self) -> str:
        """Return the finished work of the unfinished epoch, in words."""
        if not self.pipes:
            return f"after {len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}"
        if len(self.pipes) > 2:
            return f"after batch {self.batches} of {len(self.pipes)} pipes"
        pipes = (f"batch {p.batches} of pipe {key!r}" for key, p in self.pipes.items())
        return f"after {', '.join(pipes)}"

    @property
    def batches(self) -> str:
        """The batches applied in the unfinished pipes: ``10``, or ``8..10`` where they differ."""
        counts = {pipe.batches for pipe in self.pipes.values()} or {0}
        low, high = min(counts), max(counts)
        return str(high) if low == high else f"{low}..{high}"

    def next_epoch(self, readers: Mapping[str, ReaderState]) -> Position:
        """Return the boundary after the unfinished epoch."""
        return Position(epochs=self.epochs + 1, readers=dict(readers))

    def in_order(self, keys: Iterable[str]) -> Position:
        """Return the same position; pipes and readers have the order of ``keys``."""
        if len(self.pipes) < 2 and len(self.readers) < 2:
            return self
        place = {key: number for number, key in enumerate(keys)}
        last = len(place)

        def sort(states: Mapping[str, _State]) -> dict[str, _State]:
            return dict(sorted(states.items(), key=lambda item: place.get(item[0], last)))

        return replace(self, pipes=sort(self.pipes), readers=sort(self.readers))

    def to_json(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        return {
            "epochs": self.epochs,
            "tasks": list(self.tasks),
            "pipes": {k: v.to_json() for k, v in self.pipes.items()},
            "readers": {k: v.to_json() for k, v in self.readers.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Position:
        """Return the inverse of ``to_json``."""
        if not (data["tasks"] or data["pipes"] or data["readers"]):  # of most that are listed
            return cls(data["epochs"])
        return cls(
            epochs=data["epochs"],
            tasks=tuple(data["tasks"]),
            pipes={k: PipeState.from_json(v) for k, v in data["pipes"].items()},
            readers={k: ReaderState.from_json(v) for k, v in data["readers"].items()},
        )
