"""What a way to keep arrays on disk is, and how files that somebody wrote become durable."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "Blobs",
    "Store",
    "fresh_memory",
    "fsync_directory",
    "fsync_tree",
    "read_files",
    "sync_file_system",
    "write_file",
]

Array = npt.NDArray[Any]
Blobs = Mapping[str, Array]


def _as_they_are(blobs: Blobs) -> Any:
    return blobs


@dataclass(frozen=True, slots=True)
class Store:
    """``save(directory, prepared)`` makes blobs durable; ``load(directory, blobs)`` gives all back.

    ``prepare(blobs)`` gives them in the form that ``save`` takes (tensors), in no one's time.
    ``load`` may look at ``blobs`` for what its files do not say: names, shapes and dtypes; so may
    ``load_one(directory, name, blobs)``, which reads one of many, and
    ``load_rows(directory, name, blobs, rows)``, which reads a slice of one; None: it cannot do so
    without reading the rest.  What is loaded is anything that ``np.asarray`` takes as it is.
    ``slow`` ones, which take long for many blobs, run in fewer rounds.
    """

    name: str
    save: Callable[[Path, Any], None]
    load: Callable[[Path, Blobs], Mapping[str, Any]]
    needs: tuple[str, ...] = ()
    slow: bool = False
    prepare: Callable[[Blobs], Any] = _as_they_are
    load_one: Callable[[Path, str, Blobs], Any] | None = None
    load_rows: Callable[[Path, str, Blobs, slice], Any] | None = None


# Raw files: nothing but the bytes.


def write_file(path: Path, arrays: Iterable[Array]) -> None:
    """A new file of the bytes of some arrays, durable but for its name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for array in arrays:
            left = array.reshape(-1).view(np.uint8).data
            while left:
                left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def read_files(path: Path, likes: Iterable[Array], offset: int = 0) -> list[Array]:
    """Fresh arrays like these, from the bytes of a file, one after another from ``offset`` on."""
    arrays = [np.empty_like(like) for like in likes]
    fd = os.open(path, os.O_RDONLY)
    try:
        os.lseek(fd, offset, os.SEEK_SET)
        for array in arrays:
            left = array.reshape(-1).view(np.uint8).data
            while left:
                left = left[os.readv(fd, [left]) :]
    finally:
        os.close(fd)
    return arrays


def fresh_memory() -> None:
    """Give back to the system what is free, so that nobody loads into memory of who came before.

    Pages that are there already cost nothing; a run that resumes has none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # the GNU library's
    if trim is not None:
        trim(0)


# For those who sync nothing, or not all.


def fsync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    _fsync(directory, os.O_RDONLY | os.O_DIRECTORY)


def fsync_tree(directory: Path) -> None:
    """Make every file and every name under a directory durable: where there are few."""
    for folder, _, files in os.walk(directory):
        for name in files:
            _fsync(Path(folder, name), os.O_RDONLY)
        fsync_directory(Path(folder))


def _fsync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(directory: Path) -> None:
    """``syncfs`` where there is one: the cheapest way to make many files durable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
        return
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)
