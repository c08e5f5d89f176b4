"""What it costs to average gradients over nodes in each batch, against torch's gloo.

A batch of a pipe whose one step takes the mean of an 8 MB array over all nodes, against one
all-reduce and a division in as many processes; nothing else is done in either.
"""

from __future__ import annotations

import atexit
import multiprocessing
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

from jobrun import Job, Node, Pipe, Task
from jobrun.analysis.graph import make_plan
from jobrun.core.position import Position
from jobrun.session.base import Control, Places
from tests.bench.harness import Case, Contestant, Scale, Wanted

__all__ = ["gradients_case"]


def rank_of_gloo(pipe: Any, rank: int, ranks: int, port: int) -> None:
    """One process of a gloo group: returns the seconds of the all-reduces that it is sent for."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    place = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks)
    pipe.send("ready")
    while (work := pipe.recv()) is not None:
        size, count = work
        gradient = torch.ones(size, dtype=torch.float64)
        distributed.barrier()
        start = time.perf_counter()
        for _ in range(count):
            distributed.all_reduce(gradient)
            gradient /= ranks
        pipe.send(time.perf_counter() - start)


@cache
def gloo(ranks: int) -> list[Any]:
    """The pipes to the processes of a gloo group, which live as long as this process."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipes = []
    for rank in range(ranks):
        own, theirs = context.Pipe()
        made = context.Process(target=rank_of_gloo, args=(theirs, rank, ranks, port), daemon=True)
        made.start()
        atexit.register(made.terminate)
        pipes.append(own)
    for pipe in pipes:
        pipe.recv()
    return pipes


def by_gloo(ranks: int, size: int, count: int) -> float:
    """The seconds of ``count`` all-reduces of ``size`` float64, of the slowest process."""
    for pipe in gloo(ranks):
        pipe.send((size, count))
    return float(max(pipe.recv() for pipe in gloo(ranks)))


def drop(w: Any) -> None:
    """Use no value."""


def by_jobrun(nodes: int, workers: int, size: int, count: int) -> float:
    """The seconds of an epoch of ``count`` batches; one before it is not measured."""
    from tests.bench.nodes import dask_session

    with Job("gradients", nodes=nodes) as job:
        with job.setup, Node("*"):
            Task("numpy:arange", with_={"stop": count}, out="rows")
        with job.init, Node("*"):
            Task("numpy:ones", with_={"shape": size}, out="g")
        with Node("*"):
            step = Task("tests.bench.gradients:drop", [{"reduce": "mean", "of": "*:g"}])
            Pipe(from_={"x": "rows"}, batch=1, do=[step], name="average")
        job.stop(epochs=2)
    session = dask_session(workers)
    session.open(job, Places())
    for group in (job.setup, job.init):
        session.run(make_plan(job, group), Position(), Control())
    plan, position, seconds = make_plan(job, job.epoch), Position(), 0.0
    for _ in range(2):
        start = time.perf_counter()
        reached = session.run(plan, position, Control())
        seconds = time.perf_counter() - start
        position = position.next_epoch(reached.readers)
        session.end_epoch()
    session.close()
    return seconds


def gradients_case(scale: Scale, nodes: int, workers: int) -> Case:
    """The mean of 8 MB over ``nodes`` nodes on ``workers`` workers, per batch."""
    size, count = scale.of(1 << 20, 1 << 12), scale.of(20, 3)

    def gloo_run(directory: Path) -> float:
        return by_gloo(nodes, size, count)

    def jobrun_run(directory: Path) -> float:
        return by_jobrun(nodes, workers, size, count)

    close_to_gloo = Wanted(
        f"the mean of {nodes} x 8 MB in each batch, {workers} workers: jobrun over gloo",
        lambda measured: measured.ratio("jobrun", "gloo"),
        1.5,
    )
    return Case(
        f"the mean of {nodes} x 8 MB in each batch, {workers} workers",
        [
            Contestant("gloo", gloo_run, ("torch",)),
            Contestant("jobrun", jobrun_run, ("distributed",)),
        ],
        "jobrun",
        "jobrun",
        count,
        "batch",
        7,
        wanted=[close_to_gloo],
    )
