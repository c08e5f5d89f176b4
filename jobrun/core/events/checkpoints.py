"""Events of checkpoints: saves, loads, removals and uploads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobrun.core.events.base import Event

__all__ = [
    "CheckpointFailed",
    "CheckpointLoaded",
    "CheckpointSaved",
    "CheckpointSkipped",
    "CheckpointsMoved",
    "CheckpointsRemoved",
    "SaveAsked",
    "SaveStarted",
    "Uploaded",
]


@dataclass(frozen=True, slots=True)
class SaveAsked(Event):
    """A save is wanted by ``signal``: it is made at the next place where that can be done."""

    signal: str


@dataclass(frozen=True, slots=True)
class SaveStarted(Event):
    """A checkpoint begins to be written; the run goes on, unless it has to wait for it."""

    id: int
    epoch: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A checkpoint is whole and durable.

    ``bytes`` and ``files`` count all of it, ``linked`` the bytes shared with an earlier one, which
    were not written again.  ``seconds`` is the whole save, ``phases`` its parts (``write``,
    ``sync``, ``commit``, ``retain``; before them ``wait`` for the save before, and ``snapshot``;
    with several nodes ``write <node>``), ``stall`` what the run waited for it.  ``asked``: somebody
    wanted this one.
    """

    id: int
    epoch: int
    path: str
    bytes: int
    files: int
    seconds: float
    stall: float
    phases: Mapping[str, float] = field(default_factory=dict)
    linked: int = 0
    place: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointFailed(Event):
    """A checkpoint could not be written; the run goes on."""

    id: int
    epoch: int
    message: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointsRemoved(Event):
    """Retention removed these checkpoints, or the end of a run that keeps none."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsMoved(Event):
    """These checkpoints are no part of this history any more: they are in ``folder`` now."""

    ids: tuple[int, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class CheckpointSkipped(Event):
    """A checkpoint that a fallback passed over, and why."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
    """A checkpoint was proven whole and taken over.

    ``differences`` are lines: libraries that are others now than when it was written.  ``phases``
    are the seconds of each node where there are several: ``read <node>``.
    """

    id: int
    epoch: int
    path: str
    bytes: int
    seconds: float
    differences: tuple[str, ...] = ()
    place: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Uploaded(Event):
    """A checkpoint is in another place too, whole and proven.

    ``sent`` of its ``files`` were sent by this attempt, the others were there.
    """

    id: int
    place: str
    bytes: int
    files: int
    sent: int
    seconds: float
