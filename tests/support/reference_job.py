"""The reference job: rows 0..9 are added to a total of 100, three an epoch, in one pass."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from whole_runs import train

from jobrun import Job, Node, Pipe, Task

TOTALS = [100, 103, 115, 136, 145]
"""The total at the end of each epoch."""

TRAINERS = ("trainer_0", "trainer_1", "trainer_2")


def make_rows(count: int) -> np.ndarray:
    """The rows: 0, 1, ...; their column is ``val``."""
    return np.arange(count, dtype=np.int64)


def make_total() -> np.ndarray:
    """The total to start from."""
    return np.array([100], dtype=np.int64)


def add(val: np.ndarray, total: np.ndarray) -> None:
    """Add a batch's values to the total."""
    total += val.sum()


def reference(
    rows: int = 10,
    batch: int = 1,
    batches_per_epoch: int | None = 3,
    *,
    nodes: Sequence[str] | None = None,
    **more: Any,
) -> Job:
    """Job R; with ``nodes`` on each of them, in its own namespace."""
    with Job("R", nodes=nodes, **more) as job, ExitStack() as stack:
        if nodes is not None:
            stack.enter_context(Node("*"))
        with job.setup:
            Task(make_rows, with_={"count": rows}, out="rows")
        with job.init:
            Task(make_total, out="total")
        Pipe(
            {"val": "rows"},
            batch,
            batches_per_epoch=batches_per_epoch,
            passes=1,
            do=[Task(add, "val", update="total")],
            name="sum",
        )
        job.stop(data_finished="sum")
    return job


def main() -> None:
    """``RUN_DIR THREADS [EPOCH]``: train here, and print how that ended."""
    run_dir, threads, *epoch = sys.argv[1:]
    ended = train(reference(), Path(run_dir), *map(int, epoch), threads=int(threads))
    total = ended.blobs["total"].tolist()
    print(json.dumps({"epochs": ended.epochs, "ran": ended.outcome.ran, "total": total}))
