"""How saving, publishing, listing and loading grow with nodes, blobs, bytes and checkpoints.

Nodes are simulated: their parts are written together by this process, as a LocalSession
writes them.  On a cluster they are written where the nodes are, at the same time; what is left for
the process that runs the job is ``publish`` here, besides the messages, which are not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.integrity import check_written
from jobrun.checkpoint.loading import newest
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.part_source import BlobSource
from jobrun.checkpoint.read_blobs import load_blobs
from jobrun.checkpoint.reading import read_part
from jobrun.checkpoint.record import Record, RecordFields
from jobrun.core.position import Position
from jobrun.storage.fs import DEFAULT
from tests.bench.durable import Array
from tests.bench.harness import Case, Contestant, Scale, timed

Nodes = dict[str, dict[str, Array]]
Work = Callable[["Made"], float]
KIB = 1 << 10


@dataclass(frozen=True)
class Shape:
    """A checkpoint of ``nodes`` nodes with ``blobs`` blobs of ``size`` bytes each."""

    nodes: int
    blobs: int
    size: int
    kept: int = 1

    def values(self) -> Nodes:
        """Its blobs: random, and the same at each call."""
        rng = np.random.default_rng(0)
        return {
            f"node_{n}": {
                f"b{b}": rng.random(self.size // 4, np.float32) for b in range(self.blobs)
            }
            for n in range(self.nodes)
        }


@dataclass(frozen=True)
class Made:
    """A run directory with checkpoints of a shape, and the record of the newest."""

    shape: Shape
    run: Path
    record: Record

    @property
    def path(self) -> Path:
        """The newest checkpoint."""
        return self.run / f"checkpoint_{self.record.id}"


class Shelf:
    """Checkpoints that are read only, each made once: by the first who needs it."""

    def __init__(self) -> None:
        self._made: dict[Shape, Made] = {}

    def get(self, shape: Shape, directory: Path) -> Made:
        """A run with checkpoints of that shape; made in ``directory`` if there is none."""
        if shape not in self._made:
            blobs = shape.values()
            with CheckpointManager(directory, link="never") as manager:
                for epoch in range(shape.kept):
                    manager.save(epoch, blobs)
                record = manager.latest()
            assert record is not None
            self._made[shape] = Made(shape, directory, record)
        return self._made[shape]


def cases(scale: Scale) -> Iterator[Case]:
    """One axis after the other; each size is a contestant, its ratio that to the smallest."""
    shelf = Shelf()
    nodes = [scale.of(n, q) for n, q in ((1, 1), (10, 2), (100, 3), (1_000, 4))]
    by_nodes = _Axis("nodes", "4 blobs of 1 KiB each", {n: Shape(n, 4, KIB) for n in nodes})
    yield by_nodes.case("save", _saving, scale.of(5, 1), disk=True)
    yield by_nodes.case("publish", _publishing, scale.of(5, 1), disk=True)
    for work in (_check, _load_all, _load_node, _load_blob):
        yield by_nodes.case(_name(work), _on(shelf, work), scale.of(7, 1))
    blobs = [scale.of(n, q) for n, q in ((10, 2), (100, 3), (1_000, 4), (10_000, 5))]
    by_blobs = _Axis("blobs", "1 KiB each, one node", {n: Shape(1, n, KIB) for n in blobs})
    yield by_blobs.case("save", _saving, scale.of(5, 1), disk=True)
    for work in (_check, _load_all, _load_blob):
        yield by_blobs.case(_name(work), _on(shelf, work), scale.of(7, 1))
    sizes = [scale.of(n, q) for n, q in ((1, 1), (16, 2), (256, 3))]
    shapes = {n: Shape(1, 16, n * KIB * KIB // 16) for n in sizes}
    by_bytes = _Axis("MiB", "in 16 blobs, one node", shapes)
    yield by_bytes.case("save", _saving, scale.of(5, 1), disk=True)
    for work in (_check, _load_all):
        yield by_bytes.case(_name(work), _on(shelf, work), scale.of(7, 1))
    kept = [scale.of(n, q) for n, q in ((1, 1), (10, 2), (100, 3))]
    shapes = {n: Shape(10, 4, KIB, kept=n) for n in kept}
    by_kept = _Axis("checkpoints", "10 nodes with 4 blobs of 1 KiB each", shapes)
    for work in (_list, _newest):
        yield by_kept.case(_name(work), _on(shelf, work), scale.of(7, 1))


@dataclass(frozen=True)
class _Axis:
    """What grows: so many of ``unit``, of which ``each`` says what they hold."""

    unit: str
    each: str
    shapes: Mapping[int, Shape]

    def case(
        self,
        what: str,
        run: Callable[[Shape], Callable[[Path], float]],
        rounds: int,
        disk: bool = False,
    ) -> Case:
        """The same work in every size."""
        made = [Contestant(self._named(n), run(shape)) for n, shape in self.shapes.items()]
        largest = max(s.nodes * s.blobs * (s.size + 2 * KIB) for s in self.shapes.values())
        return Case(
            name=f"{what} by {self.unit}",
            contestants=made,
            reference=made[0].name,
            floor=made[0].name,
            items=1,
            item=self.each,
            rounds=rounds,
            disk=2 * largest if disk else 0,
        )

    def _named(self, number: int) -> str:
        unit = self.unit.removesuffix("s") if number == 1 else self.unit
        return f"jobrun, {number:,} {unit}"


def _name(work: Work) -> str:
    return work.__name__.strip("_").replace("_", " ")


# Writing: each repetition has a directory of its own.


def _saving(shape: Shape) -> Callable[[Path], float]:
    """A durable save, from blobs in memory to the published checkpoint."""

    def run(directory: Path) -> float:
        blobs = shape.values()
        with CheckpointManager(directory / "run") as manager:
            manager.acquire()
            return timed(lambda: manager.save(1, blobs))

    return run


def _publishing(shape: Shape) -> Callable[[Path], float]:
    """What follows once all parts are written: look at each of them, ``_SUCCESS``, the rename."""

    def run(directory: Path) -> float:
        source = BlobSource.of(shape.values(), copy=False)
        with CheckpointManager(directory / "run") as manager:
            saved = manager.save_snapshot(source, RecordFields(Position(1), 1.0, {}))
        digests = {part.node: part.digest for part in saved.parts}
        return saved.seconds["commit"] + timed(lambda: _look(str(saved.path), digests))

    return run


def _look(checkpoint: str, digests: Mapping[str, str]) -> None:
    """What the process that runs a job on a cluster does with each part before it publishes."""
    for node, digest in digests.items():
        check_written(DEFAULT, checkpoint, node, digest)


# Reading, from the page cache.


def _on(shelf: Shelf, work: Work) -> Callable[[Shape], Callable[[Path], float]]:
    def of(shape: Shape) -> Callable[[Path], float]:
        return lambda directory: work(shelf.get(shape, directory))

    return of


def _list(made: Made) -> float:
    """Which checkpoints there are, with their records."""
    found: list[Sequence[Record]] = []
    seconds = timed(lambda: found.append(Catalog(made.run).listed()))
    assert len(found[0]) == made.shape.kept
    return seconds


def _check(made: Made) -> float:
    """Whether one checkpoint is whole: every manifest read, every file there at its length."""
    found: list[Record] = []
    seconds = timed(lambda: found.append(Catalog(made.run).check(made.record.id)))
    assert found == [made.record]
    return seconds


def _newest(made: Made) -> float:
    """Which is the newest whole one, as a resume asks."""
    found: list[Record | None] = []
    seconds = timed(lambda: found.append(newest(Catalog(made.run))))
    assert found == [made.record]
    return seconds


def _load_all(made: Made) -> float:
    """All blobs of all nodes, proven, one node after the other."""
    nodes = made.record.nodes
    parts: list[int] = []
    seconds = timed(lambda: parts.extend(len(read_part(made.path, node)) for node in nodes))
    assert parts == [made.shape.blobs] * made.shape.nodes
    return seconds


def _load_node(made: Made) -> float:
    """All blobs of one node, as a node of a cluster loads its own."""
    node = list(made.record.nodes)[-1]
    parts: list[int] = []
    seconds = timed(lambda: parts.append(len(read_part(made.path, node))))
    assert parts == [made.shape.blobs]
    return seconds


def _load_blob(made: Made) -> float:
    """One blob by its name, of a checkpoint that is named by its id."""
    node = list(made.record.nodes)[-1]
    name = f"{node}:b1" if made.shape.nodes > 1 else "b1"
    found: list[list[str]] = []
    seconds = timed(lambda: found.append(list(load_blobs(made.run, name, id=made.record.id))))
    assert found == [[name]]
    return seconds
