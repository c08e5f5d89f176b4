"""The resident memory of a run, at most, against a plain loop over the same functions.

Every repetition is a process of its own, which reads its peak from the system at its end.  The run
saves after each epoch, in the background.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import jobrun
from jobrun.core.resident_memory import memory_peak
from tests.bench.harness import Case, Contestant, Scale, Wanted

__all__ = ["LOOP", "MARGIN", "OURS", "STYLES", "cases", "peak"]

Arrays = dict[str, np.ndarray[Any, Any]]
OURS, LOOP = "jobrun", "plain loop"
STYLES = {"functional": 0, "in place": 1, "live": 1}
"""How the state changes, and how many copies of it a save holds: none where values are replaced."""

_EPOCHS = 4
_BLOBS = 8
MARGIN = 60.0
"""The megabytes that jobrun may add, its own imports among them."""


def make(mib: int) -> Arrays:
    """The state: eight arrays, together of so many MiB."""
    return {f"w{i}": np.full((mib << 17) // _BLOBS, 1.0) for i in range(_BLOBS)}


def replaced(state: Arrays) -> Arrays:
    """The next state, in arrays of its own."""
    return {name: array + 1 for name, array in state.items()}


def changed(state: Arrays) -> None:
    """Change the state where it is."""
    for array in state.values():
        array += 1


class Live:
    """An object that changes itself."""

    def __init__(self, mib: int) -> None:
        self.arrays = make(mib)

    def step(self) -> None:
        """Change the state where it is."""
        changed(self.arrays)


class LiveState:
    """How the state of the object is read and put back."""

    name, version = "tests.bench.Live", 1

    def state(self, value: Live) -> Any:
        """Its arrays."""
        return value.arrays

    def restore(self, value: Live, state: Any) -> Live:
        """Put arrays back."""
        value.arrays = dict(state)
        return value

    def copy(self, value: Live) -> Live:
        """One with arrays of its own."""
        other = Live(0)
        other.arrays = {name: array.copy() for name, array in value.arrays.items()}
        return other


def cases(scale: Scale) -> Iterator[Case]:
    """A case for each way in which the state changes."""
    mib = scale.of(512, 16)
    size = mib * 2**20 / 1e6
    for style, copies in STYLES.items():
        name = f"memory, {style}"
        yield Case(
            name=name,
            contestants=[Contestant(who, _child(who, style, mib)) for who in (OURS, LOOP)],
            reference=LOOP,
            floor=LOOP,
            items=1,
            item=f"run with {mib} MiB of state",
            rounds=scale.of(3, 1),
            warm=False,
            disk=2 * mib << 20,
            unit="MB",
            wanted=[
                Wanted(
                    f"{name}: MB above a plain loop and what is saved by copy",
                    lambda m, copied=copies * size: m.difference(OURS, LOOP) - copied,
                    MARGIN,
                )
            ],
        )


def _child(who: str, style: str, mib: int) -> Callable[[Path], float]:
    return lambda directory: peak(who, style, mib, directory)


def peak(who: str, style: str, mib: int, directory: Path, epochs: int = _EPOCHS) -> float:
    """The most megabytes that a process holds which works once, up to the end of an epoch."""
    numbers = [str(mib), str(epochs), str(directory)]
    command = [sys.executable, "-m", "tests.bench.memory", who, style, *numbers]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return float(done.stdout)


def _loop(style: str, mib: int, epochs: int) -> None:
    state, live = make(mib if style != "live" else 0), Live(mib if style == "live" else 0)
    for _ in range(epochs):
        if style == "functional":
            state = replaced(state)
        elif style == "in place":
            changed(state)
        else:
            live.step()


def _job(style: str, mib: int, epochs: int) -> jobrun.Job:
    named = ["net"] if style == "live" else []
    keep = jobrun.CheckpointPolicy(keep=jobrun.Keep(last=1))
    with jobrun.Job("memory", state=named, checkpoint=keep) as job:
        if style == "live":
            with job.setup:
                jobrun.Task(Live, with_={"mib": mib}, out="net", name="make")
            jobrun.Task(Live.step, ["net"], name="step")
        else:
            with job.init:
                jobrun.Task(make, with_={"mib": mib}, out="w", name="make")
            if style == "functional":
                jobrun.Task(replaced, ["w"], out="w", name="step")
            else:
                jobrun.Task(changed, update=["w"], name="step")
        job.stop(epochs=epochs)
    return job


def _main(who: str, style: str, mib: int, epochs: int, directory: str) -> None:
    if who == LOOP:
        _loop(style, mib, epochs)
    else:
        jobrun.register(Live, LiveState())
        manager = jobrun.CheckpointManager(f"{directory}/run")
        jobrun.JobRunner(_job(style, mib, epochs), manager).train(jobrun.LocalSession(2))
    found = memory_peak()
    assert found is not None, "the system does not tell"
    print(found / 1e6)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
