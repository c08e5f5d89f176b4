"""The code of mlp.yaml: a multilayer perceptron with one hidden layer, in numpy.

Functions are plain: they take arrays and numbers, and return arrays and numbers.  What an
``in:`` hands them is read-only; what an ``update:`` hands them is changed in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Tree = dict[str, Floats]
"""Arrays by name.  The model is {w1 [2, hidden], b1 [hidden], w2 [hidden, 3], b2 [3]}."""

ARMS = 3


def make_spiral(rows: int, rng: np.random.Generator) -> tuple[Floats, Labels, Floats, Labels]:
    """Points of a spiral of three arms (float64 [n, 2]) and their arms; a fifth is for testing."""
    y = np.arange(rows) % ARMS
    radius = rng.uniform(0.1, 1.0, rows)
    angle = 4.0 * radius + 2 * np.pi * y / ARMS + rng.normal(0.0, 0.2, rows)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    cut = rows * 4 // 5
    return x[:cut], y[:cut], x[cut:], y[cut:]


def init_weights(hidden: int, rng: np.random.Generator) -> Tree:
    """Weights drawn for a layer of rectifiers (He et al. 2015), biases of zero."""
    return {
        "w1": rng.normal(0.0, 1.0, (2, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(0.0, np.sqrt(2 / hidden), (hidden, ARMS)),
        "b2": np.zeros(ARMS),
    }


def zeros_like(model: Tree) -> Tree:
    """A tree of zeros with the shapes of ``model``: the velocity of weights at rest."""
    return {name: np.zeros_like(array) for name, array in model.items()}


def step(x: Floats, y: Labels, lr: float, momentum: float, model: Tree, velocity: Tree) -> float:
    """One step of gradient descent with momentum; the batch's mean cross entropy before it."""
    hidden, log_p = forward(model, x)
    d_scores = np.exp(log_p)
    d_scores[np.arange(len(y)), y] -= 1.0
    d_scores /= len(y)
    d_hidden = (d_scores @ model["w2"].T) * (hidden > 0)
    gradient = {
        "w1": x.T @ d_hidden,
        "b1": d_hidden.sum(axis=0),
        "w2": hidden.T @ d_scores,
        "b2": d_scores.sum(axis=0),
    }
    for name, weights in model.items():
        velocity[name] *= momentum
        velocity[name] -= lr * gradient[name]
        weights += velocity[name]
    return float(-log_p[np.arange(len(y)), y].mean())


def forward(model: Tree, x: Floats) -> tuple[Floats, Floats]:
    """The hidden layer [n, hidden], and the logarithms of the arms' probabilities [n, 3]."""
    hidden = np.maximum(x @ model["w1"] + model["b1"], 0.0)
    scores = hidden @ model["w2"] + model["b2"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def accuracy(model: Tree, x: Floats, y: Labels) -> float:
    """The share of points whose arm is recognised, 0..1."""
    _, log_p = forward(model, x)
    return float((log_p.argmax(axis=1) == y).mean())


def report(model: Tree, x: Floats, y: Labels, out: str) -> None:
    """Print how many points are recognised, and write that to ``out``."""
    text = f"{100 * accuracy(model, x, y):.1f} % of {len(y)} test points are on the right arm\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")
