"""Models, optimizers and metrics of Keras, with the backend torch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from live_adapter_contract import LiveAdapterContract

pytest.importorskip("torch", reason="the extra torch is not installed")
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="the extra keras is not installed")

from jobrun.errors import ValueRefusedError  # noqa: E402
from jobrun.values.adapters.pytree import (  # noqa: E402
    live_adapter_of,
    note_made,
    warnings_of,
)
from jobrun.values.plain import put_back, read_state  # noqa: E402

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
Y = X[:, :1] * X[:, 1:2]
_noted: list[object] = []


def noted(obj: Any) -> Any:
    _noted.append(note_made(live_adapter_of(obj), obj))
    return obj


def model(optimizer: Any = "adam", units: int = 4, metrics: Any = None) -> Any:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(units, "tanh"), keras.layers.BatchNormalization()]
    made = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)])
    made.compile(optimizer, "mse", metrics=metrics)
    return noted(made)


def average() -> Any:
    return noted(keras.metrics.Mean())


def optimizer() -> Any:
    made = keras.optimizers.Adam(0.1)
    made.build([keras.Variable(np.ones(2, np.float32))])
    return noted(made)


class TestObjects(LiveAdapterContract):
    def objects(self) -> dict[str, Any]:
        optimizers = {
            "momentum": keras.optimizers.SGD(0.1, momentum=0.9),
            "averaged": keras.optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
            "gathered": keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
            "scaled": keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)),
        }
        models = {name: model(made) for name, made in optimizers.items()}
        return {**models, "metric": average(), "optimizer": optimizer()}

    def train(self, obj: Any) -> Any:
        if isinstance(obj, keras.Model):
            obj.train_on_batch(X, Y)
        elif isinstance(obj, keras.metrics.Metric):
            obj.update_state(float(obj.variables[1].numpy()))
        else:
            obj.apply([keras.ops.convert_to_tensor(np.full(2, 0.5, np.float32))])
        return obj


def moved(old: Any, new: Any) -> Any:
    put_back(live_adapter_of(new), new, {"t": read_state(live_adapter_of(old), old)}, "t")
    return new


def test_what_can_be_trained_and_the_rate_come_back() -> None:
    old, new = model(), model()
    old.train_on_batch(X, Y)
    old.layers[0].trainable = False
    old.optimizer.learning_rate = 0.5
    moved(old, new)
    assert [one.trainable for one in new.layers] == [False, True, True]
    for one in (old, new):
        one.train_on_batch(X, Y)
    assert all(map(np.array_equal, old.get_weights(), new.get_weights()))


class Counting(keras.layers.Layer):
    """A layer of the user's own, which counts and keeps a list."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = 0, []

    def call(self, x: Any) -> Any:
        self.calls += 1
        self.seen.append(self.calls)
        return x * (1 + 0.1 * self.calls)


def test_attributes_of_layers_come_back() -> None:
    def make() -> Any:
        made = keras.Sequential([keras.Input((3,)), Counting(), keras.layers.Dropout(0.5)])
        return noted(made)

    old, new = make(), make()
    old(X)
    old.layers[1].rate = 0.25
    moved(old, new)
    assert new.layers[0].calls == old.layers[0].calls
    assert list(new.layers[0].seen) == list(old.layers[0].seen)
    assert new.layers[1].rate == 0.25


def test_metrics_that_are_built_come_back_and_others_are_warned_of() -> None:
    old, new = model(metrics=["mae"]), model(metrics=["mae"])
    assert any("metrics are not built" in text for text in warnings_of(live_adapter_of(old), old))
    new.test_on_batch(X, Y)
    new.reset_metrics()
    old.train_on_batch(X, Y)
    moved(old, new)
    assert not [*warnings_of(live_adapter_of(new), new)]
    assert [float(v.numpy()) for v in new.metrics_variables] == [
        float(v.numpy()) for v in old.metrics_variables
    ]


def test_a_model_without_variables_and_one_of_other_shapes_are_refused() -> None:
    with pytest.raises(ValueRefusedError, match="has no variables yet"):
        noted(keras.Sequential([keras.layers.Dense(1)]))
    adapter = live_adapter_of(model())
    with pytest.raises(
        ValueRefusedError, match=r"is float32\[3, 5\] in the object of 'setup', and"
    ):
        adapter.restore(model(units=5), adapter.state(model()))
