"""The specs of PyTorch: a plain script's numbers bit for bit, killed and interrupted ones too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import bytes_of_checkpoints, facts_of_checkpoints, ids_and_epochs, records

pytest.importorskip("torch", reason="torch is not installed")

import torch

from jobrun import load_blobs
from jobrun.core.rng import make_rng

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("JOBRUN_LONG"))
SPECS = {"torch-cnn": "torch-cnn/cnn.yaml", "gpt": "gpt/gpt.yaml"}

EPOCHS = 3


def python(*args: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, with the helpers on its path, and one thread of torch's."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("JOBRUN_")}
    env |= {"PYTHONPATH": str(ROOT / "tests" / "support"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *args], env=env, capture_output=True, text=True, timeout=300
    )


def train(spec: str, runs: Path) -> tuple[str, ...]:
    """The arguments that train a spec for a few epochs."""
    return (
        *("train", str(ROOT / "specs" / SPECS[spec]), "--runs-dir", str(runs)),
        *("--epochs", str(EPOCHS), "--set", "checkpoint.keep=all"),
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that nobody disturbed."""
    runs = tmp_path_factory.mktemp("alone")
    for spec in SPECS:
        done = python("jobrun", *train(spec, runs))
        assert done.returncode == 0, done.stderr
    return runs


@contextmanager
def plain_script(spec: str) -> Iterator[Any]:
    """The plain script of a spec, whose modules nobody else sees."""
    before, threads = dict(sys.modules), torch.get_num_threads()
    path, state = [*sys.path], torch.get_rng_state()
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT / "specs" / spec))
    try:
        yield import_module("plain")
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
        sys.path[:] = path
        for name in {"plain", "net", "model"} - before.keys():
            sys.modules.pop(name, None)


def seed_of(seed: int) -> int:
    """The seed of the global generator of torch for the seed of a job."""
    return int(make_rng(seed, "rng.torch", "node", "main").integers(1 << 32))


def assert_state(blobs: dict[str, Any], name: str, state: dict[str, Any]) -> None:
    """Every tensor of a ``state_dict`` is the blob of its name, bit for bit."""
    assert state
    for key, tensor in state.items():
        assert np.asarray(blobs[f"{name}/{key}"]).tobytes() == tensor.numpy().tobytes(), key


def assert_metrics(run: Path, results: list[tuple[float, float]]) -> None:
    """The metrics of every epoch are the results of the plain script."""
    found = [tuple(record.metrics.values()) for record in records(run) if record.epoch]
    assert found == results


def test_the_cnn_equals_its_plain_script(alone: Path) -> None:
    blobs = load_blobs(alone / "torch-cnn")
    with plain_script("torch-cnn") as plain:
        (net, average, optimizer, schedule), results = plain.train(
            EPOCHS,
            seed_of(7),
            lambda epoch: make_rng(7, "shuffle", "epoch", "train", "main", epoch).permutation(1440),
        )
        assert_state(blobs, "net", net.state_dict())
        assert_state(blobs, "average", average.state_dict())
        for number, state in optimizer.state_dict()["state"].items():
            assert_state(blobs, f"optimizer/state/{number}", state)
        assert blobs["schedule/last_epoch"] == schedule.last_epoch == EPOCHS * 23
    assert_metrics(alone / "torch-cnn", results)


def test_the_gpt_equals_its_plain_script(alone: Path) -> None:
    blobs = load_blobs(alone / "gpt")
    with plain_script("gpt") as plain:
        (gpt, optimizer), results = plain.train(
            EPOCHS,
            seed_of(3),
            make_rng(3, "setup", "texts", "main", 0, None),
            lambda epoch: make_rng(3, "shuffle", "epoch", "train", "main", epoch).permutation(2000),
        )
        assert_state(blobs, "gpt", gpt.state_dict())
        for number, state in optimizer.state_dict()["state"].items():
            assert_state(blobs, f"optimizer/state/{number}", state)
    assert_metrics(alone / "gpt", results)


@pytest.mark.parametrize("epoch", range(EPOCHS) if LONG else [0, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_killed_after_a_checkpoint_and_resumed_equals_left_alone(
    spec: str, epoch: int, alone: Path, tmp_path: Path
) -> None:
    killed = python("killed_at", str(epoch), *train(spec, tmp_path))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ids_and_epochs(tmp_path / spec)[epoch] == epoch
    resumed = python("jobrun", *train(spec, tmp_path), "--threads", "3")
    assert resumed.returncode == 0, resumed.stderr
    assert bytes_of_checkpoints(tmp_path / spec) == bytes_of_checkpoints(alone / spec)
    assert facts_of_checkpoints(tmp_path / spec) == facts_of_checkpoints(alone / spec)


@pytest.mark.parametrize("places", [(1, 40), (5, 11, 30), (22, 3)] if LONG else [(5, 31)])
@pytest.mark.parametrize("spec", SPECS)
def test_interrupted_inside_epochs_and_resumed_equals_left_alone(
    spec: str, places: tuple[int, ...], alone: Path, tmp_path: Path
) -> None:
    """Also in the middle of adding up gradients, and of a schedule that changes each batch."""
    inside = False
    for place in places:
        cut = python("cut_at", str(place), *train(spec, tmp_path))
        assert cut.returncode == 128 + signal.SIGTERM, cut.stderr
        inside |= bool(records(tmp_path / spec)[-1].position.pipes)
    assert inside
    resumed = python("jobrun", *train(spec, tmp_path))
    assert resumed.returncode == 0, resumed.stderr
    first, second = load_blobs(alone / spec), load_blobs(tmp_path / spec)
    assert list(first) == list(second)
    for name in first:
        assert np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes(), name
    assert records(tmp_path / spec)[-1].metrics == records(alone / spec)[-1].metrics
