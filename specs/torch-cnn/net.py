"""The code of cnn.yaml: plain PyTorch, with nothing in it about checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def load(file: str | Path) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Read the images (float32 [n, 1, 8, 8], 0..1) and their digits (int64 [n]).

    Of every 50 the last 10 are for the test.
    """
    with np.load(file, allow_pickle=False) as data:
        x = torch.from_numpy(data["x"]).reshape(-1, 1, 8, 8) / 16
        y = torch.from_numpy(data["y"]).long()
    test = torch.arange(len(y)) // 10 % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def build(
    rate: float, batches: int
) -> tuple[nn.Module, nn.Module, torch.optim.Optimizer, LRScheduler]:
    """Build the network, its average, the optimizer, and its schedule over so many batches."""
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 16, 10),
    )
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    return net, average, optimizer, OneCycleLR(optimizer, max_lr=rate, total_steps=batches)


def step(x: Tensor, y: Tensor, net: Any, average: Any, optimizer: Any, schedule: Any) -> float:
    """Train on one batch; return the loss."""
    net.train()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
    average.update_parameters(net)
    optimizer.zero_grad()  # at the end, so that no checkpoint holds gradients
    return loss.item()


@torch.no_grad()
def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of images whose digit the network says."""
    net.eval()
    return (net(x).argmax(1) == y).double().mean().item()
