"""Weights of files in objects of PyTorch and JAX, and of runs in files for ``load_state_dict``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, LocalSession, Task
from jobrun.checkpoint.integrity import read_record
from jobrun.errors import TaskError
from jobrun.model.options import Load
from jobrun.storage.fs import DEFAULT
from jobrun.tools.export import export
from jobrun.tools.inspect import pick, read
from jobrun.tools.torch_file import read_values, write_torch

torch_only = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
jax_only = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


def build(dtype: str = "float32") -> Any:
    """A module whose parts have names, with buffers, and weights that are tied."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    net = nn.ModuleDict({"encoder": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))})
    net["head"] = nn.Linear(4, 2)
    return net.to(getattr(torch, dtype))


def train(net: Any) -> None:
    for parameter in net.parameters():
        parameter.grad = parameter.detach().clone()


def run(folder: Path, load: Load | None, out: dict[str, str], dtype: str = "float32") -> Path:
    """Train a job that starts from a file, in a run; return its last checkpoint."""
    job = Job("j", state=["net"])
    with job.setup:
        Task(build, with_={"dtype": dtype}, out="net")
    if load is not None:
        with job.init:
            Task(load, out=out)
    with job.epoch:
        Task(train, update="net")
    job.stop(epochs=1)
    JobRunner(job, CheckpointManager(folder / "run")).train(LocalSession())
    return folder / "run/checkpoint_1"


def written(checkpoint: Path, target: Path) -> Any:
    values = read_values(checkpoint, read_record(DEFAULT, str(checkpoint)), ["net"])[2]
    write_torch(values, target, "net/")
    import torch

    return torch.load(target, weights_only=True)


@torch_only
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_module_goes_out_and_comes_in_bit_for_bit(dtype: str, tmp_path: Path) -> None:
    import torch

    first = written(run(tmp_path / "a", None, {}, dtype), tmp_path / "net.pt")
    net = build(dtype)
    assert first.keys() == net.state_dict().keys()
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.zero_()
    net.load_state_dict(first)
    assert all(
        torch.equal(a, b) for a, b in zip(first.values(), net.state_dict().values(), strict=True)
    )
    changed = {k: (v + 1).to(v.dtype) for k, v in first.items()}
    torch.save(changed, tmp_path / "changed.pt")
    load = Load(file=str(tmp_path / "changed.pt"))
    again = written(run(tmp_path / "b", load, {"*": "net"}, dtype), tmp_path / "again.pt")
    for name, tensor in changed.items():
        assert again[name].dtype == tensor.dtype, name
        assert torch.equal(again[name], tensor), name


@torch_only
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_part_of_a_module_in_the_dtype_of_the_module(dtype: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = {f"base.{k}": v + 2 for k, v in build().state_dict().items() if k[0] == "e"}
    save_file(weights, tmp_path / "base.safetensors")
    load = Load(file=str(tmp_path / "base.safetensors"), strict=False)
    checkpoint = run(tmp_path, load, {"base.*": "net"}, dtype)
    found = written(checkpoint, tmp_path / "x.pt")
    own = build(dtype).state_dict()
    assert torch.equal(found["head.weight"], own["head.weight"])
    for name in ("encoder.0.weight", "encoder.1.running_mean", "encoder.1.num_batches_tracked"):
        assert torch.equal(found[name], weights[f"base.{name}"].to(own[name].dtype)), name
    picked = [leaf for leaf in pick(checkpoint, ["net"])[1] if not leaf.keys.is_extra]
    boxes = read(checkpoint, picked)
    export({leaf.name[4:]: boxes[leaf.name] for leaf in picked}, tmp_path / "x.safetensors")
    again = load_file(tmp_path / "x.safetensors")
    assert {k: v.dtype for k, v in again.items()} == {k: v.dtype for k, v in own.items()}
    assert all(torch.equal(again[k], found[k]) for k in found)


@torch_only
def test_a_misfit_names_key_and_shape(tmp_path: Path) -> None:
    import torch

    torch.save({"head.weight": torch.zeros(3, 4)}, tmp_path / "x.pt")
    load = Load(file=str(tmp_path / "x.pt"), strict=False)
    with pytest.raises(TaskError, match=r"x\.pt: .*'head.weight' has shape \(3, 4\) in the file"):
        run(tmp_path, load, {"*": "net"})


def params() -> Any:
    import jax.numpy as jnp

    return {"params": {"Dense_0": {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)}}}


def keep(tree: Any) -> Any:
    return tree


@jax_only
def test_parameters_of_jax(tmp_path: Path) -> None:
    kernel = np.arange(6.0).reshape(2, 3)
    np.savez(
        tmp_path / "x.npz",
        **{"params/Dense_0/kernel": kernel, "params/Dense_0/bias": np.ones(3, np.float32)},
    )
    job = Job("j", state=["tree"])
    with job.setup:
        Task(params, out="tree")
    with job.init:
        Task(Load(file=str(tmp_path / "x.npz")), out={"*": "tree"})
    with job.epoch:
        Task(keep, "tree", out="tree")
    job.stop(epochs=1)
    JobRunner(job, CheckpointManager(tmp_path / "run")).train(LocalSession())
    checkpoint = tmp_path / "run/checkpoint_1"
    found = read(checkpoint, pick(checkpoint, ["tree"])[1])
    assert found["tree/params/Dense_0/kernel"].value.dtype == np.float32
    np.testing.assert_array_equal(found["tree/params/Dense_0/kernel"].value, kernel)
    assert found["tree/params/Dense_0/bias"].value.tolist() == [1, 1, 1]
