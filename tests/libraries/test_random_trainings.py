"""Trainings of PyTorch put together at random: killed and resumed equals left alone and a loop.

Each module has some of the habits of real code that ``state_dict`` knows nothing of.  Under
JOBRUN_LONG there are 60 of them.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from whole_runs import bytes_of_checkpoints, die_after_save, records, train

from jobrun import CheckpointPolicy, Every, Job, Pipe, Task

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

ROWS, BATCH, EPOCHS = 12, 3, 3
SEEDS = 60 if os.environ.get("JOBRUN_LONG") else 4
X = np.random.default_rng(2).normal(size=(ROWS, 4)).astype(np.float32)


class Average:
    """An average of the weights, by an object that holds its module."""

    def __init__(self, module: Any) -> None:
        self.module, self.steps = module, 0
        self.shadow = [p.detach().clone() for p in module.parameters()]

    def update(self) -> float:
        self.steps += 1
        for old, new in zip(self.shadow, self.module.parameters(), strict=True):
            old.mul_(0.9).add_(new.detach(), alpha=0.1 / self.steps)
        return sum(float(one.sum()) for one in self.shadow)


def hidden(net: Any, x: Any) -> Any:
    """A state that each batch replaces, in a tuple."""
    old = net.__dict__.setdefault("memory", None) or (torch.zeros(4), 0)
    net.memory = (torch.tanh(old[0] + x.detach().mean(0)), old[1] + 1)
    return x + net.memory[0] / net.memory[1]


def replay(net: Any, x: Any) -> Any:
    net.past.append((x.detach().clone(), float(x.sum())))
    return x + 0.1 * net.past[net.draw.randrange(len(net.past))][0][: len(x)]


def averaged(net: Any, x: Any) -> Any:
    return x * (1 + 0.01 * net.average.update())


def aliased(net: Any, x: Any) -> Any:
    """Two names of one tensor, and a view of it."""
    net.total += x.detach().mean(0)
    net.row.mul_(0.5)
    return x + 0.1 * net.same


def swapped(net: Any, x: Any) -> Any:
    net.front, net.back = net.back, net.front
    net.front.data.add_(x.detach().mean(0))
    return x + 0.1 * net.front - 0.05 * net.back


def noisy(net: Any, x: Any) -> Any:
    kick = net.old.rand() + net.new.random() + net.new.spawn(1)[0].random()
    return x * (1 + 0.1 * (kick + float(torch.rand((), generator=net.gen))))


def decayed(net: Any, x: Any) -> Any:
    """An attribute of a module of torch itself."""
    net.norm.momentum *= 0.8
    return net.norm(x)


def frozen(net: Any, x: Any) -> Any:
    net.calls["all"] = net.calls.get("all", 0) + 1
    net.first.requires_grad_(net.calls["all"] % 5 != 0)
    return x


HABITS: list[Callable[[Any, Any], Any]] = [
    *(hidden, replay, averaged, aliased, swapped, noisy, decayed, frozen),
]


class Net(torch.nn.Module):
    """A small network with some habits."""

    def __init__(self, habits: list[Callable[[Any, Any], Any]]) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.norm = torch.nn.BatchNorm1d(4)
        self.habits = habits
        self.past: Any = deque(maxlen=5)
        self.draw, self.calls = random.Random(1), {}
        self.total = torch.zeros(4)
        self.same, self.row = self.total, self.total[:2]
        self.front, self.back = torch.zeros(4), torch.ones(4)
        self.old, self.new = np.random.RandomState(1), np.random.default_rng(1)
        self.gen = torch.Generator().manual_seed(1)
        self.average = Average(self)

    def forward(self, x: Any) -> Any:
        for habit in self.habits:
            x = habit(self, x)
        return self.last(torch.tanh(self.first(x)))


class Slow(torch.optim.SGD):
    """An optimizer with attributes of its own, and another one inside."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr)
        self.base = torch.optim.Adam(self.param_groups, lr)
        self.base.param_groups = self.param_groups
        self.count, self.slow = 0, [p.detach().clone() for p in self.param_groups[0]["params"]]

    def step(self, closure: Any = None) -> Any:
        self.base.step()
        self.count += 1
        if self.count % 3 == 0:
            for slow, own in zip(self.slow, self.param_groups[0]["params"], strict=True):
                own.data.copy_(slow.add_(own.detach() - slow, alpha=0.5))


OPTIMIZERS: list[Callable[..., Any]] = [
    lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    lambda p: torch.optim.AdamW(p, 0.02, amsgrad=True),
    lambda p: Slow(p, 0.02),
]
SCHEDULERS: list[Callable[..., Any]] = [
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    lambda o: torch.optim.lr_scheduler.StepLR(o, 4),
]


def makes(seed: int) -> Callable[[], tuple[Any, Any, Any]]:
    """Return what makes the objects of a training, the same at each call."""
    draw = random.Random(seed)
    habits = draw.sample(HABITS, draw.randint(2, 5))
    optimizer, scheduler = draw.choice(OPTIMIZERS[seed % 3 :]), draw.choice(SCHEDULERS)

    def make() -> tuple[Any, Any, Any]:
        torch.manual_seed(seed)
        net = Net(habits)
        own = optimizer(net.parameters())
        return net, own, scheduler(own)

    return make


def step(x: Any, net: Any, optimizer: Any, scheduler: Any) -> float:
    """Make a step of every second batch: gradients are gathered over two."""
    loss = (net(torch.from_numpy(np.array(x))) ** 2).mean() + 0.1 * net.last.weight.sum()
    loss.backward()
    if scheduler.last_epoch % 2:
        optimizer.step()
        optimizer.zero_grad()
    scheduler.step()
    return float(loss)


def job_of(seed: int) -> Job:
    names = ["net", "optimizer", "scheduler"]
    job = Job("training", state=names, metrics={"loss": None})
    job.checkpoint = CheckpointPolicy(every=Every(epochs=1, batches=1 + seed % 3))
    with job.setup:
        Task(lambda: X, out="rows", name="rows")
        Task(makes(seed), out=names, name="make")
    with job.epoch:
        do = [Task(step, "x", update=names, out="loss", name="step")]
        Pipe({"x": "rows"}, batch=BATCH, do=do, name="pipe")
    job.stop(epochs=EPOCHS)
    return job


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_and_resumed_equals_left_alone_and_a_loop(seed: int, tmp_path: Path) -> None:
    objects = makes(seed)()
    losses = [
        np.mean([step(X[n : n + BATCH], *objects) for n in range(0, ROWS, BATCH)])
        for _ in range(EPOCHS)
    ]
    train(job_of(seed), tmp_path / "alone")
    ends = [r.metrics["loss"] for r in records(tmp_path / "alone") if r.at_boundary and r.epoch]
    assert ends == pytest.approx(losses, rel=1e-12)
    saved = len(records(tmp_path / "alone"))
    for id in sorted(random.Random(seed).sample(range(saved - 1), 2)):
        die_after_save(job_of(seed), tmp_path / "killed", id)
    train(job_of(seed), tmp_path / "killed")
    alone, killed = (bytes_of_checkpoints(tmp_path / run) for run in ("alone", "killed"))
    assert [name for name in alone if alone[name] != killed.get(name)] == []
