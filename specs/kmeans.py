"""The code of kmeans.yaml: k-means (Lloyd 1982) with k-means++ as its start, in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.uint8]
Clusters = NDArray[np.intp]


def load(file: str) -> tuple[Floats, Labels]:
    """Read the images (float64 [n, 64], 0..16) and the digits they show (uint8 [n])."""
    with np.load(file, allow_pickle=False) as data:
        return data["x"].astype(np.float64), data["y"]


def plus_plus(x: Floats, clusters: int, rng: np.random.Generator) -> Floats:
    """Choose rows as the first centres, far ones more likely (Arthur & Vassilvitskii 2007)."""
    centres = x[rng.integers(len(x), size=1)]
    while len(centres) < clusters:
        far = squared_distances(x, centres).min(axis=1)
        centres = np.vstack([centres, x[rng.choice(len(x), p=far / far.sum())]])
    return centres


def assign(x: Floats, centres: Floats) -> tuple[Clusters, float]:
    """The nearest centre of each row, and the inertia: the mean squared distance to it."""
    distances = squared_distances(x, centres)
    return distances.argmin(axis=1), float(distances.min(axis=1).mean())


def move(x: Floats, nearest: Clusters, centres: Floats) -> float:
    """Move each centre to the mean of its rows, in place; how far the one that moved most went.

    A centre without rows stays where it is.
    """
    member = (nearest[:, None] == np.arange(len(centres))).astype(np.float64)
    rows = member.sum(axis=0)
    before = centres.copy()
    filled = rows > 0
    centres[filled] = (member.T @ x)[filled] / rows[filled, None]
    return float(np.linalg.norm(centres - before, axis=1).max())


def report(x: Floats, y: Labels, centres: Floats, out: str) -> None:
    """Print and write to ``out`` which digit each cluster holds, and how purely."""
    nearest, _ = assign(x, centres)
    counts = np.zeros((len(centres), 10), dtype=np.int64)
    np.add.at(counts, (nearest, y), 1)
    purity = counts.max(axis=1).sum() / counts.sum()
    lines = [f"purity {100 * purity:.1f} %: images whose digit is the main one of their cluster"]
    for cluster, row in enumerate(counts):
        lines.append(f"cluster {cluster}: {row.max():4d} of {row.sum():4d} are a {row.argmax()}")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")


def squared_distances(x: Floats, centres: Floats) -> Floats:
    """Squared Euclidean distances [rows, centres]; never below zero."""
    squares, centre_squares = (x * x).sum(axis=1), (centres * centres).sum(axis=1)
    distances: Floats = squares[:, None] - 2 * (x @ centres.T) + centre_squares
    return np.maximum(distances, 0.0, out=distances)
