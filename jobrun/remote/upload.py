"""Copies of checkpoints in another place: whole, proven, ``_SUCCESS`` last.

Every file is sent, then read back and compared; ``_SUCCESS`` follows when all are right, so what
lacks it is never taken for a checkpoint.  An upload that was interrupted goes on: files that are
there with their length are not sent again, but proven like the others.  A checkpoint whose
``_SUCCESS`` is there already is done; that of another run is never overwritten.
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
    """What was done: ``sent`` of the ``files`` were sent, the others were there."""

    place: str
    files: int
    bytes: int
    sent: int


def is_uploaded(checkpoint: Path, store: Store) -> bool:
    """Whether the checkpoint is there, whole.

    Raises StoreError where another one has its name: of another run, or of another history.
    """
    name = checkpoint.name
    try:
        there = store.read(f"{name}/{SUCCESS}")
    except NotFoundError:
        return False
    here = _bytes_of(checkpoint / SUCCESS)
    if there != here and here.startswith(there):
        return False  # torn by a kill: not every store writes a file as a whole
    if there != here:
        raise StoreError(
            f"another {name} is there already, and is not overwritten",
            where=join(store.place, name),
            hint="upload to another place; '${run.name}' in it makes one for each run",
        )
    return True


class UploadStopped(Exception):  # noqa: N818 - a state, not a fault
    """The upload was stopped before its end, as was wished."""


def upload_checkpoint(
    checkpoint: Path, store: Store, stopped: Callable[[], bool] = lambda: False
) -> UploadResult:
    """Copy a whole checkpoint to ``store``, below its own name.

    Raises StoreError for what fails, and where the copy is not what was sent; UploadStopped, before
    a further file is sent or proven, once ``stopped`` gives true.
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
        if wrong:  # left by something else, or spoiled on the way: once more
            _all(pool, wrong, send)
            _all(pool, wrong, lambda name: _prove(checkpoint, name, store))
    send(SUCCESS)
    _prove(checkpoint, SUCCESS, store)
    return UploadResult(place, len(sizes), total, len({*missing, *wrong}) + 1)


def upload_files(folder: Path, names: Iterable[str], store: Store) -> None:
    """Copy small files of a run beside its checkpoints, those that there are."""
    for name in names:
        if os.path.isfile(folder / name):
            store.write(name, _bytes_of(folder / name))


def _bytes_of(path: Path) -> bytes:
    """A file of the run: its bytes as it is now."""
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
    """The name, if the file there is not the one here; else nothing."""
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
        raise StoreError("what was written comes back as something else", where=where)
