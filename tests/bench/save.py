"""Durable saves: the bytes, and their names, are on the disk when they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.harness import Case, Contestant, Scale, Wanted, timed
from tests.bench.stores import FLOOR, OURS, RAW, STORES, Load, Store, loads


def cases(scale: Scale) -> Iterator[Case]:
    """A case per kind of blobs."""
    for load in loads(scale):
        yield Case(
            name=f"durable save, {load.name}",
            contestants=[
                Contestant(s.name, _save(s, load), s.needs, 2 if s.slow and load.many else None)
                for s in STORES
            ],
            reference=RAW,
            floor=FLOOR,
            items=load.count,
            item=load.item,
            rounds=load.rounds,
            bytes=0 if load.many else load.count * load.nbytes,
            warm=False,
            disk=load.count * load.nbytes,
            wanted=[_wanted(load)] if load.name == "large" else (),
        )


def _save(store: Store, load: Load) -> Callable[[Path], float]:
    def run(directory: Path) -> float:
        blobs = load.blobs
        return timed(lambda: store.save(directory, blobs))

    return run


def _wanted(load: Load) -> Wanted:
    return Wanted(
        f"durable save, {load.name}: speed of jobrun over that of {RAW}",
        lambda measured: measured.ratio(RAW, OURS),
        0.85,
        at_least=True,
    )
