"""Uploading checkpoints to a store: whole, verified, ``_SUCCESS`` last.

Every file is sent, then read back and compared, and sent again if it differs; ``_SUCCESS`` follows
once all are right, so that a folder without it is never taken for a checkpoint.  An interrupted
upload resumes: files that exist at their full lengths are not sent again, but verified like the
others.  A checkpoint with its ``_SUCCESS`` is complete; that of another run is never overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from jobrun.checkpoint.record import SUCCESS
from jobrun.core import crc32c
from jobrun.errors import NotFoundError, StoreError
from jobrun.remote.failures import CorruptError
from jobrun.remote.store import Store, TooLongError, join
from jobrun.storage.regular_file import read_run_file
from jobrun.storage.threads import THREADS_FAR

__all__ = ["UploadResult", "UploadStopped", "is_uploaded", "upload_checkpoint", "upload_files"]

_ROUNDS = 5
"""Times a file is sent before it is an error that it reads back differently."""


@dataclass(frozen=True, slots=True)
class UploadResult:
    """The result of an upload: ``sent`` of the ``files`` were sent, the others existed."""

    place: str
    files: int
    bytes: int
    sent: int


def is_uploaded(checkpoint: Path, store: Store) -> bool:
    """Return whether the whole checkpoint is in the store.

    Raises StoreError if another one has its name: of another run, or of another history.
    """
    name = checkpoint.name
    here = _bytes_of(checkpoint / SUCCESS)
    try:
        there = store.read(f"{name}/{SUCCESS}")
        if there != here:  # a network may have damaged it
            there = store.read(f"{name}/{SUCCESS}")
    except NotFoundError:
        return False
    if there != here and here.startswith(there):
        return False  # torn by a kill: not every store writes files atomically
    if there != here:
        raise StoreError(
            f"another {name} is already there and is not overwritten",
            where=join(store.place, name),
            hint="upload to another place; '${run.name}' in it makes one for each run",
        )
    return True


class UploadStopped(Exception):  # noqa: N818 - a state, not a fault
    """The upload was stopped on request."""


def upload_checkpoint(
    checkpoint: Path, store: Store, stopped: Callable[[], bool] = lambda: False
) -> UploadResult:
    """Copy a whole checkpoint to ``store``, below its own name.

    Raises StoreError if an operation fails or the copy differs from what was sent; UploadStopped,
    before the next file is sent or verified, once ``stopped()`` is true.
    """
    sizes = _files(checkpoint)
    place = join(store.place, checkpoint.name)
    total = sum(sizes.values())
    if is_uploaded(checkpoint, store):
        return UploadResult(place, len(sizes), total, 0)
    there = store.sizes(checkpoint.name)
    payload = [name for name in sizes if name != SUCCESS]
    missing = [name for name in payload if there.get(name) != sizes[name]]
    copy = _Copy(checkpoint, store, f"{checkpoint.name}/", stopped)
    sent = copy.make(payload, missing) + copy.make([SUCCESS], [SUCCESS])
    return UploadResult(place, len(sizes), total, sent)


def upload_files(folder: Path, names: Iterable[str], store: Store) -> None:
    """Copy those small files of a run that exist beside its checkpoints."""
    there = [name for name in names if os.path.isfile(folder / name)]
    _Copy(folder, store).make(there, there)


@dataclass(frozen=True, slots=True)
class _Copy:
    """Copies files of a folder to a store, where ``prefix`` precedes their names."""

    folder: Path
    store: Store
    prefix: str = ""
    stopped: Callable[[], bool] = lambda: False

    def make(self, names: Sequence[str], missing: Sequence[str]) -> int:
        """Send the missing files and verify all; return how many were sent.

        What differs, left by something else or damaged on the way, is sent again.
        """
        sent: set[str] = set()
        with ThreadPoolExecutor(THREADS_FAR) as pool:
            for _ in range(_ROUNDS):
                list(pool.map(self._send, missing))
                sent.update(missing)
                differ = list(pool.map(self._differs, names))
                missing = names = [n for n, d in zip(names, differ, strict=True) if d]
                if not missing:
                    return len(sent)
        where = join(self.store.place, self.prefix + missing[0])
        raise StoreError("it reads back differently from what was written", where=where)

    def _send(self, name: str) -> None:
        if self.stopped():
            raise UploadStopped
        self.store.write(self.prefix + name, _bytes_of(self.folder / name))

    def _differs(self, name: str) -> bool:
        """Return whether a file in the store differs from the local one, read twice."""
        return self._reads_differently(name) and self._reads_differently(name)

    def _reads_differently(self, name: str) -> bool:
        if self.stopped():
            raise UploadStopped
        here = _bytes_of(self.folder / name)
        try:
            there = self.store.read(self.prefix + name, len(here))
        except (CorruptError, NotFoundError, TooLongError):
            return True
        return len(there) != len(here) or crc32c.crc32c(there) != crc32c.crc32c(here)


def _bytes_of(path: Path) -> bytes:
    """Return the current bytes of a file of the run."""
    return read_run_file(path, path.stat().st_size)


def _files(checkpoint: Path) -> dict[str, int]:
    found = {}
    for above, _, names in os.walk(checkpoint):
        for name in names:
            path = Path(above) / name
            found[path.relative_to(checkpoint).as_posix()] = path.stat().st_size
    return dict(sorted(found.items()))
