"""The code of digits.yaml: a scaler and a classifier of scikit-learn, trained batch by batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

CLASSES = np.arange(10)


def load(file: str) -> tuple[Any, Any, Any, Any]:
    """Read the images (float64 [n, 64], 0..1) and digits; of every 50 the last 10 are test."""
    with np.load(file, allow_pickle=False) as data:
        x, y = data["x"] / 16.0, data["y"]
    test = np.arange(len(y)) // 10 % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def build(rate: float) -> SGDClassifier:
    """An estimator that was not fitted yet."""
    return SGDClassifier("log_loss", learning_rate="constant", eta0=rate, random_state=0)


def step(x: Any, y: Any, model: SGDClassifier) -> None:
    """Fit one batch."""
    model.partial_fit(x, y, CLASSES)


def test(x: Any, y: Any, model: SGDClassifier) -> tuple[float, float]:
    """The mean logarithmic loss, and the share of digits that are recognised."""
    return float(log_loss(y, model.predict_proba(x))), float(model.score(x, y))
