"""Durable saves: the bytes, and their names, are on the disk when they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench.durable import Store
from tests.bench.harness import Case, Contestant, Scale, Wanted, faster, timed
from tests.bench.peers import PEERS
from tests.bench.stores import FLOOR, OURS, RAW, STORES, Load, loads, ready

_ARCHIVES = ("np.savez", "safetensors", "torch.save")
"""They write all arrays one after another into one file: to them many small ones are few."""


def cases(scale: Scale) -> Iterator[Case]:
    """A case per kind of blobs."""
    for load in loads(scale):
        yield Case(
            name=f"durable save, {load.name}",
            contestants=[
                Contestant(s.name, _save(s, load), s.needs, load.at_most(s)) for s in STORES
            ],
            reference=RAW,
            floor=FLOOR,
            items=load.count,
            item=load.item,
            rounds=load.rounds,
            bytes=0 if load.many else load.count * load.nbytes,
            warm=False,
            disk=load.count * load.nbytes,
            wanted=list(_wanted(load)),
        )


def _save(store: Store, load: Load) -> Callable[[Path], float]:
    blobs_for = ready(store, lambda: load.blobs)

    def run(directory: Path) -> float:
        blobs = blobs_for(directory)
        return timed(lambda: store.save(directory, blobs))

    return run


def _wanted(load: Load) -> Iterator[Wanted]:
    yield faster(f"durable save, {load.name}", OURS, RAW, 0.5 if load.many else 0.9)
    for peer in PEERS:
        if not (load.many and peer.name in _ARCHIVES):
            yield faster(f"durable save, {load.name}", OURS, peer.name)
