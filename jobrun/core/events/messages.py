"""Messages to the user."""

from __future__ import annotations

from dataclasses import dataclass

from jobrun.core.events.base import Event

__all__ = ["Printed", "Warned"]


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something the user should know, which stops nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class Printed(Event):
    """A line on stderr, under ``--progress json`` alone: ``task`` printed it (None: no task)."""

    text: str
    task: str | None = None
    node: str | None = None
    group: str | None = None
    epoch: int | None = None
