"""A job with everything that a kill could upset, and what children of a test do with it.

A shuffled pipe whose passes end within epochs, random numbers, a tree that is updated in place and
one that is replaced, scratch that lives across the pipe, and a stop condition with a memory.
"""

from __future__ import annotations

import csv
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import numpy as np

from jobrun import (
    Best,
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
from jobrun.checkpoint.catalog import listed, prove
from jobrun.checkpoint.record import Record
from jobrun.core.events import CheckpointSaved, Event
from jobrun.errors import JobrunError
from jobrun.report import Broadcast, RunFiles
from jobrun.storage.fs import DEFAULT

BATCH_SECONDS = float(os.environ.get("BATCH_SECONDS", "0.0005"))

POLICIES = {
    "one": CheckpointPolicy(Every(epochs=1, batches=4), Keep(last=1)),
    "three, inline": CheckpointPolicy(Every(epochs=1, batches=4), Keep(last=3), background=False),
    "batches": CheckpointPolicy(Every(epochs=None, batches=3), Keep(last=3, best=Best("loss"))),
    "seconds": CheckpointPolicy(Every(epochs=None, seconds=0.01), Keep(last=1)),
    "all": CheckpointPolicy(Every(epochs=2, batches=9), background=False),
    "two or every third": CheckpointPolicy(
        Every(epochs=1, seconds=0.005, min_gap=0.002), Keep(last=2, every=3)
    ),
}
"""By name: saves within epochs, retention, and saves in the background or not."""


def make_rows() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-1.0, 1.0, 90)
    return x, x * x


def make_model(rng: np.random.Generator) -> dict[str, Any]:
    layers = [{"w": rng.normal(size=(3, 3)), "b": np.zeros(3)} for _ in range(2)]
    return {"layers": layers, "scale": np.ones(1), "steps": 0, "name": "model"}


def make_trace() -> np.ndarray:
    return np.empty((0, 3))


def scale_of(model: dict[str, Any]) -> np.ndarray:
    return np.stack([layer["w"] for layer in model["layers"]])


def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x + 0.1 * rng.normal(size=x.shape)


def step(x: np.ndarray, y: np.ndarray, scales: np.ndarray, model: dict[str, Any]) -> float:
    time.sleep(BATCH_SECONDS)
    for layer, scale in zip(model["layers"], scales, strict=True):
        layer["w"] += 0.09 * (np.outer(x[:3], y[:3]) - scale)
        layer["b"] -= 0.1 * y[:3]
    model["scale"] *= 0.99
    model["steps"] += 1
    return float(np.abs(layer["w"]).mean() + 0.2 * y.mean())


def spread(scales: np.ndarray, model: dict[str, Any], rng: np.random.Generator) -> float:
    return float(np.std(scales) + model["layers"][0]["b"].sum() + rng.normal())


def longer(trace: np.ndarray, loss: float, spread: float, epoch: int) -> np.ndarray:
    return np.vstack([trace, [[epoch, loss, spread]]])


def make_job(policy: CheckpointPolicy) -> Job:
    """Eight batches an epoch, thirteen a pass.  It stops after epoch 7, out of patience."""
    with Job("chain", seed=11, metrics={"loss": "min", "spread": None}, checkpoint=policy) as job:
        with job.setup:
            Task(make_rows, out=["x", "y"])
        with job.init:
            Task(make_model, ["rng"], out="model")
            Task(make_trace, out="trace")
        Task(scale_of, ["model"], out="scales")
        Pipe(
            {"x": "x", "y": "y"},
            batch=7,
            shuffle=True,
            batches_per_epoch=8,
            map=[Task(noisy, ["x", "rng"], out="x")],
            do=[Task(step, ["x", "y", "scales"], update=["model"], out="loss")],
            name="train",
        )
        Task(spread, ["scales", "model", "rng"], out="spread")
        Task(longer, ["trace", "loss", "spread", "epoch"], out="trace")
        with job.exit:
            Task(longer, ["trace", "loss", "spread", "epoch"], out="last")
        job.stop(epochs=20, patience={"loss": 2})
    return job


SPEC = """\
name: chain
seed: 11
setup: [{call: "crash_job:make_rows", out: [x, y]}]
init:
  - {call: "crash_job:make_model", in: [rng], out: model}
  - {call: "crash_job:make_trace", out: trace}
epoch:
  - {call: "crash_job:scale_of", in: [model], out: scales}
  - name: train
    pipe: {from: {x: x, y: y}, batch: 7, shuffle: true, batches_per_epoch: 8}
    map: [{call: "crash_job:noisy", in: [x, rng], out: x}]
    do: [{call: "crash_job:step", in: [x, y, scales], update: [model], out: loss}]
  - {call: "crash_job:spread", in: [scales, model, rng], out: spread}
  - {call: "crash_job:longer", in: [trace, loss, spread, epoch], out: trace}
exit: [{call: "crash_job:longer", in: [trace, loss, spread, epoch], out: last}]
metrics: {loss: min, spread: null}
stop: {epochs: 20, patience: {loss: 2}}
checkpoint: {every: {epochs: 1, batches: 3}, keep: {last: 1}}
"""
"""The same job, as a spec."""

STOPS_AFTER = 7
"""The epoch after which the job stops."""


# What children do.


class Bomb:
    """Kills the process before a file operation: the ``number``-th (from 0) of some kind.

    That is one named ``op``, with ``text`` in its path.
    """

    def __init__(self, number: int, op: str = "", text: str = "") -> None:
        self._left, self._op, self._text = number, op, text
        self._lock = threading.Lock()

    def __call__(self, op: str, path: str) -> None:
        if self._op not in ("", op) or self._text not in path:
            return
        with self._lock:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


def train(
    run_dir: str,
    policy: str,
    threads: int = 2,
    kill_at: tuple[int, str, str] | tuple[int] | None = None,
    orphan: str = "",
) -> int:
    """Train the job to its end; every id that is said to be saved goes to ``<run_dir>.said``.

    ``kill_at`` is the file operation that is not survived, as for a ``Bomb``.  ``orphan`` names a
    file for the number of a child process that is left behind, and lives as long as the file.
    """
    if kill_at is not None:
        DEFAULT.at = Bomb(*kill_at)  # type: ignore[method-assign]
    said = os.open(f"{run_dir}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(event: Event) -> None:
        if isinstance(event, CheckpointSaved):
            os.write(said, f"{event.id}\n".encode())

    def leave_orphan(event: Event) -> None:
        if orphan and isinstance(event, CheckpointSaved) and not Path(orphan).exists():
            Path(orphan).touch()
            Path(orphan).write_text(str(_fork_sleeper(Path(orphan))))

    fan = Broadcast(say, leave_orphan)
    fan.add("files", lambda: RunFiles(fan))
    runner = JobRunner(make_job(POLICIES[policy]), CheckpointManager(run_dir), report=fan)
    try:
        runner.train(LocalSession(threads))
    except JobrunError as error:
        print(error)
        return error.exit_code
    finally:
        fan.close()
    assert runner.outcome is not None
    return runner.outcome.exit_code


def _fork_sleeper(file: Path) -> int:
    """A copy of this process that does nothing while a file is there, for two minutes at most."""
    pid = os.fork()
    if pid == 0:
        give_up = time.monotonic() + 120
        while file.exists() and time.monotonic() < give_up:
            time.sleep(0.05)
        os._exit(0)
    return pid


def count_operations(run_dir: str, policy: str) -> int:
    """Train the job, and write the number of its file operations to stdout."""
    done: list[str] = []
    DEFAULT.at = lambda op, path: done.append(op)  # type: ignore[method-assign]
    code = train(run_dir, policy)
    print(len(done))
    return code


CLOCKS: dict[str, Callable[[int], float]] = {
    "still": lambda reads: 1e9,
    "back": lambda reads: 2e9 - 3600.0 * reads,
    "forward": lambda reads: 1e9 + 86400.0 * reads,
    "to and fro": lambda reads: 1e9 + (-1) ** reads * 1e7 * reads,
}
"""The seconds since 1970 that a clock shows when it is read for the so-manieth time."""


def train_with_clock(
    run_dir: str, policy: str, clock: str, kill_at: tuple[int] | None = None
) -> int:
    """Train the job by a clock that is none."""
    reads = 0

    def now() -> float:
        nonlocal reads
        reads += 1
        return CLOCKS[clock](reads)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(now(), tz)

    time.time = now
    for name, module in list(sys.modules.items()):
        if name.startswith("jobrun.") and getattr(module, "datetime", None) is datetime:
            module.datetime = Clock  # type: ignore[attr-defined]
    code = train(run_dir, policy, kill_at=kill_at)
    assert reads > 3
    return code


# What is on disk afterwards.


def bits(value: Any) -> Any:
    """A value with its kind, for comparisons bit by bit."""
    if isinstance(value, dict):
        return {name: bits(below) for name, below in value.items()}
    if isinstance(value, list):
        return [bits(below) for below in value]
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, value.dtype.str, value.shape, value.tobytes()
    return type(value).__name__, repr(value)


def result_of(run_dir: Path) -> dict[str, Any]:
    """The end of a run: its blobs, its epoch, and the rows of metrics.csv without the times."""
    with (run_dir / "metrics.csv").open(newline="") as file:
        rows = [(row["epoch"], row["loss"], row["spread"]) for row in csv.DictReader(file)]
    head = listed(run_dir)[-1]
    return {"blobs": bits(load_blobs(run_dir)), "epoch": head.epoch, "metrics": rows}


def kept_epochs(records: list[Record]) -> list[int]:
    """The epochs of the checkpoints that lie between two epochs."""
    return [r.epoch for r in records if r.at_boundary]


def said_saved(run_dir: Path) -> list[int]:
    """The ids of the checkpoints of which a child said that they are saved."""
    said = run_dir.with_name(run_dir.name + ".said")
    return [int(line) for line in said.read_text().splitlines()] if said.exists() else []


def leftovers(run_dir: Path) -> list[str]:
    """What lies in a run directory and is no part of a run."""
    files = {"run.json", "lock", "events.jsonl", "log.txt", "metrics.csv"}
    files |= {"spec.yaml", "spec.resolved.yaml"}
    whole = {f"checkpoint_{record.id}" for record in listed(run_dir)}
    files |= {p.name for p in run_dir.glob("lock.[0-9]*")}
    return sorted({p.name for p in run_dir.iterdir()} - files - whole)


def prove_all(run_dir: Path) -> list[Record]:
    """The checkpoints of a run, each proven whole."""
    records = listed(run_dir)
    for record in records:
        prove(run_dir, record)
    return records
