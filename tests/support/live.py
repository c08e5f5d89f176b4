"""Small live objects for tests, and a job that trains them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jobrun.checkpoint.reading import read_part
from jobrun.model.job import Job, Pipe, Task
from jobrun.values.views import view


class Net:
    """A network with ``state_dict``: one matrix, and what it has counted."""

    def __init__(self) -> None:
        self.w = np.ones((4, 3))
        self.calls = 0

    def state_dict(self) -> dict[str, Any]:
        return {"w": self.w, "Calls": self.calls, "calls": np.int64(self.calls)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.w[...] = state["w"]
        self.calls = state["Calls"]


class Optimizer:
    """Holds its network, and momenta that are there from the first step on."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.momenta: dict[int, np.ndarray] = {}

    def step(self, x: Any) -> float:
        momentum = self.momenta.setdefault(0, np.zeros_like(self.net.w))
        momentum *= 0.9
        momentum += x.mean() * 0.01 + self.net.w * 0.001
        self.net.w -= momentum
        self.net.calls += 1
        return float(self.net.w.sum())

    def state_dict(self) -> dict[str, Any]:
        return {"state": {**self.momenta}, "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert state["groups"] == [{"lr": 0.1, "betas": (0.9, 0.99)}]
        self.momenta = dict(state["state"])


class Counter:
    """Counts, and has no state that is known by itself."""

    def __init__(self) -> None:
        self.n = 0


class CounterAdapter:
    """The adapter of Counter."""

    name = "tests.Counter"
    version = 1

    def state(self, obj: Counter) -> dict[str, int]:
        return {"n": obj.n}

    def restore(self, obj: Counter, state: Mapping[str, int]) -> Counter:
        obj.n = state["n"]
        return obj

    def copy(self, obj: Counter) -> Counter:
        made = Counter()
        made.n = obj.n
        return made


class Params(NamedTuple):
    """A tree of arrays that is replaced."""

    w: Any
    count: Any


def build() -> tuple[Net, Optimizer]:
    net = Net()
    return net, Optimizer(net)


def build_params() -> dict[str, Any]:
    return {"layer": Params(np.arange(3.0), np.int32(0)), "list": [np.zeros(2, np.float32)]}


def rows() -> Any:
    return np.arange(20.0)


def train(x: Any, net: Net, opt: Optimizer) -> float:
    assert opt.net is net
    return opt.step(x)


def count(counter: Counter) -> None:
    counter.n += 1


def move(x: Any, params: dict[str, Any]) -> dict[str, Any]:
    layer = params["layer"]
    return {
        "layer": Params(layer.w * 0.9 + x.mean(), np.int32(layer.count + 1)),
        "list": [params["list"][0] + np.float32(0.1)],
    }


def weights(net: Net) -> Any:
    return net.w.copy()


def trainer(nodes: Sequence[str] | None = None, **options: Any) -> Job:
    """A job with a live object of each kind: 10 batches an epoch."""
    state = {"net": None, "opt": None, "counter": CounterAdapter(), "params": None}
    job = Job("live", seed=5, nodes=nodes, **{"state": state, **options})
    node = "*" if nodes else None
    with job.setup:
        Task(rows, out="data", node=node)
        Task(build, out=["net", "opt"], node=node)
        Task(Counter, out="counter", name="make_counter", node=node)
        Task(build_params, out="params", node=node)
    with job.epoch:
        steps = [
            Task(train, {"x": "x"}, update={"net": "net", "opt": "opt"}, out="loss"),
            Task(count, update="counter"),
            Task(move, ["x", "params"], out="params"),
        ]
        Pipe({"x": "data"}, batch=2, do=steps, name="train", node=node)
        Task(weights, "net", out="weights", node=node)
    with job.exit:
        Task(len, "weights", out="count", name="look", node=node)
    return job


def on_disk(checkpoint: Path, nodes: Iterable[str] = ("main",)) -> dict[str, dict[str, Any]]:
    """The blobs of a checkpoint, live objects as their plain states."""
    return {
        node: {name: view(value) for name, value in read_part(checkpoint, node).items()}
        for node in nodes
    }
