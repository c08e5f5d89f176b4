"""The code of heat.yaml: the heat equation on a plate, by explicit finite differences in numpy.

Functions are plain: they take arrays and numbers, and return arrays and numbers.  What an
``in:`` hands them is read-only; what an ``update:`` hands them is changed in place.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHADES = " .:-=+*#%@"


def cold_plate(size: int) -> Floats:
    """A plate (float64 [size, size], temperatures 0..1), cold but for its upper edge."""
    plate = np.zeros((size, size))
    plate[0] = 1.0
    return plate


def spread(steps: int, rate: float, plate: Floats) -> float:
    """So many steps of the heat equation, in place; the largest change of the last one.

    The edges keep their temperature.  ``rate`` is the conductivity times the length of a step over
    the squared distance of two points.
    """
    change = 0.0
    for _ in range(steps):
        inner = plate[1:-1, 1:-1]
        flow = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:] - 4 * inner
        inner += rate * flow
        change = rate * float(np.abs(flow).max())
    return change


def draw(plate: Floats, out: str) -> None:
    """Show the plate with characters, and write it to ``out`` as a grey image (PGM)."""
    every = max(1, len(plate) // 20)
    for row in plate[::every]:
        print("".join(SHADES[int(t * (len(SHADES) - 1))] * 2 for t in row[::every]))
    grey = np.round(plate * 255).astype(np.uint8)
    head = f"P5 {grey.shape[1]} {grey.shape[0]} 255\n"
    Path(out).write_bytes(head.encode() + grey.tobytes())
