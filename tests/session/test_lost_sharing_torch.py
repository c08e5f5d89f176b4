"""Warnings of memory that parts of PyTorch's modules and optimizers share since training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from engine import Driver  # noqa: E402
from torch import nn  # noqa: E402

from jobrun.core.events import Warned  # noqa: E402
from jobrun.model.job import Job, Task  # noqa: E402


class Net(nn.Module):
    """Shares memory since ``setup`` in two ways: a tied weight, and an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.c.weight = self.a.weight
        self.row = self.a.weight.data[0]
        self.cache = torch.zeros(3)
        self.register_buffer("steps", torch.zeros(3), persistent=False)


def make() -> tuple[Any, Any, dict[str, Any]]:
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), {"w": torch.zeros(3)}


def said_of(share: Callable[..., None]) -> list[str]:
    """The pairs that are named after an epoch in which a task shares memory."""

    def step(net: Any, optimizer: Any, tree: Any) -> None:
        net.steps += 1
        net.a(torch.ones(3)).sum().backward()
        optimizer.step()
        share(net, optimizer, tree)

    names = ["net", "optimizer", "tree"]
    job = Job("j", state=names)
    with job.setup:
        Task(make, out=names, name="make")
    with job.epoch:
        Task(step, names, name="step")
    driver = Driver(job).start().epochs(1)
    assert driver.session.snapshot() is not None
    driver.session.close()
    found = [e.message for e in driver.events if isinstance(e, Warned)]
    return [text.partition(",")[0] for text in found if "shares memory" in text]


def move(net: Any) -> None:
    net.b.bias.data = net.a.weight.data[0]


@pytest.mark.parametrize(
    ("share", "part", "other"),
    [
        (lambda n, o, t: setattr(n, "cache", n.b.weight.data[0]), "net/cache", "net/b.weight"),
        (lambda n, o, t: setattr(n, "cache", n.b.weight.data), "net/cache", "net/b.weight"),
        (lambda n, o, t: setattr(n, "new", [n.steps[:2]]), "net/new[0]", "net/steps"),
        (lambda n, o, t: setattr(n.b, "weight", n.a.weight), "net/b.weight", "net/a.weight"),
        (lambda n, o, t: move(n), "net/b.bias", "net/a.weight"),
        (lambda n, o, t: t.update(w=n.b.weight.data[0]), "tree/w", "net/b.weight"),
        (lambda n, o, t: t.update(w=n.b.bias.data), "tree/w", "net/b.bias"),
        (
            lambda n, o, t: t.update(w=o.state[n.a.bias]["momentum_buffer"]),
            "optimizer/state/1/momentum_buffer",
            "tree/w",
        ),
    ],
)
def test_what_training_shares_is_named(share: Any, part: str, other: str) -> None:
    (text,) = said_of(share)
    assert text == f"'{part}' under 'state' shares memory with '{other}'"


def test_what_setup_shares_is_not_named() -> None:
    assert said_of(lambda net, optimizer, tree: net.a.weight.data.add_(1)) == []
