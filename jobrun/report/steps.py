"""The numbers that functions have logged for single steps, as ``events.jsonl`` has them.

A resumed run repeats the steps after its checkpoint: what they logged first is replaced, and what
belongs to a later part of a history that was left is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobrun.core.events import StepLogged
from jobrun.report.events_file import read_events, undoes

__all__ = ["StepRow", "read_steps"]

_FIELDS = ("task", "node", "epoch", "batch", "values")
_KINDS = ("RunStarted", "RunWentBack", "CheckpointLoaded", "StepLogged")


@dataclass(frozen=True, slots=True)
class StepRow:
    """The numbers that a task of a node logged for a step; ``batch`` counts from 1 in an epoch.

    ``step`` is that of ``StepLogged``.
    """

    epoch: int
    batch: int
    task: str
    node: str
    values: Mapping[str, Any]
    step: int


def read_steps(events: Path) -> list[StepRow]:
    """Return the steps of a run's history, in their order; none if there is no such file."""
    found: dict[tuple[int, int, str, str, int], dict[str, Any]] = {}
    only_exit = False
    for event in read_events(events, _KINDS):
        if event["event"] == "StepLogged":
            made = StepLogged(**{key: event[key] for key in _FIELDS}, batches=event["batches"])
            key = (made.epoch, made.batch, made.task, made.node, made.step)
            found.setdefault(key, {}).update(_numbers(event["values"]))
            continue
        if event["event"] == "RunStarted":
            only_exit = bool(event.get("only"))
        if not only_exit and undoes(event):  # else no epoch is run
            # Of an epoch that is continued, what was done before its checkpoint is not repeated.
            last = event["epoch"] + _is_inside(event)
            found = {key: values for key, values in found.items() if key[0] <= last}
    return [StepRow(*key[:4], values, key[4]) for key, values in sorted(found.items())]


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among values of JSON, in which NaN and infinities are strings."""
    found = {}
    for name, value in values.items():
        with suppress(TypeError, ValueError):
            found[name] = float(value)
    return found


def _is_inside(event: Mapping[str, Any]) -> bool:
    """Return whether a run continues inside of an epoch: the words for its place say more."""
    return str(event.get("place", "")) not in ("", f"epoch {event['epoch']}")
