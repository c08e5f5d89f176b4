"""The code of kmeans.yaml: k-means (Lloyd 1982) with k-means++ as its start, in numpy.

Functions are plain: they take arrays and numbers, and return arrays and numbers.  What an
``in:`` hands them is read-only; what an ``update:`` hands them is changed in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Clusters = NDArray[np.intp]


def make_clouds(clouds: int, rows: int, rng: np.random.Generator) -> Floats:
    """Points (float64 [rows, 2]) around as many places as there are clouds."""
    places = rng.uniform(-10.0, 10.0, (clouds, 2))
    return places[np.arange(rows) % clouds] + rng.normal(0.0, 1.0, (rows, 2))


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
    before = centres.copy()
    for cluster in range(len(centres)):
        own = x[nearest == cluster]
        if len(own):
            centres[cluster] = own.mean(axis=0)
    return float(np.linalg.norm(centres - before, axis=1).max())


def report(x: Floats, centres: Floats, out: str) -> None:
    """Print where the centres are and how many rows each has; write that to ``out``."""
    nearest, inertia = assign(x, centres)
    lines = [f"mean squared distance to the nearest centre {inertia:.3f}"]
    for cluster, (a, b) in enumerate(centres):
        lines.append(f"centre {cluster}: ({a:7.3f}, {b:7.3f}), {(nearest == cluster).sum()} rows")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    Path(out).write_text(text, encoding="utf-8")


def squared_distances(x: Floats, centres: Floats) -> Floats:
    """Squared Euclidean distances [rows, centres]."""
    differences = x[:, None, :] - centres
    distances: Floats = (differences * differences).sum(axis=2)
    return distances
