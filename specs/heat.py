"""The code of heat.yaml: the heat equation on a rod, by explicit finite differences in numpy.

The rod has length 1 and conductivity 1, and its ends are kept at 0.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WAVES = {1: 1.0, 3: 0.5}
"""The rod at the start: a sum of sines, the number of half waves to its amplitude."""


def exact(points: int, time: float) -> Floats:
    """The temperatures at ``points`` + 1 places, both ends included: each wave fades by itself."""
    x = np.linspace(0.0, 1.0, points + 1)
    u = np.zeros_like(x)
    for k, amplitude in WAVES.items():
        u += amplitude * np.exp(-((np.pi * k) ** 2) * time) * np.sin(np.pi * k * x)
    return u


def start(points: int) -> dict[str, Floats]:
    """The rod at time 0: {u [points + 1], time []}."""
    return {"u": exact(points, 0.0), "time": np.zeros(())}


def advance(points: int, ratio: float, steps: int, rod: dict[str, Floats]) -> None:
    """Take ``steps`` steps in time, in place; each is ``ratio`` times the squared distance of two
    places long.  Above a ratio of 1/2 the scheme is unstable."""
    u = rod["u"]
    for _ in range(steps):
        u[1:-1] += ratio * (u[2:] - 2 * u[1:-1] + u[:-2])
    rod["time"] += steps * ratio / points**2


def compare(points: int, rod: dict[str, Floats]) -> tuple[float, float]:
    """The largest error anywhere on the rod, and its highest temperature."""
    error = np.abs(rod["u"] - exact(points, float(rod["time"]))).max()
    return float(error), float(rod["u"].max())


def save(rod: dict[str, Floats], out: str) -> None:
    """Write the places and their temperatures to ``out``, as CSV."""
    u = rod["u"]
    table = np.column_stack([np.linspace(0.0, 1.0, len(u)), u])
    np.savetxt(Path(out), table, fmt="%.9g", delimiter=",", header="x,u", comments="")
