"""The code of mlp.yaml: a multilayer perceptron with one hidden layer, in JAX and optax."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

KEPT = 0.9
"""The share of hidden units that dropout leaves."""


def load(file: str) -> tuple[Any, Any, Any, Any]:
    """Read the images (float32 [n, 64], 0..1) and digits; of every 50 the last 10 are test."""
    with np.load(file, allow_pickle=False) as data:
        x, y = (data["x"] / 16).astype(np.float32), data["y"].astype(np.int32)
    test = np.arange(len(y)) // 10 % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def build(hidden: int, rate: float, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """The parameters, the moments of Adam, and the key of the dropout."""
    first, second, key = jax.random.split(jax.random.key(int(rng.integers(1 << 31))), 3)
    params = {
        "hidden": {"w": jax.random.normal(first, (64, hidden)) * 0.18, "b": jnp.zeros(hidden)},
        "out": {"w": jax.random.normal(second, (hidden, 10)) * 0.18, "b": jnp.zeros(10)},
    }
    return params, optax.adam(rate).init(params), key


def _logits(params: Any, x: Any, mask: Any = 1.0) -> Any:
    hidden = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"]) * mask
    return hidden @ params["out"]["w"] + params["out"]["b"]


def _loss(params: Any, x: Any, y: Any, mask: Any) -> Any:
    logits = _logits(params, x, mask)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@partial(jax.jit, static_argnames="rate")
def _update(params: Any, moments: Any, key: Any, x: Any, y: Any, rate: float) -> Any:
    key, own = jax.random.split(key)
    mask = jax.random.bernoulli(own, KEPT, (len(x), len(params["hidden"]["b"]))) / KEPT
    loss, slopes = jax.value_and_grad(_loss)(params, x, y, mask)
    changes, moments = optax.adam(rate).update(slopes, moments, params)
    return optax.apply_updates(params, changes), moments, key, loss


def step(params: Any, moments: Any, key: Any, x: Any, y: Any, rate: float) -> Any:
    """One step of Adam: the new parameters, moments and key, and the loss of the batch."""
    params, moments, key, loss = _update(params, moments, key, x, y, rate)
    return params, moments, key, float(loss)


def accuracy(params: Any, x: Any, y: Any) -> float:
    """The share of digits that are recognised, without dropout."""
    return float((_logits(params, x).argmax(1) == y).mean())
