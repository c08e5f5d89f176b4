"""What it costs to run a job of several nodes on dask.distributed.

An epoch against a loop by hand that does the same on actors of its own; the parts of a checkpoint
on several workers against one; the digits in this process against the same on a cluster.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Node, Task
from jobrun.analysis.graph import make_plan
from jobrun.checkpoint.record import RecordFields
from jobrun.core.position import Position
from jobrun.engine.resume_policy import Request
from jobrun.jobspec.validate import validate_spec
from jobrun.session.base import Control, Places, Session
from tests.bench.gradients import gradients_case
from tests.bench.harness import Case, Contestant, Scale, Wanted, timed

__all__ = ["cases"]

NEEDS = ("distributed",)
Run = Callable[[Path], float]
SPEC = Path(__file__).parents[2] / "specs" / "digits.yaml"


@cache
def cluster(workers: int) -> Any:
    """A client of a cluster of ``workers`` processes, which lives as long as this process."""
    from distributed import Client, LocalCluster

    made = LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    client = Client(made, direct_to_workers=True)

    def end() -> None:
        client.close()
        made.close()

    atexit.register(end)
    return client


def dask_session(workers: int = 2) -> Session:
    """A session on the cluster of ``workers``."""
    from jobrun.session.dask.session import DaskSession

    return DaskSession(cluster(workers))


# An epoch: each node works, and takes the mean over the nodes.


def start(size: int) -> Any:
    return np.ones(size)


def work(w: Any, rounds: int) -> Any:
    """Some milliseconds of numpy that need one core."""
    for _ in range(rounds):
        w = np.sqrt(w * w + 1.0) - 0.5
    return w


def mean(ws: list[Any]) -> Any:
    return np.mean(ws, axis=0)


class ByHand:
    """What somebody would write for himself: an actor that holds the vector."""

    def __init__(self, size: int) -> None:
        self.w = start(size)

    def work(self, rounds: int) -> Any:
        self.w = work(self.w, rounds)
        return self.w

    def put(self, w: Any) -> None:
        self.w = w


def by_hand(size: int, rounds: int, epochs: int) -> Run:
    """Two requests an epoch: work, and take the mean that the client has made."""

    def run(directory: Path) -> float:
        client = cluster(2)
        where = sorted(client.nthreads())
        made = [
            client.submit(ByHand, size, actor=True, pure=False, workers=[w]).result() for w in where
        ]

        def loop() -> None:
            for _ in range(epochs):
                ws = [f.result() for f in [a.work(rounds) for a in made]]
                both = mean(ws)
                for future in [a.put(both) for a in made]:
                    future.result()

        return timed(loop)

    return run


def by_jobrun(size: int, rounds: int, epochs: int) -> Run:
    """The same as a job, run epoch by epoch as the runner does."""
    with Job("mean", nodes=["a", "b"], vars={"rounds": rounds}) as job:
        with job.init, Node("*"):
            Task("tests.bench.nodes:start", with_={"size": size}, out="w")
        with Node("*"):
            Task("tests.bench.nodes:work", ["w", "rounds"], out="w")
            Task("tests.bench.nodes:mean", "*:w", out="w")
        job.stop(epochs=epochs)

    return epochs_of(job, epochs)


def epochs_of(job: Job, epochs: int, before: int = 0) -> Run:
    """Epochs of a job, run as the runner does, after some that are not measured."""

    def run(directory: Path) -> float:
        session = dask_session()
        session.open(job, Places())
        session.run(make_plan(job, job.init), Position(), Control())
        plan, position = make_plan(job, job.epoch), Position()

        def loop(count: int = epochs) -> None:
            nonlocal position
            for _ in range(count):
                reached = session.run(plan, position, Control())
                position = position.next_epoch(reached.readers)
                session.scalars(())
                session.end_epoch()

        loop(before)
        seconds = timed(loop)
        session.close()
        return seconds

    return run


def epochs_case(scale: Scale, size: int, rounds: int, name: str) -> Case:
    count = scale.of(20, 5)
    overhead = Wanted(
        f"an epoch on two workers, {name}: jobrun over a loop by hand",
        lambda measured: measured.ratio("jobrun", "by hand"),
        1.1,
    )
    return Case(
        f"epochs on two workers, {name}",
        [
            Contestant("by hand", by_hand(size, rounds, count), NEEDS),
            Contestant("jobrun", by_jobrun(size, rounds, count), NEEDS),
        ],
        "by hand",
        "by hand",
        count,
        "epoch",
        7,
        wanted=[overhead],
    )


# An exchange: each of many nodes takes the mean over all.  The first epoch is not measured.

VECTOR = 1_250  # 10 kB


def more(w: Any) -> Any:
    return w + 1.0


def same(w: Any) -> Any:
    return w


def exchange_by_futures(nodes: int, epochs: int) -> Run:
    """The loop that somebody would write: a future for each node's work, and for each mean."""

    def run(directory: Path) -> float:
        client = cluster(2)
        ws = [client.submit(start, VECTOR, pure=False) for _ in range(nodes)]

        def loop(count: int = epochs) -> None:
            nonlocal ws
            for _ in range(count):
                moved = [client.submit(more, w, pure=False) for w in ws]
                ws = [client.submit(mean, moved, pure=False) for _ in range(nodes)]
                wait(ws)

        from distributed import wait

        loop(1)
        return timed(loop)

    return run


def exchange_by_jobrun(nodes: int, epochs: int, *, reduced: bool) -> Run:
    """The same as a job, with a list of all values or with a reduction."""
    with Job("exchange", nodes=nodes) as job:
        with job.init, Node("*"):
            Task("tests.bench.nodes:start", with_={"size": VECTOR}, out="w")
        with Node("*"):
            Task("tests.bench.nodes:more", "w", out="w")
            if reduced:
                over = {"reduce": "mean", "of": "*:w"}
                Task("tests.bench.nodes:same", [over], out="w")
            else:
                Task("tests.bench.nodes:mean", "*:w", out="w")
        job.stop(epochs=epochs)
    return epochs_of(job, epochs, before=1)


def exchange_case(scale: Scale, nodes: int) -> Case:
    count = scale.of(10 if nodes < 100 else 2, 2)
    faster_than_futures = [
        Wanted(
            f"an exchange over {nodes} nodes on two workers: {name} over hand-written futures",
            lambda measured, name=name: measured.ratio(name, "dask futures"),  # type: ignore[misc]
            0.5,
        )
        for name in ("jobrun, list", "jobrun, reduce")
    ]
    return Case(
        f"exchange over {nodes} nodes on two workers, 10 kB each",
        [
            Contestant("dask futures", exchange_by_futures(nodes, count), NEEDS),
            Contestant("jobrun, list", exchange_by_jobrun(nodes, count, reduced=False), NEEDS),
            Contestant("jobrun, reduce", exchange_by_jobrun(nodes, count, reduced=True), NEEDS),
        ],
        "dask futures",
        "dask futures",
        count,
        "epoch",
        3,
        wanted=faster_than_futures,
    )


# Tasks of one node.


def nothing() -> None:
    """No work."""


def no_op_futures(count: int) -> Run:
    def run(directory: Path) -> float:
        client = cluster(2)
        return timed(
            lambda: client.gather([client.submit(nothing, pure=False) for _ in range(count)])
        )

    return run


def no_op_tasks(count: int) -> Run:
    with Job("no-op") as job:
        for number in range(count):
            Task("tests.bench.nodes:nothing", name=f"n{number}")
        job.stop(epochs=1)

    def run(directory: Path) -> float:
        session = dask_session()
        session.open(job, Places())
        plan = make_plan(job, job.epoch)
        session.run(plan, Position(), Control())
        seconds = timed(lambda: session.run(plan, Position(1), Control()))
        session.close()
        return seconds

    return run


# Checkpoints.


def save_of(nodes: int, size: int) -> Run:
    """A durable save of ``size`` bytes on each of so many nodes."""
    with Job("save", nodes=[f"n{i}" for i in range(nodes)]) as job:
        with job.init, Node("*"):
            Task("tests.bench.nodes:start", with_={"size": size // 8}, out="w")
        job.stop(epochs=1)

    def run(directory: Path) -> float:
        session = dask_session()
        session.open(job, Places())
        session.run(make_plan(job, job.init), Position(), Control())
        with CheckpointManager(directory / "run") as manager:

            def save() -> None:
                source = session.snapshot()
                assert source is not None
                manager.save_snapshot(source, RecordFields())

            seconds = timed(save)
        session.close()
        return seconds

    return run


# A whole job.


def digits(epochs: int, make: Callable[[], Session]) -> Run:
    def run(directory: Path) -> float:
        job = validate_spec(SPEC, [f"stop.epochs={epochs}"])
        manager = CheckpointManager(directory / "run")
        runner = JobRunner(job, manager, request=Request(folder=SPEC.parent))
        session = make()
        with redirect_stdout(StringIO()):  # what the job reports
            return timed(lambda: runner.train(session))

    return run


def cases(scale: Scale) -> list[Case]:
    """All of them."""
    count, size = scale.of(2_000, 50), scale.of(64 * 2**20, 2**16)
    epochs = scale.of(10, 2)
    return [
        epochs_case(scale, scale.of(100_000, 1000), scale.of(60, 2), "with work"),
        epochs_case(scale, 1_000, 1, "no work"),
        *[exchange_case(scale, nodes) for nodes in ((2,) if scale.quick else (2, 20, 50, 200))],
        *[gradients_case(scale, *shape) for shape in ((2, 2), (4, 2), (4, 4))],
        Case(
            "no-op tasks on a worker",
            [
                Contestant("dask futures", no_op_futures(count), NEEDS),
                Contestant("jobrun", no_op_tasks(count), NEEDS),
            ],
            "dask futures",
            "dask futures",
            count,
            "task",
            5,
        ),
        Case(
            "save, four nodes on two workers",
            [
                Contestant("jobrun, one node", save_of(1, 4 * size), NEEDS),
                Contestant("jobrun, four nodes", save_of(4, size), NEEDS),
            ],
            "jobrun, one node",
            "jobrun, one node",
            4,
            "part",
            5,
            bytes=4 * size,
            disk=4 * size,
        ),
        Case(
            "digits, in this process and on a worker",
            [
                Contestant("jobrun, local", digits(epochs, lambda: LocalSession(1))),
                Contestant("jobrun, dask", digits(epochs, dask_session), NEEDS),
            ],
            "jobrun, local",
            "jobrun, local",
            epochs,
            "epoch",
            5,
            disk=1,
        ),
    ]
