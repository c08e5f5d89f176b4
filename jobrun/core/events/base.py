"""The base class of all events."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Event"]


@dataclass(frozen=True, slots=True)
class Event:
    """The base of all events."""

    def to_json(self) -> dict[str, Any]:
        """Return the event as JSON values, with its class name under ``event``."""
        return {"event": type(self).__name__, **asdict(self)}
