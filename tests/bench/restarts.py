"""From the start of a process to the first epoch: of a new run, and of one that was killed.

The task of the first epoch kills the process, so that the run can be resumed again and again.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tests.bench.durable import fresh_memory
from tests.bench.harness import Case, Contestant, Measured, Scale, Wanted, timed

IMPORTS, TRAIN = "import numpy, yaml, pydantic", "jobrun train, no task"
RAW, EMPTY, RESUME = "raw read", "jobrun resume, no state", "jobrun resume"
EMPTY_SLOW, RESUME_SLOW = f"{EMPTY}, setup waits", f"{RESUME}, setup waits"

_ARRAYS = 16

_MODULE = """
import os, time
import numpy as np

def setup(seconds):
    time.sleep(seconds)
    return 1

def init(size):
    rng = np.random.default_rng(0)
    return {f"a{i}": rng.random(size, np.float32) for i in range(%d)}

def die(state):
    os._exit(9)
"""

_SPEC = """
setup:
  - {call: "bench_job:setup", with: {seconds: %s}, out: ready}
init:
  - {call: "bench_job:init", with: {size: %d}, out: state}
epoch:
  - {call: "bench_job:die", in: [state]}
stop: {epochs: 3}
checkpoint: {async: false}
"""


def cases(scale: Scale) -> Iterator[Case]:
    """CPU time of a job without tasks; the time of a resume with 1 GiB of state."""
    yield _train(scale)
    yield _resume(scale)


def _train(scale: Scale) -> Case:
    return Case(
        name="train",
        contestants=[
            Contestant(IMPORTS, _cpu(lambda _: (sys.executable, "-c", IMPORTS))),
            Contestant(TRAIN, _cpu(_train_command)),
        ],
        reference=IMPORTS,
        floor=IMPORTS,
        items=1,
        item="start, seconds of CPU",
        rounds=scale.of(20, 2),
        wanted=[Wanted(f"{TRAIN}: times {IMPORTS}", lambda m: m.ratio(TRAIN, IMPORTS), 1.3)],
    )


def _train_command(directory: Path) -> tuple[str, ...]:
    directory.mkdir(parents=True)
    spec = directory / "empty.yaml"
    spec.write_text("epoch: []\nstop: {epochs: 3}\n")
    return (_jobrun(), "train", str(spec), "--runs-dir", str(directory / "runs"))


def _cpu(command: Callable[[Path], tuple[str, ...]]) -> Callable[[Path], float]:
    """The CPU time of a process, user and system."""

    def run(directory: Path) -> float:
        argv = command(directory)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return run


def _resume(scale: Scale) -> Case:
    length = scale.of(64 << 20, 1 << 16) // 4
    delay = 0.5
    saved = _Saved(length)
    return Case(
        name="resume",
        contestants=[
            Contestant(RAW, saved.read),
            Contestant(EMPTY, _Saved(1).resume),
            Contestant(RESUME, saved.resume),
            Contestant(EMPTY_SLOW, _Saved(1, delay).resume),
            Contestant(RESUME_SLOW, _Saved(length, delay).resume),
        ],
        reference=EMPTY,
        floor=RAW,
        items=1,
        item="resume to the first epoch",
        rounds=scale.of(9, 1),
        wanted=[
            Wanted(f"{RESUME}: raw reads above {EMPTY}", lambda m: _reads(m, RESUME, EMPTY), 1.1),
            Wanted(
                f"{RESUME_SLOW}: raw reads above {EMPTY_SLOW}",
                lambda m: _reads(m, RESUME_SLOW, EMPTY_SLOW),
                0.3,
            ),
        ],
    )


def _reads(measured: Measured, name: str, other: str) -> float:
    """How many raw reads of the state a resume takes longer than one without state."""
    return measured.difference(name, other) / measured.median(RAW)


class _Saved:
    """A run that was killed in its first epoch, with arrays of ``length`` float32 each."""

    def __init__(self, length: int, delay: float = 0.0) -> None:
        self._length = length
        self._delay = delay
        self._place: Path | None = None

    def resume(self, directory: Path) -> float:
        """The seconds of a resume until the task of the first epoch is called."""
        run = self._run(directory)
        return timed(lambda: _killed(_jobrun(), "resume", str(run)))

    def read(self, directory: Path) -> float:
        """The seconds to read the files of the state into fresh memory, one after another."""
        files = sorted((self._run(directory) / "checkpoint_0/main/state").glob("a*/[0-9]*"))
        fresh_memory()
        return timed(lambda: [np.fromfile(file, np.uint8) for file in files])

    def _run(self, directory: Path) -> Path:
        if self._place is None:
            directory.mkdir(parents=True)
            (directory / "bench_job.py").write_text(_MODULE % _ARRAYS)
            spec = directory / "job.yaml"
            spec.write_text(_SPEC % (self._delay, self._length))
            _killed(_jobrun(), "train", str(spec), "--runs-dir", str(directory))
            self._place = directory / "job"
        return self._place


def _killed(*command: str) -> None:
    code = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    ).returncode
    assert code == 9, f"{' '.join(command)} ended with {code}"


def _jobrun() -> str:
    return str(Path(sys.executable).with_name("jobrun"))
