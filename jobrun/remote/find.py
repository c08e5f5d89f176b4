"""Finding a checkpoint in another place: see ``checkpoint.loading``."""

from __future__ import annotations

from dataclasses import dataclass

from jobrun.checkpoint.loading import Skipped, is_checkpoint, read_at
from jobrun.checkpoint.record import Record
from jobrun.remote.files import RemoteFs
from jobrun.remote.store import Store, join, open_store, split

__all__ = ["RemoteCheckpoint", "find_at"]


@dataclass(frozen=True, slots=True)
class RemoteCheckpoint:
    """A checkpoint in a store: ``store`` is that of the run, ``name`` the folder in it.

    ``skipped`` are the newer ones that were passed over because they are damaged.
    """

    store: Store
    name: str
    record: Record
    skipped: tuple[Skipped, ...] = ()

    @property
    def url(self) -> str:
        """The URL of the checkpoint."""
        return join(self.store.place, self.name)


def find_at(url: str, *, epoch: int | None = None, id: int | None = None) -> RemoteCheckpoint:
    """Return the checkpoint at ``url``, or of the run there the newest, or that of an epoch or id.

    The newest is the newest of which all files are there at their full lengths.  Raises
    NotFoundError, listing the existing ones, DamagedError if none is whole or the record of the
    named one is damaged, UsageError and StoreError.
    """
    fs = RemoteFs()

    def read(place: str, record: Record) -> None:
        """Read nothing more: the caller reads and verifies what it needs."""

    newest = epoch is None and id is None and not is_checkpoint(url, fs)
    found = read_at(url, read, epoch, id, whole=newest, fallback=newest, fs=fs)
    above, name = split(found.place)
    return RemoteCheckpoint(open_store(above), name, found.record, found.skipped)
