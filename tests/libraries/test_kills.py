"""The specs of libraries are killed at seeded instants, again and again: the same bytes on disk.

Under JOBRUN_LONG the specs of PyTorch, JAX and scikit-learn are each started 90 times to be killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from whole_runs import bytes_of_checkpoints

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("JOBRUN_LONG"))
SPECS = {
    "torch-cnn": ("torch", "cnn.yaml"),
    "jax-mlp": ("optax", "mlp.yaml"),
    "sklearn": ("sklearn", "digits.yaml"),
}
EVERY = "every: {epochs: 1, batches: 7},"
SEEDS, KILLS = (30, 3) if LONG else (1, 1)
ENV = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
here = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is missing")
    )
    for name, (package, _) in SPECS.items()
    if LONG or name == "sklearn"
]


def command(spec: str, folder: Path) -> list[str]:
    """The command that trains a spec for a few epochs, and saves inside them too."""
    folder_of_spec, name = ROOT / "specs" / spec, SPECS[spec][1]
    text = (folder_of_spec / name).read_text()
    text = text.replace("${spec.dir}", str(folder_of_spec)).replace("every: 1,", EVERY)
    assert EVERY in text
    for source in folder_of_spec.glob("*.py"):
        (folder / source.name).write_text(source.read_text())
    (folder / name).write_text(text)
    return [
        *(sys.executable, "-m", "jobrun", "train", str(folder / name), "--epochs", "3", "-q"),
        *("--runs-dir", str(folder), "--set", "checkpoint.keep=all"),
    ]


def finish(spec: str, folder: Path) -> None:
    done = subprocess.run(
        command(spec, folder), env=ENV | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


_alone: dict[str, tuple[Path, float]] = {}


@pytest.fixture
def alone(spec: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The run that nobody disturbed, and the seconds that it took."""
    if spec not in _alone:
        folder, start = tmp_path_factory.mktemp("alone"), time.monotonic()
        finish(spec, folder)
        _alone[spec] = (folder, time.monotonic() - start)
    return _alone[spec]


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("spec", here)
def test_killed_at_any_instant_and_resumed_equals_left_alone(
    spec: str, seed: int, alone: tuple[Path, float], tmp_path: Path
) -> None:
    """Also while libraries are imported, in ``setup``, and in the middle of a save."""
    left_alone, seconds = alone
    draw = random.Random(f"{spec} {seed}")
    for _ in range(KILLS):
        child = subprocess.Popen(
            command(spec, tmp_path),
            env=ENV | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            child.wait(timeout=seconds * draw.uniform(0.05, 0.8))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    finish(spec, tmp_path)
    assert bytes_of_checkpoints(tmp_path / spec) == bytes_of_checkpoints(left_alone / spec)
