"""The specs of JAX, scikit-learn and XGBoost: a plain script's numbers, killed and cut ones too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import bytes_of_checkpoints, ids_and_epochs, records

from jobrun import load_blobs
from jobrun.core.rng import make_rng

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("JOBRUN_LONG"))
SPECS = {
    "sklearn": ("sklearn", "sklearn/digits.yaml"),
    "xgboost": ("xgboost", "xgboost/digits.yaml"),
    "jax-mlp": ("optax", "jax-mlp/mlp.yaml"),
}
EPOCHS = 4
here = [
    pytest.param(
        name, marks=pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is missing")
    )
    for name, (package, _) in SPECS.items()
]


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with the helpers on its path, and one thread of each library's."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    env |= {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *args], env=env, capture_output=True, text=True, timeout=300
    )


def train(spec: str, runs: Path) -> tuple[str, ...]:
    """The arguments that train a spec for a few epochs."""
    return (
        *("train", str(ROOT / "specs" / SPECS[spec][1]), "--runs-dir", str(runs)),
        *("--epochs", str(EPOCHS), "--set", "checkpoint.keep=all"),
    )


_alone: dict[str, Path] = {}


@pytest.fixture
def alone(spec: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbed."""
    if spec not in _alone:
        runs = tmp_path_factory.mktemp("alone")
        done = python("jobrun", *train(spec, runs))
        assert done.returncode == 0, done.stderr
        _alone[spec] = runs
    return _alone[spec]


@contextmanager
def plain_script(spec: str) -> Iterator[Any]:
    """The plain script of a spec, whose modules nobody else sees."""
    before, path = dict(sys.modules), [*sys.path]
    sys.path.insert(0, str(ROOT / "specs" / spec))
    try:
        yield import_module("plain")
    finally:
        sys.path[:] = path
        for name in {"plain", "model", "mlp"} - before.keys():
            sys.modules.pop(name, None)


def order(epoch: int) -> Any:
    return make_rng(7, "shuffle", "epoch", "train", "main", epoch).permutation(1440)


@pytest.mark.parametrize("spec", here)
def test_it_equals_its_plain_script(spec: str, alone: Path) -> None:
    with plain_script(spec) as plain:
        if spec == "jax-mlp":
            rng = make_rng(7, "setup", "build", "main", 0, None)
            _, results = plain.train(EPOCHS, rng, order)
        elif spec == "sklearn":
            _, results = plain.train(EPOCHS, order)
        else:
            _, results = plain.train(EPOCHS)
    found = [tuple(record.metrics.values()) for record in records(alone / spec) if record.epoch]
    assert found == results


@pytest.mark.parametrize("epoch", range(EPOCHS) if LONG else [1])
@pytest.mark.parametrize("spec", here)
def test_killed_after_a_checkpoint_and_resumed_equals_left_alone(
    spec: str, epoch: int, alone: Path, tmp_path: Path
) -> None:
    killed = python("killed_at", str(epoch), *train(spec, tmp_path))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ids_and_epochs(tmp_path / spec)[epoch] == epoch
    resumed = python("jobrun", *train(spec, tmp_path), "--threads", "3")
    assert resumed.returncode == 0, resumed.stderr
    assert bytes_of_checkpoints(tmp_path / spec) == bytes_of_checkpoints(alone / spec)


@pytest.mark.parametrize("places", [(1, 10), (14, 2), (29,)] if LONG else [(4, 20)])
@pytest.mark.parametrize("spec", here)
def test_interrupted_inside_epochs_and_resumed_equals_left_alone(
    spec: str, places: tuple[int, ...], alone: Path, tmp_path: Path
) -> None:
    for place in places if spec != "xgboost" else (1,):  # which has no batches
        cut = python("cut_at", str(place), *train(spec, tmp_path))
        assert cut.returncode == 128 + signal.SIGTERM, cut.stderr
    resumed = python("jobrun", *train(spec, tmp_path))
    assert resumed.returncode == 0, resumed.stderr
    first, second = load_blobs(alone / spec), load_blobs(tmp_path / spec)
    assert list(first) == list(second)
    for name in first:
        assert np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes(), name
    assert records(tmp_path / spec)[-1].metrics == records(alone / spec)[-1].metrics
