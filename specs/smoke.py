"""The code of smoke.yaml: a straight line through noisy points, by gradient descent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SLOPE, OFFSET = 3.0, -2.0


def make_points(count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Points (x in 0..100, y) near the line y = SLOPE * x / 100 + OFFSET."""
    x = rng.uniform(0.0, 100.0, count)
    return x, SLOPE * x / 100 + OFFSET + rng.normal(0.0, 0.01, count)


def make_line(rng: np.random.Generator) -> dict[str, Floats]:
    """A line to start from: {slope, offset}, each float64 [1]."""
    return {"slope": rng.normal(size=1), "offset": np.zeros(1)}


def percent_to_share(x: Floats) -> Floats:
    """From 0..100 to 0..1."""
    return x / 100


def step(x: Floats, y: Floats, lr: float, line: dict[str, Floats]) -> float:
    """One step of gradient descent, in place; the mean squared error of the batch before it."""
    error = line["slope"] * x + line["offset"] - y
    line["slope"] -= lr * 2 * (error * x).mean()
    line["offset"] -= lr * 2 * error.mean()
    return float((error * error).mean())


def miss(line: dict[str, Floats]) -> float:
    """How far the line is from the true one: the larger of both differences."""
    return float(max(abs(line["slope"][0] - SLOPE), abs(line["offset"][0] - OFFSET)))


def gather(line: dict[str, Floats]) -> Floats:
    """The line as one array, [slope, offset]."""
    return np.concatenate([line["slope"], line["offset"]])


def check(result: Floats, tolerance: float) -> None:
    """Say what was found; raises ValueError if it is not the line the points came from."""
    slope, offset = result
    print(f"y = {slope:.3f} x {offset:+.3f}")
    if max(abs(slope - SLOPE), abs(offset - OFFSET)) >= tolerance:
        raise ValueError(f"the line should be y = {SLOPE} x {OFFSET:+}, within {tolerance}")
