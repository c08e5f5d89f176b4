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
    """A save was requested by ``signal``; it is made at the next possible place."""

    signal: str


@dataclass(frozen=True, slots=True)
class SaveStarted(Event):
    """A checkpoint is being written; the run continues unless it must wait for it."""

    id: int
    epoch: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointSaved(Event):
    """A checkpoint is complete and durable.

    ``bytes`` and ``files`` count all of it, ``linked`` the bytes shared with an earlier one by
    hard links.  ``seconds`` is the whole save, ``phases`` its parts (``write``,
    ``sync``, ``commit``, ``retain``; before them ``wait`` for the save before, and ``snapshot``;
    with several nodes ``write <node>``), ``stall`` how long the run waited for it.  ``asked``: it
    was requested by a signal.
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
    """A checkpoint could not be written; the run continues."""

    id: int
    epoch: int
    message: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointsRemoved(Event):
    """Checkpoints were removed by retention, or at the end of a run that keeps none."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CheckpointsMoved(Event):
    """Checkpoints that are no longer part of this history were moved to ``folder``."""

    ids: tuple[int, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class CheckpointSkipped(Event):
    """A checkpoint was skipped by a fallback, for ``reason``."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Event):
    """A checkpoint was verified and loaded.

    ``differences`` are lines about libraries whose versions have changed since it was written.
    ``phases`` are the seconds of each node where there are several: ``read <node>``.
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
    """A checkpoint was uploaded to ``place`` and verified there.

    ``sent`` of its ``files`` were sent by this attempt; the others were there already.
    """

    id: int
    place: str
    bytes: int
    files: int
    sent: int
    seconds: float
