"""The code of jax.yaml: a small network in JAX and optax, whose values are replaced."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

ARMS = 3
Tree = dict[str, Any]
"""Arrays by name.  The parameters are {w1 [2, hidden], b1 [hidden], w2 [hidden, 3], b2 [3]}."""


def make_spiral(rows: int, rng: np.random.Generator) -> tuple[Any, Any, Any, Any]:
    """Points of a spiral of three arms (float32 [n, 2]) and their arms; a fifth is for testing."""
    arm = np.arange(rows) % ARMS
    radius = rng.uniform(0.1, 1.0, rows)
    angle = 4.0 * radius + 2 * np.pi * arm / ARMS + rng.normal(0.0, 0.2, rows)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).astype(np.float32)
    y, cut = arm.astype(np.int32), rows * 4 // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def build(hidden: int, lr: float, rng: np.random.Generator) -> tuple[Tree, Any]:
    """The parameters, and the moments of Adam."""
    first, second = jax.random.split(jax.random.key(int(rng.integers(1 << 31))))
    params = {
        "w1": jax.random.normal(first, (2, hidden)),
        "b1": jnp.zeros(hidden),
        "w2": jax.random.normal(second, (hidden, ARMS)) * (2 / hidden) ** 0.5,
        "b2": jnp.zeros(ARMS),
    }
    return params, optax.adam(lr).init(params)


def _scores(params: Tree, x: Any) -> Any:
    hidden = jax.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def _loss(params: Tree, x: Any, y: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(_scores(params, x), y).mean()


@partial(jax.jit, static_argnames="lr")
def _update(params: Tree, moments: Any, x: Any, y: Any, lr: float) -> tuple[Tree, Any, Any]:
    loss, slopes = jax.value_and_grad(_loss)(params, x, y)
    changes, moments = optax.adam(lr).update(slopes, moments, params)
    return optax.apply_updates(params, changes), moments, loss


def step(params: Tree, moments: Any, x: Any, y: Any, lr: float) -> tuple[Tree, Any, float]:
    """One step of Adam: new parameters and moments, and the batch's mean cross entropy before."""
    params, moments, loss = _update(params, moments, x, y, lr)
    return params, moments, float(loss)


def accuracy(params: Tree, x: Any, y: Any) -> float:
    """The share of points whose arm is recognised, 0..1."""
    return float((_scores(params, x).argmax(1) == y).mean())


def report(params: Tree, x: Any, y: Any, out: str) -> None:
    """Print how many points are recognised, and write that to ``out``."""
    text = f"{100 * accuracy(params, x, y):.1f} % of {len(y)} test points are on the right arm\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
