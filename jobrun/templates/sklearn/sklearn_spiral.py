"""The code of sklearn.yaml: an estimator of scikit-learn that is fitted batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier

ARMS = 3


def make_spiral(rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Points of a spiral of three arms (float64 [n, 2]) and their arms; a fifth is for testing."""
    y = np.arange(rows) % ARMS
    radius = rng.uniform(0.1, 1.0, rows)
    angle = 4.0 * radius + 2 * np.pi * y / ARMS + rng.normal(0.0, 0.2, rows)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    cut = rows * 4 // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def build(hidden: int, lr: float, seed: int) -> MLPClassifier:
    """An estimator that was not fitted yet; with a seed of its own, which is part of its state."""
    return MLPClassifier((hidden,), learning_rate_init=lr, random_state=seed)


def step(x: Any, y: Any, model: MLPClassifier) -> float:
    """Fit one batch; its mean cross entropy before that."""
    model.partial_fit(x, y, classes=np.arange(ARMS))
    return float(model.loss_)


def accuracy(model: MLPClassifier, x: Any, y: Any) -> float:
    """The share of points whose arm is recognised, 0..1."""
    return float(model.score(x, y))


def report(model: MLPClassifier, x: Any, y: Any, out: str) -> None:
    """Print how many points are recognised, and write that to ``out``."""
    text = f"{100 * accuracy(model, x, y):.1f} % of {len(y)} test points are on the right arm\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
