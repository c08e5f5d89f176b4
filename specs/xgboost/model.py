"""The code of digits.yaml: a booster of XGBoost, round by round."""

from __future__ import annotations

import numpy as np
import xgboost


def load(file: str) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """Read the images and their digits; of every 50 the last 10 are test."""
    with np.load(file, allow_pickle=False) as data:
        x, y = data["x"], data["y"]
    test = np.arange(len(y)) // 10 % 5 == 4
    return xgboost.DMatrix(x[~test], y[~test]), xgboost.DMatrix(x[test], y[test])


def build(train: xgboost.DMatrix, rate: float, depth: int) -> xgboost.Booster:
    """A booster without trees."""
    parameters = {
        "objective": "multi:softprob",
        "num_class": 10,
        "eta": rate,
        "max_depth": depth,
        "eval_metric": ["mlogloss", "merror"],
        "nthread": 1,
    }
    return xgboost.Booster(parameters, [train])


def add_trees(train: xgboost.DMatrix, booster: xgboost.Booster) -> None:
    """Train one round: a tree for each digit."""
    booster.update(train, booster.num_boosted_rounds())


def evaluate(booster: xgboost.Booster, test: xgboost.DMatrix) -> tuple[float, float]:
    """The logarithmic loss on the test images, and the share that is not recognised."""
    found = booster.eval_set([(test, "test")], booster.num_boosted_rounds() - 1)
    loss, error = (float(part.rpartition(":")[2]) for part in found.split("\t")[1:])
    return loss, error
