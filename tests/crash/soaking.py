"""A job of many epochs that counts what its process holds."""

from __future__ import annotations

import gc
import json
import os
import sys
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
    Pipe,
    Task,
)
from jobrun.core.events import EpochFinished, Event
from jobrun.report import Broadcast, RunFiles


def make_rows() -> np.ndarray:
    return np.arange(40.0)


def make_model() -> dict[str, Any]:
    return {"w": np.zeros(32768), "b": [np.zeros(8), 0, "text"], "fixed": np.ones(16384)}


def step(x: np.ndarray, model: dict[str, Any]) -> float:
    model["w"] += x.mean()
    model["b"][1] += 1
    return float(x.sum())


def mean_of(model: dict[str, Any]) -> np.ndarray:
    return model["w"] * 0.5


def make_job(epochs: int) -> Job:
    """Updates in place while a save is in flight, scratch, links and retention."""
    policy = CheckpointPolicy(Every(epochs=1), Keep(last=3))
    with Job("soak", seed=2, metrics={"loss": "min"}, checkpoint=policy) as job:
        with job.setup:
            Task(make_rows, out="rows")
        with job.init:
            Task(make_model, out="model")
        Pipe(
            {"x": "rows"},
            batch=10,
            shuffle=True,
            do=[Task(step, ["x"], update=["model"], out="loss")],
            name="train",
        )
        Task(mean_of, ["model"], out="mean")
        with job.exit:
            Task(len, ["model"], out="size")
        job.stop(epochs=epochs)
    return job


def count(run_dir: str, epoch: int) -> dict[str, int]:
    """What the process holds, and what the run directory does."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "epoch": epoch,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "files": sum(len(files) for _, _, files in os.walk(run_dir)),
        "blocks": sys.getallocatedblocks(),
        "kilobytes": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
    }


def train(run_dir: str, epochs: int) -> int:
    """Train, and write to stdout what was held at least in each tenth of the epochs."""
    samples: list[dict[str, int]] = []
    window = epochs // 10

    def look(event: Event) -> None:
        if isinstance(event, EpochFinished):
            seen = count(run_dir, event.epoch)
            if (event.epoch - 1) % window == 0:
                samples.append(seen)
            else:  # the least: what a save under way holds for a moment does not count
                samples[-1] = {name: min(seen[name], samples[-1][name]) for name in seen}

    fan = Broadcast(look)
    fan.add("files", lambda: RunFiles(fan))
    runner = JobRunner(make_job(epochs), CheckpointManager(run_dir), report=fan)
    runner.train(LocalSession(2))
    fan.close()
    print(json.dumps(samples))
    return 0
