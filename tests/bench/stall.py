"""What a save in the background costs the loop that asks for it.

Everybody does the same work in numpy on the same 256 MiB: for each batch, two products and an
update of every array, in place or as a new array.  *No save* is an epoch of that alone; the others
are the epoch that follows a save, with the call that asks for it.  Each save ends before the next
measurement begins, in no one's time.  Freed memory is kept for all of them, as jobrun does in a
run: else an epoch faults its pages in anew or not, by chance, and takes up to 1.4 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import Plan, make_plan
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.core.events import ignore
from jobrun.core.malloc_tuning import keep_freed_memory
from jobrun.core.position import Position
from jobrun.engine.saver import Saver
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.durable import Array, write_file
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed
from tests.bench.peers import dcp_writer, orbax_checkpointer, tensors
from tests.bench.stores import OURS

NO_SAVE, INLINE, OURS_NO_SAVE = "no save", "raw, inline", "jobrun, no save"
DCP, ORBAX, ORBAX_PLAIN = "DCP async_save", "Orbax async", "Orbax async, plain"
ASYNC_PEERS = (DCP, ORBAX, ORBAX_PLAIN)
_NEEDS = {DCP: ("torch",), ORBAX: ("orbax.checkpoint",), ORBAX_PLAIN: ("orbax.checkpoint",)}

Model = dict[str, Array]
Step = Callable[[Array, Model], Model | None]


def cases(scale: Scale) -> Iterator[Case]:
    """The call alone, for a few and for many blobs; the epoch after it, for two kinds of jobs."""
    keep_freed_memory()
    large = _Work(scale.of(32, 4), scale.of(2_048, 16), scale.of(8, 2))
    yield _call_case("256 MiB", large, scale)
    yield _call_case("2,000 x 4 KiB", _Work(scale.of(2_000, 20), 1, 1), scale)
    for step in (_functional, _in_place):
        yield _epoch_case(step, large, scale)


# The work.


class _Work:
    """A model of ``count`` float32 arrays of 1024 columns, and the rows of the batches."""

    def __init__(self, count: int, rows: int, batches: int) -> None:
        self.count, self.rows, self.batches = count, rows, batches

    @cached_property
    def x(self) -> Array:
        """``batches`` batches of 32 rows."""
        return np.random.default_rng(1).random((self.batches * 32, 1024), np.float32)

    def model(self) -> Model:
        """A model of one's own."""
        rng = np.random.default_rng(0)
        return {f"w{i:04d}": rng.random((self.rows, 1024), np.float32) for i in range(self.count)}

    @property
    def nbytes(self) -> int:
        """Bytes of the model."""
        return self.count * self.rows * 4096

    def epoch(self, step: Step, model: Model) -> Model:
        """A plain loop over the batches."""
        for i in range(self.batches):
            model = step(self.x[i * 32 : (i + 1) * 32], model) or model
        return model


def _gradient(x: Array, w: Array) -> Array:
    gradient: Array = (w @ x.T) @ x
    gradient *= np.float32(1e-6)
    return gradient


def _functional(x: Array, model: Model) -> Model:
    return {name: w - _gradient(x, w) for name, w in model.items()}


def _in_place(x: Array, model: Model) -> None:
    for w in model.values():
        w -= _gradient(x, w)


# jobrun: a session and its saver, driven as the runner does.


class _Run:
    """A job after ``init``: a pipe over a tree, or (``step`` None) blobs and nothing to do."""

    def __init__(self, work: _Work, step: Step | None) -> None:
        with Job("bench") as job:
            with job.setup:
                Task(lambda: work.x, out="x", name="rows")
            with job.init:
                Task(work.model, out="model" if step else {n: n for n in work.model()}, name="init")
            if step is _in_place:
                Pipe("x", 32, do=[Task(step, "x", update="model")])
            elif step is not None:
                Pipe("x", 32, do=[Task(step, ["x", "model"], out="model")])
        self._job = job
        self._plan: Plan = make_plan(job, job.epoch)
        self.session = LocalSession(1)
        self.session.open(job, Places())
        for group in (job.setup, job.init):
            self.session.run(make_plan(job, group), Position(), Control())

    def epoch(self) -> None:
        """Run one epoch."""
        reached = self.session.run(self._plan, Position(), Control())
        assert self._plan.finished(reached.tasks)
        self.session.end_epoch()

    def saver(self, directory: Path) -> Saver:
        """What saves it into a run directory."""
        return Saver(JobAnalysis(self._job), CheckpointManager(directory), ignore)

    def save(self, saver: Saver) -> None:
        """Ask for a save."""
        saver.save(self.session, {}, RecordFields())


def _jobrun(
    work: _Work, step: Step | None, *, save: bool = True, epoch: bool = True
) -> Callable[[Path], float]:
    @cache
    def prepared() -> _Run:
        return _Run(work, step)

    def run(directory: Path) -> float:
        job, saver = prepared(), prepared().saver(directory)

        def measured() -> None:
            if save:
                job.save(saver)
            if epoch:
                job.epoch()

        seconds = timed(measured)
        saver.collect(wait=True)
        saver.close()
        return seconds

    return run


def _snapshot(work: _Work) -> Callable[[Path], float]:
    @cache
    def prepared() -> LocalSession:
        return _Run(work, None).session

    def run(directory: Path) -> float:
        session = prepared()
        return timed(session.snapshot)

    return run


def _references(work: _Work) -> Callable[[Path], float]:
    @cache
    def prepared() -> Model:
        return work.model()

    def run(directory: Path) -> float:
        model = prepared()
        return timed(model.copy)

    return run


# Others.

Wait = Callable[[], object]


def _ask_nobody(directory: Path, model: Model) -> Wait:
    return lambda: None


def _write_inline(directory: Path, model: Model) -> Wait:
    write_file(directory / "all", model.values())
    return lambda: None


def _ask_orbax(directory: Path, model: Model, *, plain: bool = False) -> Wait:
    checkpointer = orbax_checkpointer(plain)
    checkpointer.save(directory.absolute() / "all", model)
    return checkpointer.wait_until_finished


def _ask_orbax_plain(directory: Path, model: Model) -> Wait:
    return _ask_orbax(directory, model, plain=True)


def _ask_dcp(directory: Path, model: Model) -> Wait:
    import torch.distributed.checkpoint as dcp

    saving = dcp.async_save(tensors(model), storage_writer=dcp_writer(directory), no_dist=True)
    return saving.result


Ask = Callable[[Path, Model], Wait]
_ASK: dict[str, Ask] = {
    NO_SAVE: _ask_nobody,
    INLINE: _write_inline,
    DCP: _ask_dcp,
    ORBAX: _ask_orbax,
    ORBAX_PLAIN: _ask_orbax_plain,
}


def _loop(work: _Work, step: Step, ask: Ask, *, epoch: bool) -> Callable[[Path], float]:
    model: list[Model] = []

    def run(directory: Path) -> float:
        directory.mkdir(parents=True, exist_ok=True)
        if not model:
            model.append(work.model())
        waits: list[Wait] = []

        def measured() -> None:
            waits.append(ask(directory, model[0]))
            if epoch:
                model[0] = work.epoch(step, model[0])

        seconds = timed(measured)
        waits[0]()
        return seconds

    return run


# The cases.


def _call_case(what: str, work: _Work, scale: Scale) -> Case:
    copy, snapshot = "a dict of references", "jobrun, snapshot"
    return Case(
        name=f"the call that saves, {what}",
        contestants=[
            Contestant(copy, _references(work)),
            Contestant(snapshot, _snapshot(work)),
            Contestant(OURS, _jobrun(work, None, epoch=False)),
            *(
                Contestant(name, _loop(work, _functional, _ASK[name], epoch=False), _NEEDS[name])
                for name in ASYNC_PEERS
            ),
        ],
        reference=OURS,
        floor=copy,
        items=work.count,
        item="blob",
        rounds=scale.of(5, 1),
        disk=work.nbytes,
        wanted=[
            Wanted(f"the call that saves, {what}: µs of {name}", _micros(name), 1000 + work.count)
            for name in (snapshot, OURS)
        ],
    )


def _micros(name: str) -> Callable[[Measured], float]:
    return lambda measured: 1e6 * measured.median(name)


def _epoch_case(step: Step, work: _Work, scale: Scale) -> Case:
    kind = "in place" if step is _in_place else "functional"
    name = f"the epoch after a save, {kind}"
    return Case(
        name=name,
        contestants=[
            Contestant(OURS_NO_SAVE, _jobrun(work, step, save=False)),
            Contestant(OURS, _jobrun(work, step)),
            *(
                Contestant(who, _loop(work, step, ask, epoch=True), _NEEDS.get(who, ()))
                for who, ask in _ASK.items()
            ),
        ],
        reference=NO_SAVE,
        floor=NO_SAVE,
        items=work.batches,
        item="batch",
        rounds=scale.of(5, 1),
        disk=work.nbytes,
        wanted=[
            Wanted(
                f"{name}: {OURS} over {OURS_NO_SAVE}",
                lambda measured: measured.ratio(OURS, OURS_NO_SAVE),
                1.25 if step is _in_place else 1.05,
            ),
            *(_lost(name, peer) for peer in (INLINE, *ASYNC_PEERS)),
        ],
    )


def _lost(name: str, peer: str) -> Wanted:
    def value(measured: Measured) -> float:
        ours = measured.ratio(OURS, OURS_NO_SAVE)
        return ours / measured.ratio(peer, NO_SAVE)

    return Wanted(f"{name}: times longer by a save, {OURS} over {peer}", value, 1.0)
