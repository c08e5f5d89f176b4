"""Models of CatBoost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from live_adapter_contract import LiveAdapterContract

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.pytree import live_adapter_of

catboost = pytest.importorskip("catboost", reason="the extra catboost is not installed")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 5))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
WORDS = np.column_stack([X.astype(object), RNG.integers(0, 20, 200).astype(str)])
PARAMS = {
    "iterations": 3,
    "depth": 3,
    "random_seed": 3,
    "thread_count": 2,
    "verbose": False,
    "allow_writing_files": False,
}


def classifier(**more: Any) -> Any:
    return catboost.CatBoostClassifier(**PARAMS, **more)


def regressor(**more: Any) -> Any:
    return catboost.CatBoostRegressor(**PARAMS, **more)


def step(obj: Any, x: Any = X, **how: Any) -> Any:
    return obj.fit(x, Y, init_model=obj.copy() if obj.is_fitted() else None, **how)


class TestModels(LiveAdapterContract):
    def objects(self) -> dict[str, Any]:
        return {
            "classes": classifier(),
            "three losses": classifier(loss_function="MultiClass"),
            "sampled": regressor(bootstrap_type="Bayesian", rsm=0.5),
            "leafwise": regressor(grow_policy="Lossguide"),
            "base": catboost.CatBoost({**PARAMS, "loss_function": "Quantile:alpha=0.3"}),
        }

    def train(self, obj: Any) -> Any:
        return step(obj)


class TestWords(LiveAdapterContract):
    """Categories, whose tables of counts belong to the model."""

    def objects(self) -> dict[str, Any]:
        return {"words": classifier(cat_features=[5], one_hot_max_size=2)}

    def train(self, obj: Any) -> Any:
        return step(obj, WORDS)


class TestWatched(LiveAdapterContract):
    """A data set that is watched: the model goes back to its best trees."""

    def objects(self) -> dict[str, Any]:
        return {"watched": regressor()}

    def train(self, obj: Any) -> Any:
        return step(obj, eval_set=(X[:50], 1 - Y[:50]))


def refused(obj: Any) -> ValueRefusedError:
    adapter = live_adapter_of(obj)
    assert adapter is not None
    with pytest.raises(ValueRefusedError) as error:
        adapter.state(obj)
    return error.value


def test_what_belongs_to_the_trees_comes_back() -> None:
    old, new = classifier(cat_features=[5]), classifier(cat_features=[5])
    step(old, WORDS, eval_set=(WORDS[:50], Y[:50]))
    adapter = live_adapter_of(old)
    assert adapter is not None
    adapter.restore(new, adapter.state(old))
    assert new.get_params() == old.get_params()
    assert new.classes_.tolist() == old.classes_.tolist() == [0, 1]
    assert (new.feature_importances_ == old.feature_importances_).all()
    assert (new.predict_proba(WORDS) == old.predict_proba(WORDS)).all()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metric_period": 2},
        {"iterations": 50, "early_stopping_rounds": 1},
    ],
)
def test_a_model_continued_in_memory_is_refused(more: dict[str, Any]) -> None:
    obj = catboost.CatBoostRegressor(**PARAMS | more, use_best_model=False)
    for before in (None, obj):
        obj.fit(X, Y, init_model=before, eval_set=(X[:20], 1 - Y[:20]))
        if before is None:
            adapter = live_adapter_of(obj)
            assert adapter is not None
            adapter.state(obj)
    assert "init_model=model.copy()" in str(refused(obj).hint)


def test_a_model_that_went_back_to_its_best_trees_is_continued_by_itself() -> None:
    """CatBoost then forgets the progress, and adds models up as it does with a copy."""
    made = []
    for copied in (False, True):
        obj = catboost.CatBoostRegressor(**PARAMS | {"iterations": 20, "use_best_model": True})
        for _ in range(2):
            before = None if not obj.is_fitted() else obj.copy() if copied else obj
            obj.fit(X, Y, init_model=before, eval_set=(X[:20], 1 - Y[:20]))
        adapter = live_adapter_of(obj)
        assert adapter is not None
        made.append(adapter.state(obj)["model"].tobytes())
    assert made[0] == made[1]


def test_a_model_of_another_class_is_refused() -> None:
    adapter = live_adapter_of(classifier())
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match=r"a CatBoostRegressor, .* a CatBoostClassifier"):
        adapter.restore(regressor(), adapter.state(step(classifier())))
