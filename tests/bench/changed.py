"""Saves after a little has changed: jobrun links the rest, others write everything again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.values.boxes import Box
from tests.bench.durable import Array, Store, fsync_directory, write_file
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, faster, timed
from tests.bench.peers import PEERS
from tests.bench.stores import OURS, ready

RAW, PARENT = "raw, what changed", "jobrun, link: parent"


class _State:
    """200 blobs of 1.5 MB, of which 5 % change between two saves."""

    def __init__(self, scale: Scale) -> None:
        self.count = 200
        self.nbytes = scale.of(1_500_000, 4_096)
        self.changing = self.count // 20

    @cached_property
    def blobs(self) -> dict[str, Array]:
        """The blobs by name."""
        rng = np.random.default_rng(0)
        return {f"b{i:03d}": rng.random(self.nbytes // 4, np.float32) for i in range(self.count)}

    def some(self, first: int) -> Sequence[str]:
        """The names of those that change."""
        return list(self.blobs)[first : first + self.changing]


def cases(scale: Scale) -> Iterator[Case]:
    """The same blobs change before each save, as where most is frozen; or others each time."""
    state = _State(scale)
    yield _case(state, "the same 5 % changed", scale, wander=False)
    yield _case(state, "another 5 % changed each time", scale, wander=True)


def _case(state: _State, what: str, scale: Scale, *, wander: bool) -> Case:
    name = f"durable save, {what}"
    peers = () if wander else PEERS  # they write everything in either
    return Case(
        name=name,
        contestants=[
            Contestant(RAW, _raw(state)),
            Contestant(OURS, _jobrun(state, "alternate", wander)),
            Contestant(PARENT, _jobrun(state, "parent", wander)),
            *(Contestant(p.name, _peer(p, state), p.needs, at_most=2) for p in peers),
        ],
        reference=RAW,
        floor=RAW,
        items=state.count,
        item=f"{state.nbytes / 1e6:g} MB float32",
        rounds=scale.of(5, 2),
        bytes=state.changing * state.nbytes,
        warm=False,
        disk=state.count * state.nbytes,
        wanted=[
            Wanted(f"{name}: ms of {who} above 1.5 x {RAW}", _above_raw(who), 0.3 * state.count)
            for who in (OURS, PARENT)
        ]
        + [faster(name, OURS, p.name) for p in peers],
    )


def _above_raw(who: str) -> Callable[[Measured], float]:
    return lambda measured: 1e3 * (measured.median(who) - 1.5 * measured.median(RAW))


def _raw(state: _State) -> Callable[[Path], float]:
    """A file for each blob that has changed."""

    def save(directory: Path) -> None:
        for name in state.some(0):
            write_file(directory / name, [state.blobs[name]])
        fsync_directory(directory)

    return lambda directory: timed(lambda: save(directory))


def _jobrun(state: _State, link: str, wander: bool) -> Callable[[Path], float]:
    """The third save of a run: by then every kind of link has what it links to."""

    def run(directory: Path) -> float:
        boxes = {name: Box(array, "array") for name, array in state.blobs.items()}
        with CheckpointManager(directory, link=link) as manager:

            def save(epoch: int) -> None:
                fields = RecordFields(position=Position(epochs=epoch))
                manager.save_snapshot(BlobSource({"main": boxes}), fields)

            def change(names: Sequence[str]) -> None:
                boxes.update({name: Box(state.blobs[name], "array") for name in names})

            for epoch in range(2):
                save(epoch)
                change(state.some(epoch * state.changing if wander else 0))
            return timed(lambda: save(2))

    return run


def _peer(peer: Store, state: _State) -> Callable[[Path], float]:
    blobs_for = ready(peer, lambda: state.blobs)

    def run(directory: Path) -> float:
        blobs = blobs_for(directory)
        return timed(lambda: peer.save(directory, blobs))

    return run
