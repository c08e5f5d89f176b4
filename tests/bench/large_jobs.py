"""How jobs grow: with the leaves of a tree that is updated, with blobs, and with tasks.

A cost that is linear has one number per item in all sizes; that is what is wanted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from jobrun.analysis.graph import Plan, make_plan
from jobrun.checkpoint import integrity
from jobrun.checkpoint.catalog import Catalog
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.reading import read_part
from jobrun.core.position import Position
from jobrun.jobspec.validate import validate_spec
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.graphs import Shape, make_job, opened, run_epoch
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed

Work = Callable[[int], Callable[[Path], float]]
LINEAR = 1.5
"""The most that a unit may cost in the largest size, in times of what it costs in the smallest."""


def cases(scale: Scale) -> Iterator[Case]:
    """Leaves of a tree, then blobs, then tasks."""
    yield _tree(scale)
    sizes = [scale.of(n, q) for n, q in ((1_000, 20), (10_000, 40), (100_000, 80))]
    shelf = _Shelf()
    for name, work in {
        "validate": _validate,
        "plan": _plan,
        "save": _save,
        "list": shelf.list,
        "load": shelf.load,
    }.items():
        yield _case(name, "blobs", sizes, work, scale, linear=name != "list")
    yield _case("build, plan and first epoch", "tasks", sizes, _start, scale, most=100e-6)
    yield _case("second epoch", "tasks", sizes, _epoch, scale, most=10e-6)
    yield _case("validate", "tasks", sizes[:2], _validate_tasks, scale)


def _case(
    what: str,
    unit: str,
    sizes: list[int],
    work: Work,
    scale: Scale,
    linear: bool = True,
    most: float | None = None,
) -> Case:
    """The same work in every size; ``most`` are the seconds wanted for each item of the largest."""
    names = {size: f"jobrun, {size:,} {unit}" for size in sizes}
    few, many = sizes[0], sizes[-1]

    def growth(measured: Measured) -> float:
        return measured.ratio(names[many], names[few]) * (few / many if linear else 1)

    wanted = [Wanted(f"{what}: {many:,} {unit} over {few:,}, each", growth, LINEAR)]
    if not linear:
        wanted = [Wanted(f"{what}: {many:,} {unit} over {few:,}", growth, LINEAR)]
    if most is not None:
        text = f"{what}: µs for each of {many:,} {unit}"
        wanted.append(Wanted(text, lambda m: m.median(names[many]) / many * 1e6, most * 1e6))
    return Case(
        name=f"{what} by {unit}",
        contestants=[Contestant(name, work(size)) for size, name in names.items()],
        reference=names[few],
        floor=names[few],
        items=1,
        item="number in all",
        rounds=scale.of(3, 1),
        warm=False,
        disk=0 if what != "save" else 1 << 20,
        wanted=wanted,
    )


# A tree that a step of a pipe updates, and does not touch.


def _tree(scale: Scale) -> Case:
    sizes = [scale.of(n, q) for n, q in ((1, 1), (80, 8), (800, 16))]
    batches = scale.of(2_000, 50)
    names = {size: f"jobrun, {size:,} leaves" for size in sizes}
    few, many = sizes[0], sizes[-1]

    def per_leaf(measured: Measured) -> float:
        seconds = measured.difference(names[many], names[few])
        return seconds / batches / (many - few) * 1e6

    return Case(
        name="update of a tree by leaves",
        contestants=[Contestant(name, _updates(n, batches)) for n, name in names.items()],
        reference=names[few],
        floor=names[few],
        items=batches,
        item="batch",
        rounds=scale.of(7, 1),
        wanted=[Wanted("update of a tree: µs a leaf and batch", per_leaf, 0.3)],
    )


def _updates(leaves: int, batches: int) -> Callable[[Path], float]:
    @cache
    def prepared() -> tuple[LocalSession, Plan]:
        with Job("bench") as job:
            with job.setup:
                Task(lambda: np.zeros((batches, 4), np.float32), out="x", name="rows")
            with job.init:
                Task(lambda: {f"w{i}": np.zeros(4) for i in range(leaves)}, out="model", name="m")
            Pipe("x", 1, do=[Task(lambda x, model: None, "x", update="model", name="step")])
        session = LocalSession(1)
        session.open(job, Places())
        for group in (job.setup, job.init):
            session.run(make_plan(job, group), Position(), Control())
        return session, make_plan(job, job.epoch)

    return lambda directory: run_epoch(*prepared())


# Blobs: numbers, all put out by one task.


def _validate(blobs: int) -> Callable[[Path], float]:
    outs = ", ".join(f"b{i}" for i in range(blobs))
    return _validating(f"init: [{{call: m:start, out: [{outs}]}}]\nepoch: [{{call: m:f, in: b0}}]")


def _validating(groups: str) -> Callable[[Path], float]:
    def run(directory: Path) -> float:
        directory.mkdir(parents=True, exist_ok=True)
        spec = directory / "large.yaml"
        spec.write_text(f"{groups}\nstop: {{epochs: 1}}\n")
        return timed(lambda: validate_spec(spec))

    return run


def _plan(blobs: int) -> Callable[[Path], float]:
    def run(directory: Path) -> float:
        with Job("bench") as job:
            with job.init:
                Task(len, out=[f"b{i}" for i in range(blobs)], name="start")
            Task(len, "b0", name="read")
        return timed(lambda: [make_plan(job, group) for group in (job.init, job.epoch)])

    return run


def _numbers(blobs: int) -> dict[str, dict[str, float]]:
    return {"main": {f"b{i}": float(i) for i in range(blobs)}}


def _save(blobs: int) -> Callable[[Path], float]:
    def run(directory: Path) -> float:
        values = _numbers(blobs)
        with CheckpointManager(directory / "run") as manager:
            manager.acquire()
            return timed(lambda: manager.save(1, values))

    return run


class _Shelf:
    """A checkpoint of each size, made by the first repetition that needs it."""

    def __init__(self) -> None:
        self._made: dict[int, Path] = {}

    def list(self, blobs: int) -> Callable[[Path], float]:
        """The seconds to list the checkpoint, whose blobs are not looked at."""

        def run(directory: Path) -> float:
            catalog = Catalog(self._get(blobs, directory).parent)
            return timed(lambda: catalog.listed())

        return run

    def load(self, blobs: int) -> Callable[[Path], float]:
        """The seconds to load and prove all blobs; the manifest is decoded each time."""

        def run(directory: Path) -> float:
            path = self._get(blobs, directory)
            integrity._decoded.cache_clear()
            found: list[int] = []
            seconds = timed(lambda: found.append(len(read_part(path, "main"))))
            assert found == [blobs]
            return seconds

        return run

    def _get(self, blobs: int, directory: Path) -> Path:
        if blobs not in self._made:
            with CheckpointManager(directory) as manager:
                manager.save(1, _numbers(blobs))
                record = manager.latest()
            assert record is not None
            self._made[blobs] = directory / f"checkpoint_{record.id}"
        return self._made[blobs]


# Tasks in one epoch.


def _start(tasks: int) -> Callable[[Path], float]:
    """From nothing to the end of the first epoch of a job built in Python."""

    def start() -> None:
        job = make_job(_shape(tasks))
        session = opened(job, 1)
        session.run(make_plan(job, job.epoch), Position(), Control())
        session.close()

    return lambda directory: timed(start)


def _epoch(tasks: int) -> Callable[[Path], float]:
    @cache
    def prepared() -> tuple[LocalSession, Plan]:
        job = make_job(_shape(tasks))
        session, plan = opened(job, 1), make_plan(job, job.epoch)
        run_epoch(session, plan)
        return session, plan

    return lambda directory: run_epoch(*prepared())


def _shape(tasks: int) -> Shape:
    return Shape("chain", [[i - 1] if i else [] for i in range(tasks)])


def _validate_tasks(tasks: int) -> Callable[[Path], float]:
    chain = "".join(f"  - {{call: m:f, in: b{i}, out: b{i + 1}}}\n" for i in range(tasks))
    return _validating(f"init: [{{call: m:start, out: b0}}]\nepoch:\n{chain}")
