"""Uploading checkpoints to a store: whole, verified, ``_SUCCESS`` last.

Every file is sent, then read back and compared; ``_SUCCESS`` follows once all are right, so that a
folder without it is never taken for a checkpoint.  An interrupted upload resumes: files that exist
at their full lengths are not sent again, but verified like the others.  A checkpoint with its
``_SUCCESS`` is complete; that of another run is never overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import crc32c

from jobrun.checkpoint.record import SUCCESS
from jobrun.errors import NotFoundError, StoreError
from jobrun.remote.store import Store, TooLongError, join
from jobrun.storage.regular_file import read_run_file
from jobrun.storage.threads import THREADS_FAR

__all__ = ["UploadResult", "UploadStopped", "is_uploaded", "upload_checkpoint", "upload_files"]

T = TypeVar("T")


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
    try:
        there = store.read(f"{name}/{SUCCESS}")
    except NotFoundError:
        return False
    here = _bytes_of(checkpoint / SUCCESS)
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

    def send(name: str) -> None:
        if stopped():
            raise UploadStopped
        store.write(f"{checkpoint.name}/{name}", _bytes_of(checkpoint / name))

    def differs(name: str) -> str:
        if stopped():
            raise UploadStopped
        return _differs(checkpoint, name, store)

    sizes = _files(checkpoint)
    place = join(store.place, checkpoint.name)
    total = sum(sizes.values())
    if is_uploaded(checkpoint, store):
        return UploadResult(place, len(sizes), total, 0)
    there = store.sizes(checkpoint.name)
    payload = [name for name in sizes if name != SUCCESS]
    missing = [name for name in payload if there.get(name) != sizes[name]]
    with ThreadPoolExecutor(THREADS_FAR) as pool:
        _all(pool, missing, send)
        wrong = [n for n in _all(pool, payload, differs) if n]
        if wrong:  # left by something else, or damaged on the way: retry once
            _all(pool, wrong, send)
            _all(pool, wrong, lambda name: _prove(checkpoint, name, store))
    send(SUCCESS)
    _prove(checkpoint, SUCCESS, store)
    return UploadResult(place, len(sizes), total, len({*missing, *wrong}) + 1)


def upload_files(folder: Path, names: Iterable[str], store: Store) -> None:
    """Copy those small files of a run that exist beside its checkpoints."""
    for name in names:
        if os.path.isfile(folder / name):
            store.write(name, _bytes_of(folder / name))


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


def _all(pool: ThreadPoolExecutor, names: Sequence[str], call: Callable[[str], T]) -> list[T]:
    return list(pool.map(call, names))


def _differs(checkpoint: Path, name: str, store: Store) -> str:
    """Return the name if the file in the store differs from the local one, else an empty string."""
    try:
        there = store.read(f"{checkpoint.name}/{name}", (checkpoint / name).stat().st_size)
    except (NotFoundError, TooLongError):
        return name
    here = _bytes_of(checkpoint / name)
    same = len(there) == len(here) and crc32c.crc32c(there) == crc32c.crc32c(here)
    return "" if same else name


def _prove(checkpoint: Path, name: str, store: Store) -> None:
    if _differs(checkpoint, name, store):
        where = join(store.place, checkpoint.name, name)
        raise StoreError("it reads back differently from what was written", where=where)
