"""The stores that ``save`` and ``load`` measure, and what they keep.

A peer is one more entry in ``peers.PEERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.checkpoint.slices import read_slice
from jobrun.storage.threads import THREADS
from tests.bench.durable import Array, Blobs, Store, fsync_directory, read_files, write_file
from tests.bench.harness import Scale
from tests.bench.peers import PEERS

__all__ = [
    "FLOOR",
    "OURS",
    "RAW",
    "RAW_THREADS",
    "STORES",
    "Load",
    "equal",
    "loads",
    "same",
    "warm_up",
]

OURS, RAW, FLOOR = "jobrun", "raw files", "raw, one file"


def _save_one_file(directory: Path, blobs: Blobs) -> None:
    write_file(directory / "all", blobs.values())
    fsync_directory(directory)


def _load_one_file(directory: Path, blobs: Blobs) -> Blobs:
    return dict(zip(blobs, read_files(directory / "all", blobs.values()), strict=True))


def _save_files(directory: Path, blobs: Blobs) -> None:
    for name, array in blobs.items():
        write_file(directory / name, [array])
    fsync_directory(directory)


def _load_files(directory: Path, blobs: Blobs) -> Blobs:
    return {name: read_files(directory / name, [like])[0] for name, like in blobs.items()}


def _load_files_at_once(directory: Path, blobs: Blobs) -> Blobs:
    with ThreadPoolExecutor(THREADS) as pool:
        arrays = pool.map(lambda name: _load_file(directory, name, blobs), blobs)
        return dict(zip(blobs, arrays, strict=True))


def _load_file(directory: Path, name: str, blobs: Blobs) -> Array:
    return read_files(directory / name, [blobs[name]])[0]


def _load_file_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Array:
    like = blobs[name][rows]
    return read_files(directory / name, [like], rows.start * like[0].nbytes)[0]


# jobrun: whole, published, every byte proven on the way back.


def _save_jobrun(directory: Path, blobs: Blobs) -> None:
    with CheckpointManager(directory) as manager:
        manager.save(1, {"main": blobs})


def _load_jobrun(directory: Path, blobs: Blobs) -> Blobs:
    loaded: Blobs = CheckpointManager(directory).load(1).blobs["main"]
    return loaded


def _load_jobrun_one(directory: Path, name: str, blobs: Blobs) -> Any:
    return load_blobs(directory, [name])[name]


def _load_jobrun_rows(directory: Path, name: str, blobs: Blobs, rows: slice) -> Array:
    return read_slice(CheckpointManager(directory).path(1), "main", name, rows)


STORES = (
    Store(FLOOR, _save_one_file, _load_one_file),
    Store(RAW, _save_files, _load_files, load_one=_load_file, load_rows=_load_file_rows),
    Store(
        OURS,
        _save_jobrun,
        _load_jobrun,
        load_one=_load_jobrun_one,
        load_rows=_load_jobrun_rows,
    ),
    *PEERS,
)

RAW_THREADS = Store("raw, threads", _save_files, _load_files_at_once)
"""What jobrun's reading is to be compared with, too: as many threads, and nothing proven."""


def warm_up(store: Store, directory: Path) -> None:
    """Save and load one small blob in a new directory: nobody's imports are in his times."""
    blobs = {"warm": np.zeros(1024, np.float32)}
    directory.mkdir(parents=True)
    store.save(directory, store.prepare(blobs))
    store.load(directory, blobs)


def ready(store: Store, blobs: Callable[[], Blobs]) -> Callable[[Path], Any]:
    """What gives blobs in the form of a store; before the first time, the store is warmed up.

    That is done beside the directory which is given.
    """

    @cache
    def prepared() -> Any:
        return store.prepare(blobs())

    def give(directory: Path) -> Any:
        if not prepared.cache_info().currsize:
            warm_up(store, directory.with_name(f"{directory.name}-warm"))
        return prepared()

    return give


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

    def at_most(self, store: Store) -> int | None:
        """How many rounds a store takes part in; None: in all."""
        return max(1, 4_000 // self.count) if store.slow and self.many else None


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


def equal(found: Mapping[str, Any], wanted: Blobs) -> bool:
    """Whether names, dtypes, shapes and bytes are the same."""
    return list(found) == list(wanted) and all(same(found[n], a) for n, a in wanted.items())


def same(found: Any, wanted: Array) -> bool:
    """Whether dtype, shape and bytes are the same."""
    array = np.asarray(found)
    return (
        array.dtype == wanted.dtype
        and array.shape == wanted.shape
        and np.array_equal(array, wanted)
    )
