"""The code of parallel_digits.yaml and parameter_server.yaml: the net of digits.py, trained by
several nodes.  What they do not exchange is in digits.py."""

from __future__ import annotations

import digits
import numpy as np
from digits import Floats, Labels, Tree


def init_weights(hidden: int, start: int) -> Tree:
    """Weights that are the same on every node, since all draw them from the same number."""
    return digits.init_weights(hidden, np.random.default_rng(start))


def average(models: list[Tree]) -> Tree:
    """The mean of the models of all trainers, weight by weight."""
    return {name: np.mean([model[name] for model in models], axis=0) for name in models[0]}


def mean(values: list[float]) -> float:
    """The mean of a number over the trainers."""
    return float(np.mean(values))


def halves(hidden: int, start: int) -> tuple[Tree, Tree]:
    """The weights as two servers hold them: those of the hidden layer, those of the output."""
    return split(init_weights(hidden, start))


def split(tree: Tree) -> tuple[Tree, Tree]:
    """A tree shaped like the model in two."""
    first = {name: tree[name] for name in ("w1", "b1")}
    return first, {name: tree[name] for name in ("w2", "b2")}


def gather(first: Tree, second: Tree) -> Tree:
    """The whole model again."""
    return {**first, **second}


def gradient(x: Floats, y: Labels, first: Tree, second: Tree) -> tuple[Tree, Tree, float]:
    """The gradient on a batch for each server, and the batch's mean cross entropy."""
    model = gather(first, second)
    hidden, log_p = digits.forward(model, x)
    to_first, to_second = split(digits.backward(model, x, y, hidden, log_p))
    return to_first, to_second, float(-log_p[np.arange(len(y)), y].mean())


def descend(gradients: list[Tree], lr: float, momentum: float, part: Tree, velocity: Tree) -> None:
    """One step with the mean of the trainers' gradients."""
    for name, weights in part.items():
        velocity[name] *= momentum
        velocity[name] -= lr * np.mean([g[name] for g in gradients], axis=0)
        weights += velocity[name]


def accuracy(first: Tree, second: Tree, x: Floats, y: Labels) -> float:
    """The share of images whose digit is recognised, 0..1."""
    return digits.accuracy(gather(first, second), x, y)
