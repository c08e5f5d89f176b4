"""The training of mlp.yaml as a plain script, which cannot be resumed.

    python specs/jax-mlp/plain.py

Given the job's random numbers (``rng`` of the first weights, ``order`` of the rows in an epoch), it
computes the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from mlp import accuracy, build, load, step


def train(
    epochs: int,
    rng: np.random.Generator,
    order: Callable[[int], Any],
    hidden: int = 64,
    rate: float = 0.003,
    batch: int = 96,
) -> tuple[Any, list[tuple[float, float]]]:
    """Return the parameters, and loss and accuracy of each epoch."""
    x, y, x_test, y_test = load(str(Path(__file__).parents[1] / "digits.npz"))
    params, moments, key = build(hidden, rate, rng)
    results = []
    for epoch in range(epochs):
        rows = order(epoch)
        losses = []
        for low in range(0, len(rows) - batch + 1, batch):
            chosen = rows[low : low + batch]
            params, moments, key, loss = step(params, moments, key, x[chosen], y[chosen], rate)
            losses.append(loss * batch)
        seen = len(losses) * batch
        results.append((sum(losses) / seen, accuracy(params, x_test, y_test)))
    return params, results


if __name__ == "__main__":
    rng = np.random.default_rng(7)
    found = train(20, rng, lambda epoch: rng.permutation(1440))[1]
    for number, (loss, right) in enumerate(found, 1):
        print(f"epoch {number:2}  loss {loss:.4f}  accuracy {right:.4f}")
