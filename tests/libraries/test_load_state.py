"""``load_state``: trained objects of libraries in a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobrun import CheckpointManager, Job, JobRunner, Task, load_state
from jobrun.errors import ValueRefusedError


def nothing(event: object) -> None:
    pass


def trained(path: Path, build: Any, task: Any, names: list[str]) -> None:
    """Train what ``build`` makes for three epochs, in a run at ``path``."""
    with Job("fit", state=[*names]) as job:
        with job.setup:
            Task(build, out=names if len(names) > 1 else names[0])
        with job.epoch:
            task(names)
    job.stop(epochs=3)
    JobRunner(job, CheckpointManager(path), report=nothing).train()


def test_a_module_and_its_optimizer(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def build() -> tuple[Any, Any]:
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
        return net, torch.optim.Adam(net.parameters(), lr=0.1)

    def step(net: Any, opt: Any) -> None:
        opt.zero_grad()
        net(torch.ones(4, 2) * torch.arange(4.0)[:, None]).square().sum().backward()
        opt.step()

    trained(tmp_path / "fit", build, lambda names: Task(step, update=names), ["net", "opt"])
    net, opt = build()
    same, other = build()
    for _ in range(3):
        step(same, other)
    assert load_state(tmp_path / "fit", "net", net) is net
    assert load_state(tmp_path / "fit", "opt", opt) is opt
    for name, tensor in same.state_dict().items():
        assert torch.equal(net.state_dict()[name], tensor), name
    step(net, opt)
    step(same, other)
    assert torch.equal(net[0].weight, same[0].weight), "they can be trained on"
    with pytest.raises(ValueRefusedError, match="was read by the adapter"):
        load_state(tmp_path / "fit", "opt", net)


def test_a_tree_of_jax_is_made_anew(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")

    def build() -> Any:
        return {"w": jax.numpy.zeros(3), "b": jax.numpy.ones(())}

    def step(params: Any) -> Any:
        return jax.tree.map(lambda x: x + 0.5, params)

    trained(tmp_path / "fit", build, lambda names: Task(step, in_=names, out=names[0]), ["params"])
    empty = build()
    found = load_state(tmp_path / "fit", "params", empty)
    assert np.array_equal(found["w"], np.full(3, 1.5))
    assert isinstance(found["b"], jax.Array)
    assert empty["w"].sum() == 0


def test_an_estimator(tmp_path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    x = np.random.default_rng(0).normal(size=(20, 2))
    y = (x[:, 0] > 0).astype(int)

    def build() -> Any:
        return linear.SGDClassifier(random_state=1)

    def step(model: Any) -> None:
        model.partial_fit(x, y, classes=[0, 1])

    trained(tmp_path / "fit", build, lambda names: Task(step, update=names), ["model"])
    same = build()
    for _ in range(3):
        step(same)
    found = load_state(tmp_path / "fit", "model", build())
    assert found.coef_.tobytes() == same.coef_.tobytes()
    assert (found.predict(x) == same.predict(x)).all()
