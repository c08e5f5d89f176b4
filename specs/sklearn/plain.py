"""The training of digits.yaml as a plain script, which cannot be resumed.

    python specs/sklearn/plain.py

Given the job's order of the rows in each epoch, it computes the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from model import build, load, step, test


def train(
    epochs: int, order: Callable[[int], Any], rate: float = 0.01, batch: int = 96
) -> tuple[Any, list[tuple[float, float]]]:
    """Return the fitted estimator, and loss and accuracy of each epoch."""
    x, y, x_test, y_test = load(str(Path(__file__).parents[1] / "digits.npz"))
    model = build(rate)
    results = []
    for epoch in range(epochs):
        rows = order(epoch)
        for low in range(0, len(rows), batch):
            step(x[rows[low : low + batch]], y[rows[low : low + batch]], model)
        results.append(test(x_test, y_test, model))
    return model, results


if __name__ == "__main__":
    rng = np.random.default_rng(7)
    for number, (loss, right) in enumerate(train(20, lambda epoch: rng.permutation(1440))[1], 1):
        print(f"epoch {number:2}  loss {loss:.4f}  accuracy {right:.4f}")
