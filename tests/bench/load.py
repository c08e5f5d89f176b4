"""Loads into fresh memory, from the page cache; those of jobrun prove every byte, raw ones none.

``raw, threads`` reads as many files at once as jobrun does: what is left between the two is proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.durable import Blobs, Store, fresh_memory
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, faster, timed
from tests.bench.peers import PEERS
from tests.bench.stores import (
    FLOOR,
    OURS,
    RAW,
    RAW_THREADS,
    STORES,
    Load,
    equal,
    loads,
    same,
    warm_up,
)


def cases(scale: Scale) -> Iterator[Case]:
    """All of each kind of blobs; one of many; a slice of one."""
    for load in loads(scale):
        yield _all(scale, load)
    yield _one(scale, loads(scale)[0])
    yield _slice(scale)


def _all(scale: Scale, load: Load) -> Case:
    return Case(
        name=f"load, {load.name}",
        contestants=[
            Contestant(s.name, _saved(s, lambda: load.blobs, _read_all), s.needs, load.at_most(s))
            for s in (*STORES, RAW_THREADS)
        ],
        reference=RAW,
        floor=FLOOR,
        items=load.count,
        item=load.item,
        rounds=scale.of(7, 2),
        bytes=0 if load.many else load.count * load.nbytes,
        wanted=[]
        if load.many
        else [
            faster(f"load, {load.name}", OURS, RAW, 0.8),
            *(faster(f"load, {load.name}", OURS, peer.name) for peer in PEERS),
        ],
    )


def _one(scale: Scale, load: Load) -> Case:
    name = f"load, one of {load.count}"
    return Case(
        name=name,
        contestants=[
            Contestant(s.name, _saved(s, lambda: load.blobs, _read_one), s.needs)
            for s in STORES
            if s.load_one is not None
        ],
        reference=RAW,
        floor=RAW,
        items=1,
        item=load.item,
        rounds=scale.of(15, 2),
        bytes=load.nbytes,
        wanted=[
            Wanted(f"{name}: ms of jobrun above 1.2 x {RAW}", _above_raw, 1.0),
            *(faster(name, OURS, p.name) for p in PEERS if p.load_one is not None),
        ],
    )


def _above_raw(measured: Measured) -> float:
    """The milliseconds of jobrun that 1.2 times a raw read does not explain."""
    return 1e3 * (measured.median(OURS) - 1.2 * measured.median(RAW))


def _slice(scale: Scale) -> Case:
    """256 rows of 4 KiB, which do not start where a chunk does."""
    size = scale.of(512 << 20, 4 << 20)
    made: dict[str, Any] = {}

    def blobs() -> Blobs:
        if not made:
            rng = np.random.default_rng(0)
            made["b"] = rng.random((size >> 12, 1 << 10), np.float32)
        return made

    name = f"load, 1 MiB of {size >> 20}"
    return Case(
        name=name,
        contestants=[
            Contestant(s.name, _saved(s, blobs, _read_rows), s.needs)
            for s in STORES
            if s.load_rows is not None
        ],
        reference=RAW,
        floor=RAW,
        items=1,
        item="1 MiB",
        rounds=scale.of(15, 2),
        bytes=1 << 20,
        wanted=[
            Wanted(f"{name}: ms of jobrun", lambda m: 1e3 * m.median(OURS), 20.0),
            *(faster(name, OURS, p.name) for p in PEERS if p.load_rows is not None),
        ],
    )


# What is loaded must be what was saved.

Read = Callable[[Store, Path, Blobs], tuple[float, bool]]


def _read_all(store: Store, saved: Path, blobs: Blobs) -> tuple[float, bool]:
    loaded: list[Any] = []
    fresh_memory()
    seconds = timed(lambda: loaded.append(store.load(saved, blobs)))
    return seconds, equal(loaded[0], blobs)


def _read_one(store: Store, saved: Path, blobs: Blobs) -> tuple[float, bool]:
    assert store.load_one is not None
    load, name, loaded = store.load_one, list(blobs)[len(blobs) // 3], list[Any]()
    fresh_memory()
    seconds = timed(lambda: loaded.append(load(saved, name, blobs)))
    return seconds, same(loaded[0], blobs[name])


def _read_rows(store: Store, saved: Path, blobs: Blobs) -> tuple[float, bool]:
    assert store.load_rows is not None
    load, loaded = store.load_rows, list[Any]()
    first = len(blobs["b"]) // 3
    rows = slice(first, first + 256)
    fresh_memory()
    seconds = timed(lambda: loaded.append(load(saved, "b", blobs, rows)))
    return seconds, same(loaded[0], blobs["b"][rows])


def _saved(store: Store, blobs: Callable[[], Blobs], read: Read) -> Callable[[Path], float]:
    """Loads what the first repetition has saved."""
    saved: list[Path] = []

    def run(directory: Path) -> float:
        if not saved:
            warm_up(store, directory.with_name(f"{directory.name}-warm"))
            directory.mkdir(parents=True)
            store.save(directory, store.prepare(blobs()))
            saved.append(directory)
        seconds, whole = read(store, saved[0], blobs())
        assert whole
        return seconds

    return run
