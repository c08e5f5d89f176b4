"""The code of torch.yaml: a small network of PyTorch, with nothing in it about checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

ARMS = 3


def make_spiral(rows: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Points of a spiral of three arms (float32 [n, 2]) and their arms; a fifth is for testing."""
    arm = np.arange(rows) % ARMS
    radius = rng.uniform(0.1, 1.0, rows)
    angle = 4.0 * radius + 2 * np.pi * arm / ARMS + rng.normal(0.0, 0.2, rows)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    x, y, cut = torch.from_numpy(points).float(), torch.from_numpy(arm), rows * 4 // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def build(hidden: int, lr: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and its optimizer; the weights are drawn from torch's generator."""
    net = nn.Sequential(
        nn.Linear(2, hidden),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, ARMS),
    )
    return net, torch.optim.AdamW(net.parameters(), lr=lr)


def step(x: Tensor, y: Tensor, net: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Train on one batch; the batch's mean cross entropy before it."""
    net.train()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    return float(loss)


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of points whose arm is recognised, 0..1."""
    net.eval()
    with torch.no_grad():
        return float((net(x).argmax(1) == y).double().mean())


def report(net: nn.Module, x: Tensor, y: Tensor, out: str) -> None:
    """Print how many points are recognised, and write that to ``out``."""
    text = f"{100 * accuracy(net, x, y):.1f} % of {len(y)} test points are on the right arm\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
