"""The code of digits.yaml: a multilayer perceptron with one hidden layer, in numpy.

Functions are plain: they take arrays and numbers, and return arrays and numbers.  What an
``in:`` hands them is read-only; what an ``update:`` hands them is changed in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]
Tree = dict[str, Floats]
"""Arrays by name.  The model is {w1 [64, hidden], b1 [hidden], w2 [hidden, 10], b2 [10]}."""

PIXELS, CLASSES = 64, 10


def load(file: str) -> tuple[NDArray[np.uint8], Labels, NDArray[np.uint8], Labels]:
    """Read the images (uint8 [n, 64], 0..16) and their digits; of every 50 the last 10 are test."""
    with np.load(file, allow_pickle=False) as data:
        x, y = data["x"], data["y"]
    test = np.arange(len(y)) // 10 % 5 == 4
    return x[~test], y[~test], x[test], y[test]


def init_weights(hidden: int, rng: np.random.Generator) -> Tree:
    """Weights drawn for a layer of rectifiers (He et al. 2015), biases of zero."""
    return {
        "w1": rng.normal(0.0, np.sqrt(2 / PIXELS), (PIXELS, hidden)),
        "b1": np.zeros(hidden),
        "w2": rng.normal(0.0, np.sqrt(2 / hidden), (hidden, CLASSES)),
        "b2": np.zeros(CLASSES),
    }


def zeros_like(model: Tree) -> Tree:
    """A tree of zeros with the shapes of ``model``: the velocity of weights at rest."""
    return {name: np.zeros_like(array) for name, array in model.items()}


def normalize(x: NDArray[np.uint8]) -> Floats:
    """Pixels from 0..16 to 0..1."""
    return x / 16.0


def add_noise(x: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """The batch with normal noise of deviation ``noise``, which keeps the net from learning
    single images by heart (Bishop 1995)."""
    return x + rng.normal(0.0, noise, x.shape)


def step(x: Floats, y: Labels, lr: float, momentum: float, model: Tree, velocity: Tree) -> float:
    """One step of gradient descent with momentum; the batch's mean cross entropy before it."""
    hidden, log_p = forward(model, x)
    gradient = backward(model, x, y, hidden, log_p)
    for name, weights in model.items():
        velocity[name] *= momentum
        velocity[name] -= lr * gradient[name]
        weights += velocity[name]
    return float(-log_p[np.arange(len(y)), y].mean())


def forward(model: Tree, x: Floats) -> tuple[Floats, Floats]:
    """The hidden layer [n, hidden], and the logarithms of the digits' probabilities [n, 10]."""
    hidden = np.maximum(x @ model["w1"] + model["b1"], 0.0)
    scores = hidden @ model["w2"] + model["b2"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def backward(model: Tree, x: Floats, y: Labels, hidden: Floats, log_p: Floats) -> Tree:
    """The gradient of the mean cross entropy, with the names and shapes of ``model``."""
    d_scores = np.exp(log_p)
    d_scores[np.arange(len(y)), y] -= 1.0
    d_scores /= len(y)
    d_hidden = (d_scores @ model["w2"].T) * (hidden > 0)
    return {
        "w1": x.T @ d_hidden,
        "b1": d_hidden.sum(axis=0),
        "w2": hidden.T @ d_scores,
        "b2": d_scores.sum(axis=0),
    }


def predict(model: Tree, x: NDArray[np.uint8]) -> NDArray[np.intp]:
    """The likeliest digit of each image."""
    _, log_p = forward(model, normalize(x))
    likeliest: NDArray[np.intp] = log_p.argmax(axis=1)
    return likeliest


def accuracy(model: Tree, x: NDArray[np.uint8], y: Labels) -> float:
    """The share of images whose digit is recognised, 0..1."""
    return float((predict(model, x) == y).mean())


def report(model: Tree, x: NDArray[np.uint8], y: Labels, out: str) -> None:
    """Print how well each digit is recognised; write that and the confusions to ``out``."""
    confusion = np.zeros((CLASSES, CLASSES), dtype=np.int64)
    np.add.at(confusion, (y, predict(model, x)), 1)
    right, images = np.diag(confusion), confusion.sum(axis=1)
    summary = (
        f"{right.sum()} of {images.sum()} test images recognised"
        f" ({100 * right.sum() / images.sum():.1f} %)\n"
        f"digit  {row(np.arange(CLASSES))}\n"
        f"images {row(images)}\n"
        f"right  {row(right)}\n"
    )
    print(summary, end="")
    table = "".join(f"     {digit} {row(counts)}\n" for digit, counts in enumerate(confusion))
    heading = f"\ntaken for:\n digit {row(np.arange(CLASSES))}\n"
    Path(out).write_text(summary + heading + table, encoding="utf-8")


def row(numbers: NDArray[np.int64]) -> str:
    """Whole numbers as columns of four characters."""
    return "".join(f"{number:4d}" for number in numbers)
