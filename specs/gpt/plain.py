"""The training of gpt.yaml as a plain script, which cannot be resumed.

    python specs/gpt/plain.py

It draws its own random numbers.  Given those of the job (``seed`` for torch, ``rng`` for the texts,
``order`` of the rows in an epoch), it computes the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from model import build, gradients, right_lines, texts, update

Order = Callable[[int], Any]


def train(
    epochs: int, seed: int, rng: np.random.Generator, order: Order, accumulate: int = 3
) -> tuple[tuple[Any, ...], list[tuple[float, float]]]:
    """Return the trained objects, and loss and share of right lines of each epoch."""
    torch.manual_seed(seed)
    lines, test_lines = texts(2000, rng)
    gpt, optimizer = build(64, 0.003)
    results = []
    for epoch in range(epochs):
        rows = torch.from_numpy(order(epoch))
        total = 0.0
        for number, chosen in enumerate(rows.split(50), 1):
            total += gradients(lines[chosen], gpt, accumulate) * len(chosen)
            if number % accumulate == 0:
                update(gpt, optimizer)
        results.append((total / len(rows), right_lines(gpt, test_lines)))
    return (gpt, optimizer), results


if __name__ == "__main__":
    own = np.random.default_rng(3)
    found = train(5, 3, own, lambda epoch: own.permutation(2000))[1]
    for number, (loss, right) in enumerate(found, 1):
        print(f"epoch {number:2}  loss {loss:.4f}  right {right:.3f}")
