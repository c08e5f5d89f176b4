"""Estimators of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from live_adapter_contract import LiveAdapterContract

from jobrun.errors import ValueRefusedError
from jobrun.values.adapters.pytree import live_adapter_of
from jobrun.values.plain import put_back, read_state

pytest.importorskip("sklearn", reason="the extra sklearn is not installed")

from sklearn.cluster import Birch, MiniBatchKMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)


class TestIncremental(LiveAdapterContract):
    def objects(self) -> dict[str, Any]:
        return {
            "hinge": SGDClassifier(random_state=1),
            "log": SGDClassifier(loss="log_loss", average=True, random_state=1),
            "regressor": SGDRegressor(random_state=np.random.RandomState(3)),
            "bayes": GaussianNB(),
            "mlp": MLPClassifier((5,), random_state=2),
            "scaler": StandardScaler(),
            "kmeans": MiniBatchKMeans(3, batch_size=40, n_init=1, random_state=0),
        }

    def train(self, obj: Any) -> Any:
        if isinstance(obj, StandardScaler | MiniBatchKMeans):
            return obj.partial_fit(X)
        if isinstance(obj, SGDRegressor):
            return obj.partial_fit(X, Y)
        return obj.partial_fit(X, Y, classes=[0, 1])


class TestGrowing(LiveAdapterContract):
    """Ensembles that grow by a few trees with each fit."""

    def objects(self) -> dict[str, Any]:
        return {
            "forest": RandomForestClassifier(1, warm_start=True, random_state=0, max_depth=4),
            "boosting": GradientBoostingClassifier(
                n_estimators=1, warm_start=True, random_state=0, max_depth=2
            ),
        }

    def train(self, obj: Any) -> Any:
        if hasattr(obj, "estimators_"):
            obj.n_estimators += 2
        return obj.fit(X, Y)


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_pipeline(StandardScaler(), SGDClassifier(random_state=0)),
        lambda: DecisionTreeRegressor(max_depth=3),
        lambda: make_pipeline(FunctionTransformer(np.tanh), GaussianNB()),
        lambda: SGDClassifier(random_state=0),
    ],
)
def test_a_fitted_estimator_predicts_as_before(make: Any) -> None:
    labels = np.array(["no", "yes"])[Y] if "Regressor" not in str(make()) else Y
    fitted, new = make().fit(X, labels), make()
    adapter = live_adapter_of(fitted)
    assert adapter is not None
    again = put_back(adapter, new, {"x": read_state(adapter, fitted)}, "x")
    assert again is new
    assert (again.predict(X) == fitted.predict(X)).all()


def test_categories_of_strings() -> None:
    fitted = OneHotEncoder().fit(np.array([["a"], ["b"], ["é"]], object))
    adapter = live_adapter_of(fitted)
    assert adapter is not None
    again = put_back(adapter, OneHotEncoder(), {"x": read_state(adapter, fitted)}, "x")
    assert again.transform([["b"]]).toarray().tolist() == [[0, 1, 0]]


def restored(fitted: Any, new: Any) -> Any:
    adapter = live_adapter_of(fitted)
    assert adapter is not None
    return put_back(adapter, new, {"x": read_state(adapter, fitted)}, "x")


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 1, 0), (2, 0, 1), (0, 1, 2)])
def test_arrays_keep_the_order_of_their_memory(axes: tuple[int, ...]) -> None:
    """It decides the order of sums in BLAS, and so their bits."""
    model = GaussianNB()
    model.extra_ = np.arange(24.0).reshape(2, 3, 4).transpose(axes)
    again = restored(model, GaussianNB())
    assert again.extra_.strides == model.extra_.strides
    assert again.extra_.tolist() == model.extra_.tolist()


def test_decompositions_continue_bit_for_bit() -> None:
    """Their components come out of LAPACK in the order of Fortran."""
    model = IncrementalPCA(3).partial_fit(X[:60])
    again = restored(model, IncrementalPCA(3))
    for half in (X[60:], X[:60]):
        again.partial_fit(half)
        model.partial_fit(half)
        assert again.components_.tobytes() == model.components_.tobytes()
        assert again.components_.strides == model.components_.strides
        assert again.transform(X).tobytes() == model.transform(X).tobytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_pipeline(StandardScaler(), PCA(2), SGDClassifier(random_state=0)),
        lambda: ColumnTransformer([("s", StandardScaler(), [0, 1]), ("p", PCA(1), [2, 3])]),
        lambda: OneVsRestClassifier(make_pipeline(StandardScaler(), SGDClassifier(random_state=1))),
        lambda: VotingClassifier([("n", GaussianNB()), ("t", DecisionTreeClassifier(max_depth=2))]),
        lambda: GridSearchCV(SGDClassifier(random_state=0), {"alpha": [0.1, 0.01]}, cv=2),
    ],
)
def test_estimators_within_estimators(make: Any) -> None:
    fitted = make().fit(X, Y)
    again = restored(fitted, make())
    call = "predict" if hasattr(fitted, "predict") else "transform"
    assert getattr(again, call)(X).tobytes() == getattr(fitted, call)(X).tobytes()


def test_the_global_generator_stays_the_global_one() -> None:
    model = MLPClassifier((3,)).partial_fit(X, Y, classes=[0, 1])
    assert restored(model, MLPClassifier((3,)))._random_state is np.random.mtrand._rand
    own = MLPClassifier((3,), random_state=1).partial_fit(X, Y, classes=[0, 1])
    assert restored(own, MLPClassifier((3,)))._random_state is not np.random.mtrand._rand


def test_objects_that_hold_each_other_are_refused() -> None:
    """The leaves of a Birch are a list in both directions."""
    model = Birch(n_clusters=2).partial_fit(np.arange(12.0).reshape(6, 2))
    adapter = live_adapter_of(model)
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match="Birch is made of objects that hold each other"):
        adapter.state(model)


def test_another_class_is_refused() -> None:
    adapter = live_adapter_of(GaussianNB())
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match="state is that of a sklearn"):
        adapter.restore(SGDClassifier(), adapter.state(GaussianNB()))


def test_what_is_not_on_the_list_is_named() -> None:
    model = GaussianNB()
    model.extra_ = {"socket": [object()]}
    adapter = live_adapter_of(model)
    assert adapter is not None
    with pytest.raises(ValueRefusedError, match=r"NB\.extra_\['socket'\]\[0\] is a builtins"):
        adapter.state(model)


@pytest.mark.parametrize("name", ["os:system", "sklearn.base:clone", "subprocess:Popen", "x"])
def test_a_state_names_classes_of_scikit_learn_alone(name: str) -> None:
    model = GaussianNB()
    adapter = live_adapter_of(model)
    assert adapter is not None
    state = {**adapter.state(model), "priors": {".class": name, "arguments": ["true"]}}
    with pytest.raises(ValueRefusedError, match="not a class of scikit-learn"):
        adapter.restore(model, state)


def test_a_tree_whose_nodes_lead_nowhere_is_refused() -> None:
    model = DecisionTreeRegressor(max_depth=2).fit(X, Y)
    adapter = live_adapter_of(model)
    assert adapter is not None
    for field, value in (("left_child", 99), ("right_child", 0), ("feature", 77)):
        state = adapter.state(model)
        nodes = state["tree_"]["state"]["nodes"].copy()
        nodes[field][0] = value
        state["tree_"]["state"] = {**state["tree_"]["state"], "nodes": nodes}
        with pytest.raises(ValueRefusedError, match="refers to"):
            adapter.restore(DecisionTreeRegressor(max_depth=2), state)


def test_an_estimator_that_another_holds_twice_stays_one() -> None:
    """VotingClassifier has each in ``estimators_`` and in ``named_estimators_``."""

    def make() -> Any:
        return VotingClassifier([("sgd", SGDClassifier(random_state=0)), ("bayes", GaussianNB())])

    items = {"x": read_state(live_adapter_of(make()), make().fit(X, Y))}
    made = put_back(live_adapter_of(make()), make(), items, "x")
    first = made.estimators_[0]
    assert made.named_estimators_["sgd"] is first
    first.partial_fit(X, 1 - Y)
    assert (made.named_estimators_["sgd"].coef_ == first.coef_).all()


def test_one_object_of_setup_where_the_state_has_two() -> None:
    """As pipelines of which a search has cloned the steps."""
    scaler = StandardScaler()
    shared = make_pipeline(scaler, FunctionTransformer(), scaler)
    apart = make_pipeline(StandardScaler().fit(X), FunctionTransformer(), StandardScaler())
    made = put_back(
        live_adapter_of(shared), shared, {"x": read_state(live_adapter_of(apart), apart)}, "x"
    )
    first, last = made.steps[0][1], made.steps[2][1]
    assert first is scaler
    assert last is not scaler
    assert (hasattr(first, "mean_"), hasattr(last, "mean_")) == (True, False)
