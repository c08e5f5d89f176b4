"""Long runs: 10,000 checkpoints kept, 100,000 epochs, 1,000 runs beside each other.

The runs are made by ``jobrun train``, each once, by the first repetition that needs it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jobrun.checkpoint.manager import CheckpointManager
from jobrun.model.policy import Best, Keep
from tests.bench.harness import Case, Contestant, Scale, Wanted, timed

BARE = "python -c pass"
KEPT = {
    "checkpoints list": ("checkpoints", "list", "runs/long"),
    "checkpoints list --json": ("checkpoints", "list", "runs/long", "--json"),
    "checkpoints path --by": ("checkpoints", "path", "runs/long", "--by", "x"),
    "show": ("show", "runs/long"),
    "runs": ("runs",),
    "load-blobs": ("load-blobs", "runs/long"),
    "load-blobs --epoch 5": ("load-blobs", "runs/long", "--epoch", "5"),
    "train -n": ("train", "-n", "long.yaml"),
    "resume": ("resume", "runs/long"),
}
"""The commands of a run with many checkpoints; the run is over, so ``resume`` only starts."""
EPOCHS = {
    "show": ("show", "runs/long"),
    "metrics": ("metrics", "runs/long"),
    "compare": ("compare", "runs/long", "runs/copy"),
    "report": ("report", "runs/long", "-o", "report.html"),
    "train -n": ("train", "-n", "long.yaml"),
}
_SAVES = 40


def cases(scale: Scale) -> Iterator[Case]:
    """Commands, saves, and the commands of a run of many epochs."""
    kept, epochs, runs = scale.of(10_000, 30), scale.of(100_000, 30), scale.of(1_000, 5)
    many = _Runs(kept, every=1)
    yield _commands(f"{kept:,} checkpoints", many, KEPT, kept, "checkpoint", 0.5, scale)
    yield _saves(many, kept, scale)
    long = _Runs(epochs, every=max(1, epochs // 100), copies=1)
    yield _commands(f"{epochs:,} epochs", long, EPOCHS, epochs, "epoch", 2.0, scale)
    beside = _Runs(3, every=1, copies=runs - 1)
    yield _commands(f"{runs:,} runs", beside, {"runs": ("runs",)}, runs, "run", 1.0, scale)


class _Runs:
    """A folder with ``long.yaml`` and a finished run ``runs/long`` of it, and copies of the run."""

    def __init__(self, epochs: int, every: int, copies: int = 0) -> None:
        self._epochs = epochs
        self._every = every
        self._copies = copies
        self._made: Path | None = None

    def get(self, folder: Path) -> Path:
        """Return the folder; the first call makes it at a path."""
        if self._made is None:
            folder.mkdir(parents=True)
            (folder / "long.yaml").write_text(_SPEC.format(epochs=self._epochs, every=self._every))
            (folder / "long.py").write_text(_CODE)
            _jobrun(folder, "train", "long.yaml", "-q")
            for number in range(self._copies):
                name = "copy" if self._copies == 1 else f"long-{number + 2}"
                shutil.copytree(folder / "runs/long", folder / "runs" / name)
            self._made = folder
        return self._made


_SPEC = """\
init: [{{call: long:start, out: x}}]
epoch: [{{call: long:step, in: x, out: [x, loss, norm]}}]
metrics: {{x: max, loss: min, norm: null}}
stop: {{epochs: {epochs}}}
checkpoint: {{every: {every}}}
"""
_CODE = """\
def start(): return 0.0
def step(x): return x + 1.0, 1.0 / (x + 1.0), x * x
"""


def _jobrun(folder: Path, *words: str) -> None:
    command = str(Path(sys.executable).with_name("jobrun"))
    subprocess.run(
        [command, *words],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )


def _commands(
    what: str,
    made: _Runs,
    commands: dict[str, Sequence[str]],
    items: int,
    item: str,
    most: float,
    scale: Scale,
) -> Case:
    """The time of whole commands, which wait for nothing but their process."""

    def run(words: Sequence[str]) -> Callable[[Path], float]:
        def call(directory: Path) -> float:
            folder = made.get(directory)
            return timed(lambda: _jobrun(folder, *words))

        return call

    def bare(directory: Path) -> float:
        return timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))

    ours = [Contestant(f"jobrun {name}", run(words)) for name, words in commands.items()]
    return Case(
        name=f"commands, {what}",
        contestants=[Contestant(BARE, bare), *ours],
        reference=BARE,
        floor=BARE,
        items=items,
        item=item,
        rounds=scale.of(5, 1),
        wanted=[
            Wanted(f"{one.name}, {what}: seconds", lambda m, n=one.name: m.median(n), most)
            for one in ours
        ],
    )


def _saves(made: _Runs, kept: int, scale: Scale) -> Case:
    """The mean of some saves of one number, beside few checkpoints and beside many."""
    few, rules = "jobrun, 1 kept", Keep(every=1, last=3, best=Best("x"))
    rows = {
        few: (False, Keep()),
        f"jobrun, {kept:,} kept": (True, Keep()),
        f"jobrun, {kept:,} kept by rules": (True, rules),
    }

    def run(beside: bool, keep: Keep) -> Callable[[Path], float]:
        def call(directory: Path) -> float:
            place = made.get(directory) / "runs/long" if beside else directory / "run"
            with CheckpointManager(place, keep=keep) as manager:
                first = manager.save(kept, {"main": {"x": 0.0}}, metrics={"x": 0.0})
                start = time.perf_counter()
                for id in range(first, first + _SAVES):
                    manager.save(id, {"main": {"x": float(id)}}, metrics={"x": float(id)})
                return (time.perf_counter() - start) / _SAVES

        return call

    return Case(
        name="durable save of a number beside other checkpoints",
        contestants=[Contestant(name, run(*row)) for name, row in rows.items()],
        reference=few,
        floor=few,
        items=1,
        item="save",
        rounds=scale.of(5, 1),
        warm=False,
        wanted=[
            Wanted(f"{name}: times that beside one", lambda m, n=name: m.ratio(n, few), 1.25)
            for name in list(rows)[1:]
        ],
    )
