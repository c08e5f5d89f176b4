"""The training of cnn.yaml as a plain script, which cannot be resumed.

    python specs/torch-cnn/plain.py

It draws its own random numbers.  Given those of the job (``seed`` for torch, ``order`` of the rows
in an epoch), it computes the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from net import accuracy, build, load, step

Order = Callable[[int], Any]


def train(
    epochs: int, seed: int, order: Order, rate: float = 0.003, batches: int = 230, batch: int = 64
) -> tuple[tuple[Any, ...], list[tuple[float, float]]]:
    """Return the trained objects, and loss and accuracy of each epoch."""
    torch.manual_seed(seed)
    x, y, x_test, y_test = load(Path(__file__).parents[1] / "digits.npz")
    objects = build(rate, batches)
    results = []
    for epoch in range(epochs):
        rows = torch.from_numpy(order(epoch))
        total = 0.0
        for low in range(0, len(rows), batch):
            chosen = rows[low : low + batch]
            total += step(x[chosen], y[chosen], *objects) * len(chosen)
        results.append((total / len(rows), accuracy(objects[1], x_test, y_test)))
    return objects, results


if __name__ == "__main__":
    rng = np.random.default_rng(7)
    for number, (loss, right) in enumerate(train(10, 7, lambda epoch: rng.permutation(1440))[1], 1):
        print(f"epoch {number:2}  loss {loss:.4f}  accuracy {right:.4f}")
