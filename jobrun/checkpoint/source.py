"""What the manager asks of others: who writes the parts, and who keeps other writers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jobrun.checkpoint.fs import DEFAULT, Fs
from jobrun.checkpoint.part import PartSummary, mark_saved, write_part
from jobrun.values import Value

__all__ = ["BlobSource", "PartSource", "RunLock"]

Nodes = Mapping[str, Mapping[str, Value]]


class RunLock(Protocol):
    """What keeps other writers out: ``jobrun.lock.Lock``, or one that its owner holds already."""

    def acquire(self) -> None:
        """Hold it; raises LockedError if another process does."""

    def release(self) -> None:
        """Let go."""

    def held(self) -> bool:
        """Whether any process holds it, this one too."""


class PartSource(Protocol):
    """Who holds the blobs of a snapshot and writes them, node by node."""

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes, in the order of the job."""

    def write(self, node: str, directory: str, id: int, share_with: Sequence[str]) -> PartSummary:
        """Write a node's part of checkpoint ``id``, durably: see ``part.write_part``."""

    def saved(self, id: int) -> None:
        """The checkpoint is durable: values that had no version now have this one."""

    def release(self) -> None:
        """The save is over, well or not: the values are not needed any more."""


@dataclass(frozen=True, slots=True)
class BlobSource:
    """A snapshot held here: the blobs of each node, by reference."""

    blobs: Nodes
    fs: Fs = DEFAULT

    @property
    def nodes(self) -> Sequence[str]:
        """The nodes, in the order they were given."""
        return tuple(self.blobs)

    def write(self, node: str, directory: str, id: int, share_with: Sequence[str]) -> PartSummary:
        """Write a node's part."""
        blobs = self.blobs[node]
        return write_part(directory, node, blobs, id=id, share_with=share_with, fs=self.fs)

    def saved(self, id: int) -> None:
        """Give the boxes their version."""
        for blobs in self.blobs.values():
            mark_saved(blobs, id)

    def release(self) -> None:
        """Nothing to do: they are garbage once nobody holds this."""
