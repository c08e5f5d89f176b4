"""A job whose every blob tells the epoch, and readers that look at it while it runs."""

from __future__ import annotations

import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from jobrun import (
    CheckpointManager,
    CheckpointPolicy,
    Every,
    Job,
    JobRunner,
    Keep,
    LocalSession,
    Task,
    load_blobs,
)
from jobrun.cli.app import run

BLOBS = 12
SIZE = 300


def start() -> dict[str, Any]:
    return {f"b{i}": np.zeros(SIZE, np.int64) for i in range(BLOBS)}


def blobs_of(epoch: int) -> dict[str, Any]:
    time.sleep(0.001)
    return {f"b{i}": np.full(SIZE, epoch) for i in range(BLOBS)}


def add_one(count: np.ndarray) -> None:
    count += 1


def make_count() -> np.ndarray:
    return np.zeros(8, np.int64)


def make_job(epochs: int) -> Job:
    """It keeps one checkpoint, so that readers see theirs vanish."""
    policy = CheckpointPolicy(Every(epochs=1), Keep(last=1))
    with Job("watched", checkpoint=policy) as job:
        with job.init:
            Task(start, out="tree")
            Task(make_count, out="count")
        Task(blobs_of, ["epoch"], out="tree")
        Task(add_one, update=["count"])
        with job.exit:
            Task(len, ["tree"], out="size")
            Task(len, ["count"], out="end")
        job.stop(epochs=epochs)
    return job


def train(run_dir: str, epochs: int) -> int:
    """Train the job."""
    JobRunner(make_job(epochs), CheckpointManager(run_dir)).train(LocalSession(1))
    return 0


def one_epoch(values: list[Any]) -> int:
    """The epoch that all of them tell."""
    told = {int(number) for value in values for number in np.unique(value)}
    assert len(told) == 1, f"the blobs of {sorted(told)} in one read"
    return told.pop()


def read_python(run_dir: str) -> int:
    """The epoch of one read with ``load_blobs``."""
    blobs = load_blobs(run_dir)
    assert len(blobs) == BLOBS + 1
    return one_epoch(list(blobs.values()))


def read_command(run_dir: str) -> int:
    """The epoch of one read with the command, of which it tells minimum and maximum."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run(["load-blobs", run_dir, "--json"])
    assert code == 0, out.getvalue()
    told = json.loads(out.getvalue())
    assert len(told["blobs"]) == BLOBS + 1
    values = [blob[key] for blob in told["blobs"].values() for key in ("min", "max")]
    epoch = one_epoch(values)
    assert epoch == told["epoch"]
    return epoch


def watch(run_dir: str, how: str, stop: str) -> int:
    """Read again and again until the file ``stop`` is there; say how many epochs were seen."""
    seen = [0]
    reads = 0
    while not Path(stop).exists() or not reads:
        epoch = {"python": read_python, "command": read_command}[how](run_dir)
        assert epoch >= seen[-1], f"back from epoch {seen[-1]} to {epoch}"
        seen.append(epoch)
        reads += 1
    print(json.dumps({"reads": reads, "epochs": len(set(seen[1:]))}))
    return 0
