"""Messages to the user."""

from __future__ import annotations

from dataclasses import dataclass

from jobrun.core.events.base import Event

__all__ = ["Printed", "Warned"]


@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A warning: something the user should know that does not stop the run."""

    message: str


@dataclass(frozen=True, slots=True)
class Printed(Event):
    """A line printed to stderr, under ``--progress json`` only, by ``task`` (None: no task)."""

    text: str
    task: str | None = None
    node: str | None = None
    group: str | None = None
    epoch: int | None = None
