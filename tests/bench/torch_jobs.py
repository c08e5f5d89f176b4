"""What jobs with PyTorch cost beside the same loop without jobrun.

``tiny linear layer``: a batch with a network in live state, against a plain loop over the same
batches, which gathers them with ``torch.from_numpy`` of the same rows; longer steps are measured by
``spec_jobs``.  ``the epoch after a save``: with the call that saves network and optimizer; each
save ends before the next measurement begins, in no one's time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.analysis.analysis import JobAnalysis
from jobrun.analysis.graph import make_plan
from jobrun.checkpoint.manager import CheckpointManager
from jobrun.checkpoint.record import RecordFields
from jobrun.core.events import ignore
from jobrun.core.malloc_tuning import keep_freed_memory
from jobrun.core.position import Position
from jobrun.engine.saver import Saver
from jobrun.model.job import Job, Pipe, Task
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed
from tests.bench.peers import dcp_writer, orbax_checkpointer

LOOP, OURS, OURS_NO_SAVE = "plain loop", "jobrun", "jobrun, no save"
TORCH_SAVE, DCP, ORBAX = "torch.save", "DCP async_save", "Orbax async"
_NEEDS = {
    TORCH_SAVE: ("torch",),
    DCP: ("torch",),
    ORBAX: ("torch", "orbax.checkpoint"),
}

Build = Callable[[], tuple[Any, Any]]
"""Makes a network and its optimizer."""


def cases(scale: Scale) -> Iterator[Case]:
    """A short step; then a save of each kind in front of an epoch."""
    keep_freed_memory()  # as a run does, for all contestants
    yield _batch_case("tiny linear layer", _linear, 16, (4,), scale.of(1_000, 10), scale)
    yield _save_case("MLP of 48 MiB with its moments", _mlp, 64, (1024,), scale.of(40, 2), scale)


# The work.


def _linear() -> tuple[Any, Any]:
    from torch import nn, optim

    net = nn.Linear(4, 2)
    return net, optim.SGD(net.parameters(), lr=0.01)


def _mlp() -> tuple[Any, Any]:
    from torch import nn, optim

    layers = [part for _ in range(4) for part in (nn.Linear(1024, 1024), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(1024, 10))
    return net, optim.AdamW(net.parameters())


def _step(x: Any, net: Any, optimizer: Any) -> float:
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


# Who does it.


class _Ours:
    """A job after ``setup``, with network and optimizer under ``state``."""

    def __init__(self, build: Build, x: Any, batch: int) -> None:
        with Job("bench", state=["net", "optimizer"]) as job:
            with job.setup:
                Task(lambda: x, out="x", name="rows")
                Task(build, out=["net", "optimizer"], name="build")
            with job.epoch:
                step = Task(_step, "x", update=["net", "optimizer"], out="loss")
                Pipe("x", batch, shuffle=True, as_="torch", do=[step])
        self._job = job
        self._plan = make_plan(job, job.epoch)
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
        """Return what saves it into a run directory."""
        return Saver(JobAnalysis(self._job), CheckpointManager(directory), ignore)


def _jobrun(build: Build, x: Any, batch: int, *, save: bool) -> Callable[[Path], float]:
    prepared = cache(lambda: _Ours(build, x, batch))

    def run(directory: Path) -> float:
        job = prepared()
        if not save:
            return timed(job.epoch)
        saver = job.saver(directory)

        def measured() -> None:
            saver.save(job.session, {}, RecordFields())
            job.epoch()

        seconds = timed(measured)
        saver.collect(wait=True)
        saver.close()
        return seconds

    return run


Wait = Callable[[], object]
Ask = Callable[[Path, Any, Any], Wait]


def _ask_nobody(directory: Path, net: Any, optimizer: Any) -> Wait:
    return lambda: None


def _torch_save(directory: Path, net: Any, optimizer: Any) -> Wait:
    import torch

    with (directory / "all.pt").open("wb") as file:
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    return lambda: None


def _ask_dcp(directory: Path, net: Any, optimizer: Any) -> Wait:
    import torch.distributed.checkpoint as dcp

    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    return dcp.async_save(state, storage_writer=dcp_writer(directory), no_dist=True).result  # type: ignore[union-attr, no-any-return]


def _ask_orbax(directory: Path, net: Any, optimizer: Any) -> Wait:
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    checkpointer = orbax_checkpointer(plain=False)
    checkpointer.save(directory.absolute() / "all", _arrays(state))
    return checkpointer.wait_until_finished  # type: ignore[no-any-return]


def _arrays(state: Any) -> Any:
    """Return a state with arrays over the memory of its tensors: Orbax takes no tensors."""
    if isinstance(state, dict):
        return {str(key): _arrays(value) for key, value in state.items()}
    return state.detach().numpy() if hasattr(state, "detach") else state


def _loop(build: Build, x: Any, batch: int, ask: Ask) -> Callable[[Path], float]:
    prepared = cache(build)

    def run(directory: Path) -> float:
        import torch

        net, optimizer = prepared()
        directory.mkdir(parents=True, exist_ok=True)
        waits: list[Wait] = []

        def measured() -> None:
            waits.append(ask(directory, net, optimizer))
            order, total = np.random.default_rng(0).permutation(len(x)), 0.0
            for low in range(0, len(x), batch):
                rows = np.take(x, order[low : low + batch], axis=0)
                total += _step(torch.from_numpy(rows), net, optimizer) * len(rows)

        seconds = timed(measured)
        waits[0]()
        return seconds

    return run


# The cases.


def _rows(batches: int, batch: int, shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(1).normal(size=(batches * batch, *shape)).astype(np.float32)


def _batch_case(
    what: str, build: Build, batch: int, shape: tuple[int, ...], batches: int, scale: Scale
) -> Case:
    x = _rows(batches, batch, shape)
    return Case(
        name=f"torch, {what}",
        contestants=[
            Contestant(LOOP, _loop(build, x, batch, _ask_nobody), ("torch",)),
            Contestant(OURS, _jobrun(build, x, batch, save=False), ("torch",)),
        ],
        reference=LOOP,
        floor=LOOP,
        items=batches,
        item="batch",
        rounds=scale.of(15, 2),
        wanted=[Wanted(f"torch, {what}: µs a batch over those of the loop", _over_loop, 15.0)],
    )


def _over_loop(measured: Measured) -> float:
    return measured.micros(OURS) - measured.micros(LOOP)


def _save_case(
    what: str, build: Build, batch: int, shape: tuple[int, ...], batches: int, scale: Scale
) -> Case:
    x = _rows(batches, batch, shape)
    peers = {TORCH_SAVE: _torch_save, DCP: _ask_dcp, ORBAX: _ask_orbax}
    return Case(
        name=f"torch, the epoch after a save, {what}",
        contestants=[
            Contestant(LOOP, _loop(build, x, batch, _ask_nobody), ("torch",)),
            Contestant(OURS_NO_SAVE, _jobrun(build, x, batch, save=False), ("torch",)),
            Contestant(OURS, _jobrun(build, x, batch, save=True), ("torch",)),
            *(
                Contestant(who, _loop(build, x, batch, ask), _NEEDS[who])
                for who, ask in peers.items()
            ),
        ],
        reference=LOOP,
        floor=LOOP,
        items=batches,
        item="batch",
        rounds=scale.of(7, 1),
        disk=48 << 20,
        wanted=[
            Wanted(f"times longer by a save of {what}, {OURS} over {who}", _lost(who), 1.0)
            for who in peers
        ],
    )


def _lost(who: str) -> Callable[[Measured], float]:
    """Return how many times longer a save makes an epoch: ours over that of a peer."""
    return lambda measured: measured.ratio(OURS, OURS_NO_SAVE) / measured.ratio(who, LOOP)
