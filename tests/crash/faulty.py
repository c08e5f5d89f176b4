"""A small job that saves within epochs, links and removes; and what is told of a start of it."""

from __future__ import annotations

import json
import os
import resource
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
    Pipe,
    Task,
    load_blobs,
)
from jobrun.core.events import Event
from jobrun.errors import JobrunError
from jobrun.report import Broadcast, RunFiles
from jobrun.storage.lock import Lock

EPOCHS = 3


def make_rows() -> np.ndarray:
    return np.arange(12.0)


def make_model() -> dict[str, Any]:
    return {"w": np.zeros(4), "fixed": np.ones(3), "n": 0}


def make_large_model() -> dict[str, Any]:
    """Of so many files that they are synced at once."""
    return {**make_model(), "layers": [np.full(2, float(i)) for i in range(40)]}


def step(x: np.ndarray, model: dict[str, Any]) -> float:
    model["w"] += x.mean()
    model["n"] += 1
    for layer in model.get("layers", ()):
        layer += x.mean()
    return float(x.sum())


def make_job(epochs: int, background: bool, large: bool) -> Job:
    """Saves within epochs, links, and removes."""
    policy = CheckpointPolicy(Every(epochs=1, batches=2), Keep(last=2), background=background)
    with Job("faulty", seed=1, metrics={"loss": "min"}, checkpoint=policy) as job:
        with job.setup:
            Task(make_rows, out="rows")
        with job.init:
            Task(make_large_model if large else make_model, out="model")
        Pipe(
            {"x": "rows"},
            batch=4,
            shuffle=True,
            do=[Task(step, ["x"], update=["model"], out="loss")],
            name="train",
        )
        with job.exit:
            Task(len, ["model"], out="size")
        job.stop(epochs=epochs)
    return job


class Attempt:
    """One start of the run: its exit code, and all that was said."""

    def __init__(
        self, run: Path, epochs: int = EPOCHS, background: bool = False, large: bool = False
    ) -> None:
        events: list[Event] = []
        fan = Broadcast(events.append)
        fan.add("files", lambda: RunFiles(fan))
        job = make_job(epochs, background, large)
        runner = JobRunner(job, CheckpointManager(run), report=fan)
        error = ""
        try:
            runner.train(LocalSession(1))
            assert runner.outcome is not None
            self.code = runner.outcome.exit_code
        except JobrunError as raised:
            error, self.code = str(raised), raised.exit_code
        finally:
            fan.close()
        self.said = "\n".join([*map(repr, events), error])


def limited(run: str, name: str, soft: int) -> int:
    """In a child: go on with a run under a limit, and, once it is lifted, again."""
    kind = getattr(resource, name)
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    first = Attempt(Path(run))
    on_disk = load_blobs(run)["model/n"]
    resource.setrlimit(kind, before)
    second = Attempt(Path(run))
    print(json.dumps([first.code, first.said, on_disk, second.code, second.said]))
    return 0


def hold(run: str, lock: str) -> int:
    """In a child: lock a run, until it is killed."""
    os.environ["JOBRUN_LOCK"] = lock
    held = Lock(run)
    held.acquire()
    print("held", flush=True)
    time.sleep(60)
    return 0
