"""What an epoch costs of the jobs in ``specs/`` that use other libraries, beside a plain loop.

Both call the same functions of the spec, which they hold in memory already, on batches of as many
rows in a random order.  ``jobrun`` runs the group ``epoch`` of the job without a save.  The first
epoch is not measured: it compiles the group, and the step of JAX.  torch works on one thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from jobrun.analysis.graph import make_plan
from jobrun.core.malloc_tuning import keep_freed_memory
from jobrun.core.position import Position
from jobrun.jobspec.resolve import load
from jobrun.jobspec.validate import job_of
from jobrun.model.job import Job
from jobrun.session.base import Control, Places
from jobrun.session.local import LocalSession
from jobrun.usercode.bind import bind_job
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed

LOOP, OURS = "plain loop", "jobrun"
SPECS = Path(__file__).parents[2] / "specs"

Epoch = Callable[[], object]


def cases(scale: Scale) -> Iterator[Case]:
    """Steps of a fraction of a millisecond, and of some milliseconds."""
    keep_freed_memory()  # as a run does, for all contestants
    batches = scale.of(70, 1)  # epochs of 15: then the columns of a batch are common for JAX
    yield _case(JAX_MLP, batches, scale)
    yield _case(TORCH_CNN, scale.of(5, 1), scale)
    yield _case(GPT, 1, scale)
    yield _case(XGBOOST, scale.of(10, 1), scale)


# The plain loops: each prepares what an epoch needs, and returns the epoch.


def _order(rows: int) -> Any:
    return np.random.default_rng(0).permutation(rows)


def _jax_mlp(call: Callable[..., Any]) -> Epoch:
    x, y, x_test, y_test = call("mlp:load", str(SPECS / "digits.npz"))
    kept = [*call("mlp:build", 64, 0.003, np.random.default_rng(7))]

    def epoch() -> None:
        order, total = _order(len(x)), 0.0
        for low in range(0, len(x) - 95, 96):
            rows = order[low : low + 96]
            *kept[:], loss = call("mlp:step", *kept, x[rows], y[rows], 0.003)
            total += loss * len(rows)
        call("mlp:accuracy", kept[0], x_test, y_test)

    return epoch


def _torch_cnn(call: Callable[..., Any]) -> Epoch:
    import torch

    x, y, x_test, y_test = call("net:load", SPECS / "digits.npz")
    objects = call("net:build", 0.003, 230)

    def epoch() -> None:
        order, total = torch.from_numpy(_order(len(x))), 0.0
        for rows in order.split(64):
            total += call("net:step", x[rows], y[rows], *objects) * len(rows)
        call("net:accuracy", objects[1], x_test, y_test)

    return epoch


def _gpt(call: Callable[..., Any]) -> Epoch:
    import torch

    lines, test_lines = call("model:texts", 2000, np.random.default_rng(7))
    gpt, optimizer = call("model:build", 64, 0.003)

    def epoch() -> None:
        order, total = torch.from_numpy(_order(len(lines))), 0.0
        for number, rows in enumerate(order.split(50), 1):
            total += call("model:gradients", lines[rows], gpt, 3) * len(rows)
            if number % 3 == 0:
                call("model:update", gpt, optimizer)
        call("model:right_lines", gpt, test_lines)

    return epoch


def _xgboost(call: Callable[..., Any]) -> Epoch:
    train, test = call("model:load", str(SPECS / "digits.npz"))
    booster = call("model:build", train, 0.3, 4)

    def epoch() -> None:
        call("model:add_trees", train, booster)
        call("model:evaluate", booster, test)

    return epoch


# Who does it.


@dataclass(frozen=True)
class _Work:
    """A spec below ``specs/``, what it needs, and the plain loop of its epoch.

    ``batches`` are those of an epoch.  ``short``: a step takes less than 2 ms, so that the limit is
    one of microseconds a batch.
    """

    name: str
    file: str
    module: str
    loop: Callable[[Callable[..., Any]], Epoch]
    batches: int
    short: bool = False

    @cached_property
    def job(self) -> Job:
        """The job of the spec."""
        return job_of(load(SPECS / self.file))

    @property
    def folder(self) -> Path:
        """The folder of the spec and its code."""
        return (SPECS / self.file).parent

    def call(self, name: str, *args: Any) -> Any:
        """Call a function of the spec."""
        return self._functions[name](*args)

    @cached_property
    def _functions(self) -> dict[str, Callable[..., Any]]:
        return bind_job(self.job, self.folder)

    def plain(self) -> tuple[None, Epoch]:
        """Prepare the plain loop; return what runs its next epoch."""
        return None, self.loop(self.call)

    def jobrun(self) -> tuple[LocalSession, Epoch]:
        """Prepare a session; return it, and what runs its next epoch."""
        session = LocalSession(1)
        session.open(self.job, Places(self.folder))
        for group in (self.job.setup, self.job.init):
            session.run(make_plan(self.job, group), Position(), Control())
        plan, at = make_plan(self.job, self.job.epoch), [Position()]

        def epoch() -> None:
            reached = session.run(plan, at[0], Control())
            assert plan.finished(reached.tasks)
            session.end_epoch()
            at[0] = at[0].next_epoch(reached.readers)

        return session, epoch


JAX_MLP = _Work("JAX MLP", "jax-mlp/mlp.yaml", "optax", _jax_mlp, 15, short=True)
TORCH_CNN = _Work("torch CNN", "torch-cnn/cnn.yaml", "torch", _torch_cnn, 23)
GPT = _Work("GPT", "gpt/gpt.yaml", "torch", _gpt, 40)
XGBOOST = _Work("XGBoost", "xgboost/digits.yaml", "xgboost", _xgboost, 1)


def _run(
    prepare: Callable[[], tuple[LocalSession | None, Epoch]], epochs: int, directory: Path
) -> float:
    # Anew each time: a schedule of the learning rate ends, a booster grows.
    session, epoch = prepare()
    if "torch" in sys.modules:
        # Each thread that calls torch has a pool of OpenMP, and each pool slows down the others: a
        # plain loop of the CNN takes 55 ms an epoch alone in a process, and 100 beside another.
        sys.modules["torch"].set_num_threads(1)
    epoch()

    def loop() -> None:
        for _ in range(epochs):
            epoch()

    if session is None:
        return timed(loop)
    return timed(lambda: session.run_loop(loop, lambda: None))


# The case.


def _case(work: _Work, epochs: int, scale: Scale) -> Case:
    kind = "µs a batch over those of the loop" if work.short else "times the plain loop"
    value = _over_loop if work.short else _times_loop
    return Case(
        name=f"epoch, {work.name}",
        contestants=[
            Contestant(LOOP, partial(_run, work.plain, epochs), (work.module,)),
            Contestant(OURS, partial(_run, work.jobrun, epochs), (work.module,)),
        ],
        reference=LOOP,
        floor=LOOP,
        items=epochs * work.batches,
        item="batch",
        rounds=scale.of(15, 1),
        wanted=[Wanted(f"epoch, {work.name}: {kind}", value, 15.0 if work.short else 1.02)],
    )


def _over_loop(measured: Measured) -> float:
    return measured.micros(OURS) - measured.micros(LOOP)


def _times_loop(measured: Measured) -> float:
    return measured.ratio(OURS, LOOP)
