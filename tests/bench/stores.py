"""Ways to keep arrays on disk: what ``save`` and ``load`` measure.

A ``Store`` saves a dictionary of arrays into an empty directory, durable on return, and loads it
again into memory of its own.  A peer is one more entry in ``STORES``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.checkpoint.manager import CheckpointManager
from tests.bench.harness import Scale

__all__ = ["FLOOR", "OURS", "RAW", "STORES", "Load", "Store", "equal", "loads"]

Array = npt.NDArray[Any]
Blobs = Mapping[str, Array]

OURS, RAW, FLOOR = "jobrun", "raw files", "raw, one file"


@dataclass(frozen=True, slots=True)
class Store:
    """``save(directory, blobs)`` makes them durable; ``load(directory, blobs)`` reads all again.

    ``load`` may look at ``blobs`` for what its files do not say: names, shapes and dtypes.
    ``slow`` ones, which take long for many blobs, run in fewer rounds.
    """

    name: str
    save: Callable[[Path, Blobs], None]
    load: Callable[[Path, Blobs], Blobs]
    needs: tuple[str, ...] = ()
    slow: bool = False


# Raw files: nothing but the bytes.


def _write(path: Path, arrays: Iterable[Array]) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        for array in arrays:
            left = array.reshape(-1).view(np.uint8).data
            while left:
                left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _fsync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(path: Path, likes: Iterable[Array]) -> list[Array]:
    arrays = [np.empty_like(like) for like in likes]
    fd = os.open(path, os.O_RDONLY)
    try:
        for array in arrays:
            left = array.reshape(-1).view(np.uint8).data
            while left:
                left = left[os.readv(fd, [left]) :]
    finally:
        os.close(fd)
    return arrays


def _save_one_file(directory: Path, blobs: Blobs) -> None:
    _write(directory / "all", blobs.values())
    _fsync_directory(directory)


def _load_one_file(directory: Path, blobs: Blobs) -> Blobs:
    return dict(zip(blobs, _read(directory / "all", blobs.values()), strict=True))


def _save_files(directory: Path, blobs: Blobs) -> None:
    for name, array in blobs.items():
        _write(directory / name, [array])
    _fsync_directory(directory)


def _load_files(directory: Path, blobs: Blobs) -> Blobs:
    return {name: _read(directory / name, [like])[0] for name, like in blobs.items()}


# jobrun: whole, published, every byte proven on the way back.


def _save_jobrun(directory: Path, blobs: Blobs) -> None:
    with CheckpointManager(directory) as manager:
        manager.save(1, {"main": blobs})


def _load_jobrun(directory: Path, blobs: Blobs) -> Blobs:
    loaded: Blobs = CheckpointManager(directory).load(1).blobs["main"]
    return loaded


# Others, which sync nothing themselves.


def _save_npz(directory: Path, blobs: Blobs) -> None:
    path = directory / "all.npz"
    np.savez(path, **blobs)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    _fsync_directory(directory)


def _load_npz(directory: Path, blobs: Blobs) -> Blobs:
    with np.load(directory / "all.npz") as loaded:
        return {name: loaded[name] for name in blobs}


def _save_zarr(directory: Path, blobs: Blobs) -> None:
    import zarr

    group = zarr.create_group(str(directory / "all.zarr"))
    for name, array in blobs.items():
        group.create_array(name, data=array, chunks=array.shape, compressors=None)
    _sync_file_system(directory)


def _load_zarr(directory: Path, blobs: Blobs) -> Blobs:
    import zarr

    group = zarr.open_group(str(directory / "all.zarr"), mode="r")
    return {name: np.asarray(group[name][...]) for name in blobs}


def _sync_file_system(directory: Path) -> None:
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


STORES = (
    Store(FLOOR, _save_one_file, _load_one_file),
    Store(RAW, _save_files, _load_files),
    Store(OURS, _save_jobrun, _load_jobrun),
    Store("np.savez", _save_npz, _load_npz),
    Store("zarr", _save_zarr, _load_zarr, ("zarr",), slow=True),
)


# What is kept.


@dataclass(frozen=True)
class Load:
    """Blobs to be kept: ``count`` of one kind, ``nbytes`` each; ``make(rng)`` gives one."""

    name: str
    count: int
    item: str
    nbytes: int
    make: Callable[[np.random.Generator], Array]
    rounds: int

    @cached_property
    def blobs(self) -> dict[str, Array]:
        """The blobs by name: random, so that no part of the way to the disk can squeeze them."""
        rng = np.random.default_rng(0)
        return {f"b{i:05d}": self.make(rng) for i in range(self.count)}

    @property
    def many(self) -> bool:
        """Whether what counts is the number of blobs, not their bytes."""
        return self.nbytes < 1 << 20


def loads(scale: Scale) -> list[Load]:
    """64 x 8 MiB, 2,000 x 4 KiB, 10,000 scalars."""
    large, small = scale.of(8 << 20, 64 << 10), 4 << 10
    return [
        Load(
            "large",
            scale.of(64, 4),
            f"{_size(large)} float32",
            large,
            lambda rng: rng.random(large // 4, np.float32),
            scale.of(4, 2),
        ),
        Load(
            "small",
            scale.of(2_000, 20),
            f"{_size(small)} float32",
            small,
            lambda rng: rng.random(small // 4, np.float32),
            scale.of(5, 2),
        ),
        Load(
            "scalars",
            scale.of(10_000, 50),
            "scalar",
            8,
            lambda rng: np.array(rng.random()),
            scale.of(3, 2),
        ),
    ]


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def equal(found: Blobs, wanted: Blobs) -> bool:
    """Whether names, dtypes, shapes and bytes are the same."""
    return list(found) == list(wanted) and all(
        found[n].dtype == a.dtype and found[n].shape == a.shape and np.array_equal(found[n], a)
        for n, a in wanted.items()
    )
