"""The code of xgboost.yaml: a booster of XGBoost, a round of trees in each epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xgboost

ARMS = 3


def make_spiral(rows: int, rng: np.random.Generator) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """Points of a spiral of three arms, to train with and, a fifth of them, to test with."""
    y = np.arange(rows) % ARMS
    radius = rng.uniform(0.1, 1.0, rows)
    angle = 4.0 * radius + 2 * np.pi * y / ARMS + rng.normal(0.0, 0.2, rows)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    cut = rows * 4 // 5
    return xgboost.DMatrix(x[:cut], y[:cut]), xgboost.DMatrix(x[cut:], y[cut:])


def build(train: xgboost.DMatrix, lr: float, depth: int) -> xgboost.Booster:
    """A booster over its data, without trees."""
    parameters = {"objective": "multi:softprob", "num_class": ARMS, "eta": lr, "max_depth": depth}
    return xgboost.Booster({**parameters, "eval_metric": ["mlogloss", "merror"]}, [train])


def add_trees(train: xgboost.DMatrix, booster: xgboost.Booster) -> None:
    """Train one round: a tree for each arm."""
    booster.update(train, booster.num_boosted_rounds())


def evaluate(booster: xgboost.Booster, test: xgboost.DMatrix) -> tuple[float, float]:
    """The mean cross entropy, and the share of points whose arm is recognised, 0..1."""
    found = booster.eval_set([(test, "test")], booster.num_boosted_rounds() - 1)
    loss, error = (float(part.rpartition(":")[2]) for part in found.split("\t")[1:])
    return loss, 1 - error


def report(booster: xgboost.Booster, test: xgboost.DMatrix, out: str) -> None:
    """Print how many points are recognised, and write that to ``out``."""
    loss, accuracy = evaluate(booster, test)
    text = f"{100 * accuracy:.1f} % of the test points are on the right arm, loss {loss:.4f}\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
