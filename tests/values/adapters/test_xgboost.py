"""Boosters of XGBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from live_adapter_contract import LiveAdapterContract

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.pytree import live_adapter_of

xgboost = pytest.importorskip("xgboost", reason="the extra xgboost is not installed")

X = np.random.default_rng(0).normal(size=(300, 6))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(float)
PARAMS = {"objective": "binary:logistic", "max_depth": 3, "nthread": 2, "seed": 3}
DATA = xgboost.DMatrix(X, Y)
NARROW = xgboost.DMatrix(X[:, :4], Y)


def booster(data: Any = DATA, **more: Any) -> Any:
    return xgboost.Booster({**PARAMS, **more}, [data])


class TestInPlace(LiveAdapterContract):
    copied = False  # a copy has no data of its own, but can be given some

    def objects(self) -> dict[str, Any]:
        return {
            "hist": booster(),
            "exact": booster(tree_method="exact"),
            "dart": booster(booster="dart", rate_drop=0.3, seed_per_iteration=True),
            "softmax": booster(objective="multi:softprob", num_class=2),
        }

    def train(self, obj: Any) -> Any:
        obj.update(DATA, obj.num_boosted_rounds())
        obj.set_attr(rounds=str(obj.num_boosted_rounds()))
        return obj


class TestReplaced(LiveAdapterContract):
    """With random numbers, each call makes a new booster, whose seed it chooses."""

    kept = False

    def objects(self) -> dict[str, Any]:
        return {"sampled": booster(subsample=0.5, colsample_bytree=0.5)}

    def train(self, obj: Any) -> Any:
        params = {**PARAMS, "subsample": 0.5, "colsample_bytree": 0.5}
        params["seed"] = obj.num_boosted_rounds()
        return xgboost.train(params, DATA, 1, xgb_model=obj)


def refused(obj: Any) -> ValueRefusedError:
    adapter = live_adapter_of(obj)
    assert adapter is not None
    with pytest.raises(ValueRefusedError) as error:
        adapter.state(obj)
    return error.value


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"subsample": 0.5}, "subsample 0.5"),
        ({"colsample_bynode": 0.5}, "colsample_bynode 0.5"),
        ({"booster": "dart", "rate_drop": 0.3}, "without seed_per_iteration"),
        ({"booster": "dart", "one_drop": True}, "one_drop 1 (without seed_per_iteration)"),
        (
            {"booster": "gblinear", "updater": "coord_descent", "feature_selector": "shuffle"},
            "feature_selector shuffle",
        ),
    ],
)
def test_random_numbers_in_place_are_refused(params: dict[str, Any], text: str) -> None:
    obj = booster(**params)
    adapter = live_adapter_of(obj)
    assert adapter is not None
    adapter.state(obj)
    obj.update(DATA, 0)
    error = refused(obj)
    assert text in str(error)
    assert "xgb_model=booster" in str(error.hint)


def test_a_booster_without_data_is_refused() -> None:
    assert "xgboost.Booster(params, [dtrain])" in str(refused(xgboost.Booster(PARAMS)).hint)


def test_another_number_of_features_is_refused() -> None:
    adapter = live_adapter_of(booster())
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match="has 4 features, the saved one has 6"):
        adapter.restore(booster(NARROW), adapter.state(booster()))
