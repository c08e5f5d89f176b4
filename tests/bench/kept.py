"""Saves of a run that keeps two checkpoints: what the file system makes of those that are gone.

The deletions are in no one's time.  ext4 does not use the inodes of deleted files again for a
while, and looks at each of them whenever it makes a file.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.model.policy import Keep
from jobrun.values.boxes import Box
from tests.bench.durable import Store
from tests.bench.harness import Case, Contestant, Scale, faster, timed
from tests.bench.stores import OURS, RAW, STORES, Load, loads, ready

_LEFT_OUT = ("raw, one file", "np.savez", "safetensors", "torch.save")
"""They write one file, however many blobs there are."""


def cases(scale: Scale) -> Iterator[Case]:
    """Many small blobs, all of which change."""
    saves = scale.of(6, 3)
    load = next(one for one in loads(scale) if one.name == "small")
    peers = [s for s in STORES if s.name not in (OURS, *_LEFT_OUT)]
    name = f"durable save, {load.name}, two kept"
    yield Case(
        name=name,
        contestants=[
            Contestant(OURS, _jobrun(load, saves)),
            *(Contestant(s.name, _peer(s, load, saves), s.needs, load.at_most(s)) for s in peers),
        ],
        reference=RAW,
        floor=RAW,
        items=load.count,
        item=load.item,
        rounds=scale.of(3, 1),
        warm=False,
        disk=3 * load.count * load.nbytes,
        wanted=[
            faster(name, OURS, RAW, 0.5),
            *(faster(name, OURS, s.name) for s in peers if s.name not in (RAW, "h5py")),
        ],
    )


def _jobrun(load: Load, saves: int) -> Callable[[Path], float]:
    def run(directory: Path) -> float:
        seconds = []
        with CheckpointManager(directory, keep=Keep(last=2)) as manager:
            for epoch in range(saves):
                boxes = {name: Box(array, "array") for name, array in load.blobs.items()}
                source = BlobSource({"main": boxes})
                fields = RecordFields(position=Position(epochs=epoch))
                seconds.append(timed(lambda: manager.save_snapshot(source, fields)))  # noqa: B023
        return statistics.median(seconds[2:])

    return run


def _peer(store: Store, load: Load, saves: int) -> Callable[[Path], float]:
    blobs_for = ready(store, lambda: load.blobs)

    def run(directory: Path) -> float:
        blobs, seconds = blobs_for(directory), []
        for number in range(saves):
            place = directory / str(number)
            place.mkdir(parents=True)
            seconds.append(timed(lambda: store.save(place, blobs)))  # noqa: B023
            if number >= 2:
                shutil.rmtree(directory / str(number - 2))
        return statistics.median(seconds[2:])

    return run
