"""The result of a save."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobrun.checkpoint.part import PartSummary
from jobrun.checkpoint.record import Record

__all__ = ["Saved"]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that is whole and durable.

    ``seconds`` has the phases ``write`` (the parts), ``sync`` (until they are durable), ``commit``
    (record, rename) and ``retain``; ``parts`` has a summary of each node.  ``removed`` are the ids
    that retention removed, ``warnings`` the reasons why others could not be removed.
    """

    record: Record
    path: Path
    seconds: Mapping[str, float]
    parts: Sequence[PartSummary]
    removed: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        """The checkpoint's id."""
        return self.record.id

    @property
    def epoch(self) -> int:
        """The number of epochs completed."""
        return self.record.epoch

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return self.record.bytes

    @property
    def files(self) -> int:
        """The number of files in the checkpoint."""
        return self.record.files

    @property
    def linked(self) -> int:
        """The bytes of files that are shared with an earlier checkpoint."""
        return sum(part.linked for part in self.parts)
