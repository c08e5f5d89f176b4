"""Jobs of the pages that need other libraries: resumed, they have the same bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import ROOT, Page, run
from whole_runs import bytes_of_checkpoints

from jobrun import load_blobs


@pytest.mark.parametrize(
    ("page", "job", "packages"),
    [
        ("libraries", "boost", ["lightgbm", "catboost"]),
        ("coming-from", "fit", ["keras", "torch"]),
        ("coming-from", "lit", ["torch"]),
        ("coming-from", "accel", ["torch"]),
        ("coming-from", "orbax_fit", ["optax"]),
    ],
)
def test_a_job_of_a_page_continues_bit_for_bit(
    page: str, job: str, packages: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing := [package for package in packages if find_spec(package) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    Page(ROOT / f"jobrun/docs/{page}.md").write_files(tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir whole", tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir cut --epochs 2", tmp_path)
    run(f"jobrun train {job}.yaml -q --runs-dir cut", tmp_path)
    whole, cut = (bytes_of_checkpoints(tmp_path / name / job) for name in ("whole", "cut"))
    assert whole == cut
    assert whole


def weights_of_lightning(folder: Path) -> dict[str, Any]:
    import torch

    saved = torch.load(folder / "lit/last.ckpt", weights_only=True)["state_dict"]
    return {name.removeprefix("net."): tensor.numpy() for name, tensor in saved.items()}


def weights_of_accelerate(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return load_file(folder / "accel/model.safetensors")


def weights_of_orbax(folder: Path) -> dict[str, Any]:
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(folder / "orbax") as manager:
        saved = manager.restore(12, args=ocp.args.StandardRestore())["params"]
    return {f"{part}/{name}": w for part, own in saved.items() for name, w in own.items()}


@pytest.mark.parametrize(
    ("script", "package", "weights", "blob"),
    [
        ("lit", "lightning", weights_of_lightning, "net"),
        ("accel", "accelerate", weights_of_accelerate, "net"),
        ("orbax_fit", "orbax", weights_of_orbax, "params"),
    ],
)
def test_a_script_of_another_library_and_its_job_give_the_same_weights(
    script: str, package: str, weights: Callable[[Path], dict[str, Any]], blob: str, tmp_path: Path
) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    Page(ROOT / "jobrun/docs/coming-from.md").write_files(tmp_path)
    for _ in range(2):  # the second one loads what the first one saved, and has nothing to do
        run(f"{sys.executable} {script}.py", tmp_path)
    run(f"jobrun train {script}.yaml -q", tmp_path)
    found = load_blobs(tmp_path / "runs" / script, f"{blob}/*")
    expected = weights(tmp_path)
    assert expected
    for name, array in expected.items():
        assert np.array_equal(found[f"{blob}/{name}"], np.asarray(array)), name
