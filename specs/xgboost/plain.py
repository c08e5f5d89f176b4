"""The training of digits.yaml as a plain script, which cannot be resumed.

python specs/xgboost/plain.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from model import add_trees, build, evaluate, load


def train(epochs: int, rate: float = 0.3, depth: int = 4) -> tuple[Any, list[tuple[float, float]]]:
    """Return the booster, and loss and error of each round."""
    rows, test = load(str(Path(__file__).parents[1] / "digits.npz"))
    booster = build(rows, rate, depth)
    results = []
    for _ in range(epochs):
        add_trees(rows, booster)
        results.append(evaluate(booster, test))
    return booster, results


if __name__ == "__main__":
    for number, (loss, error) in enumerate(train(30)[1], 1):
        print(f"epoch {number:2}  loss {loss:.4f}  error {error:.4f}")
