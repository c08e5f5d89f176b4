"""What a save has made, as the manager tells its caller."""

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

    ``bytes`` and ``files`` are those of the parts; ``seconds`` has the phases ``write`` (parts,
    durable), ``commit`` (record, rename) and ``retain``; ``parts`` tells of each node.  ``removed``
    are the ids that retention removed, ``warnings`` what it could not.
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
        """Epochs completed."""
        return self.record.epoch

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return self.record.bytes

    @property
    def files(self) -> int:
        """Files in the checkpoint."""
        return self.record.files

    @property
    def linked(self) -> int:
        """Bytes of files that are shared with an earlier checkpoint."""
        return sum(part.linked for part in self.parts)
