"""Loads into fresh memory, from the page cache; those of jobrun prove every byte, raw ones none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.harness import Case, Contestant, Scale, timed
from tests.bench.stores import FLOOR, RAW, STORES, Blobs, Load, Store, equal, loads


def cases(scale: Scale) -> Iterator[Case]:
    """A case per kind of blobs."""
    for load in loads(scale):
        yield Case(
            name=f"load, {load.name}",
            contestants=[
                Contestant(s.name, _load(s, load), s.needs, 2 if s.slow and load.many else None)
                for s in STORES
            ],
            reference=RAW,
            floor=FLOOR,
            items=load.count,
            item=load.item,
            rounds=scale.of(7, 2),
            bytes=0 if load.many else load.count * load.nbytes,
        )


def _load(store: Store, load: Load) -> Callable[[Path], float]:
    """Loads what the first repetition has saved; what is loaded must be what was saved."""
    saved: list[Path] = []

    def run(directory: Path) -> float:
        blobs = load.blobs
        if not saved:
            directory.mkdir(parents=True)
            store.save(directory, blobs)
            saved.append(directory)
        loaded: list[Blobs] = []
        seconds = timed(lambda: loaded.append(store.load(saved[0], blobs)))
        assert equal(loaded[0], blobs)
        return seconds

    return run
