"""Boosters of LightGBM."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from live_adapter_contract import LiveAdapterContract

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.pytree import live_adapter_of

lightgbm = pytest.importorskip("lightgbm", reason="the extra lightgbm is not installed")

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=(300, 5)), RNG.integers(0, 40, 300)])
Y = (X[:, 0] + X[:, 1] ** 2 + X[:, 5] % 3 > 1.5).astype(float)
PARAMS = {"objective": "binary", "num_leaves": 7, "verbose": -1, "num_threads": 2, "seed": 3}


def data(columns: int = 6, *, free: bool = False, **more: Any) -> Any:
    return lightgbm.Dataset(X[:, :columns], Y, free_raw_data=free, **more)


def booster(columns: int = 6, **more: Any) -> Any:
    return lightgbm.Booster({**PARAMS, **more}, data(columns))


def watched() -> Any:
    train = data()
    made = lightgbm.Booster({**PARAMS, "metric": "auc"}, train)
    return made.add_valid(
        lightgbm.Dataset(X[::3], Y[::3], reference=train, free_raw_data=False), "v"
    )


class TestInPlace(LiveAdapterContract):
    copied = False  # a copy has no data

    def objects(self) -> dict[str, Any]:
        categorical = data(categorical_feature=[5])
        return {
            "binary": booster(),
            "median": booster(objective="regression_l1"),
            "classes": booster(objective="multiclass", num_class=2),
            "categorical": lightgbm.Booster({**PARAMS, "min_data_per_group": 5}, categorical),
            "watched": watched(),
        }

    def train(self, obj: Any) -> Any:
        obj.update()
        obj.best_iteration = obj.current_iteration()
        return obj


class TestReplaced(LiveAdapterContract):
    """With random numbers, each call makes a new booster, whose seed it chooses."""

    kept = False

    def objects(self) -> dict[str, Any]:
        return {"sampled": self.train(None)}

    def train(self, obj: Any) -> Any:
        seed = 0 if obj is None else obj.current_iteration()
        params = {**PARAMS, "bagging_fraction": 0.5, "bagging_freq": 1, "seed": seed}
        return lightgbm.train(params, data(), 1, init_model=obj)


def refused(obj: Any) -> ValueRefusedError:
    adapter = live_adapter_of(obj)
    assert adapter is not None
    with pytest.raises(ValueRefusedError) as error:
        adapter.state(obj)
    return error.value


def test_scores_of_a_validation_set_continue() -> None:
    old = watched()
    old.update()
    adapter = live_adapter_of(old)
    assert adapter is not None
    new = adapter.restore(watched(), adapter.state(old))
    assert new.eval_valid() == old.eval_valid()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"subsample": 0.5, "bagging_freq": 1}, "bagging_fraction 0.5"),
        ({"colsample_bytree": 0.5}, "feature_fraction 0.5"),
        ({"boosting": "dart"}, "boosting dart"),
        ({"data_sample_strategy": "goss"}, "data_sample_strategy goss"),
        ({"extra_trees": True}, "extra_trees 1"),
    ],
)
def test_random_numbers_in_place_are_refused(params: dict[str, Any], text: str) -> None:
    error = refused(booster(**params))
    assert text in str(error)
    assert "init_model=booster" in str(error.hint)


def test_freed_data_are_refused() -> None:
    error = refused(lightgbm.Booster(PARAMS, data(free=True)))
    assert "free_raw_data=False" in str(error.hint)


def test_another_number_of_features_is_refused() -> None:
    adapter = live_adapter_of(booster())
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match="has 4 features, the saved one has 6"):
        adapter.restore(booster(4), adapter.state(booster()))


@pytest.mark.parametrize(
    ("pattern", "by"),
    [
        (r"\nsplit_feature=\d+", "\nsplit_feature=99"),
        (r"\nsplit_feature=\d+ ", "\nsplit_feature="),
        (r"\nleft_child=-?\d+", "\nleft_child=99999"),
        (r"\nleft_child=-?\d+", "\nleft_child=0"),
        (r"\nleaf_value=\S+ ", "\nleaf_value="),
        (r"\nnum_leaves=\d+", "\nnum_leaves=70"),
        (r"\nnum_cat=\d+", "\nnum_cat=3"),
        (r"\nis_linear=0", "\nis_linear=1"),
    ],
)
def test_a_text_that_would_end_the_process_is_refused(pattern: str, by: str) -> None:
    obj = booster()
    obj.update()
    obj.update()
    adapter = live_adapter_of(obj)
    assert adapter is not None
    state = adapter.state(obj)
    text, number = re.subn(pattern, by, state["model"], count=1)
    assert number
    header = text.partition("tree_sizes=")
    sizes = [len(t) for t in re.split(r"(?=Tree=\d)", text.partition("end of trees")[0])[1:]]
    text = header[0] + f"tree_sizes={' '.join(map(str, sizes))}\n" + header[2].partition("\n")[2]
    with pytest.raises(ValueRefusedError, match="does not hold whole trees"):
        adapter.restore(obj, {**state, "model": text})
