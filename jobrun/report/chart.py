"""Line charts as text: braille dots, or letters if dots cannot be shown or told apart.

A gap in a line is a value that is not finite, or on a logarithmic scale not positive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Look", "Series", "chart"]

Point = tuple[float, float]
_COLORS = (36, 33, 35, 32, 34, 31)
_MOST = 1e300
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The dots of a braille character: two columns of four."""


@dataclass(frozen=True, slots=True)
class Series:
    """A named line: ``points`` are (epoch, value), with rising epochs."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a chart: total columns, rows of the plot, and what the terminal can show."""

    columns: int = 80
    rows: int = 12
    unicode: bool = True
    color: bool = False
    log: bool = False


def chart(title: str, series: Sequence[Series], look: Look = Look()) -> list[str]:
    """Return the lines of a chart."""
    lines = [_scaled(s.points, look.log) for s in series]
    known = [point for line in lines for point in line if point is not None]
    if not known:
        return [title, f"  no value is {'positive and finite' if look.log else 'finite'}"]
    heights = [y for _, y in known]
    values = _powers(heights, look.rows) if look.log else _steps(heights)
    ticks = [_power_text(y) if look.log else f"{y:.12g}" for y in values]
    margin = max(map(len, ticks))
    columns = max(look.columns - margin - 2, 10)
    first, last = min(x for x, _ in known), max(x for x, _ in known)
    canvas = _Canvas(look, columns, (first, last), (values[0], values[-1]), len(series) > 1)
    for number, line in enumerate(lines):
        canvas.draw(number, line)
    labels = {
        canvas.pixel(first, y)[1] // canvas.high: t for y, t in zip(values, ticks, strict=True)
    }
    tick, bar, corner, dash = "┤│└─" if look.unicode else "+|+-"
    plot = [
        f"{labels.get(row, ''):>{margin}} {tick if row in labels else bar}{text}".rstrip()
        for row, text in enumerate(canvas.rows())
    ]
    names = "   ".join(f"{canvas.mark(n)} {s.name}" for n, s in enumerate(series))
    legend = [f"  {names}"] if len(series) > 1 else []
    ends = f"{first:g}", f"{last:g}" if last > first else ""
    axis = ends[0] + "epoch".center(columns - len("".join(ends))) + ends[1]
    below = [f"{'':{margin}} {corner}{dash * columns}", f"{'':{margin}}  {axis}".rstrip()]
    return [title, *legend, *plot, *below]


def _scaled(points: Sequence[Point], log: bool) -> list[Point | None]:
    """Return the points on the scale, which ends at 1e300; None for a gap."""
    found: list[Point | None] = []
    for x, y in points:
        shown = math.isfinite(y) and (y > 0 or not log)
        y = math.log10(y) if shown and log else max(-_MOST, min(y, _MOST))
        found.append((x, y) if shown else None)
    return found


def _steps(values: Sequence[float]) -> list[float]:
    """Return a few round values that enclose ``values``."""
    low, high = min(values), max(values)
    if high - low <= max(1e-12 * max(abs(low), abs(high)), 1 / _MOST):  # they are one
        pad = abs(low) / 2 if abs(low) > 1 / _MOST else 0.5
        low, high = low - pad, high + pad
    rough = high / 4 - low / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    return [n * step for n in range(math.floor(low / step), math.ceil(high / step) + 1)]


def _powers(values: Sequence[float], rows: int) -> list[float]:
    """Return the logarithms of powers of ten, or of 1, 2 and 5 times them, enclosing ``values``."""
    low, high = math.floor(min(values)), math.ceil(max(values)) + 1
    every = max(1, math.ceil(2 * (high - low) / rows))
    some = [*range(low, high + every, every)]
    fine = [p + math.log10(f) for p in range(low, high) for f in (1, 2, 5)]
    found = fine if high - low < 4 else [float(p) for p in some]
    begin = max(i for i, v in enumerate(found) if v <= min(values))
    end = next(i for i, v in enumerate(found) if v >= max(values) and i > begin)
    return found[begin : end + 1]


def _power_text(y: float) -> str:
    """Return 10 to the power of ``y``, which is 1, 2 or 5 times a power of ten."""
    power = math.floor(y + 1e-9)
    lead = round(10 ** (y - power))
    return f"{lead * 10.0**power:.12g}" if abs(power) < 6 else f"{lead}e{power}"


class _Canvas:
    """The cells of a plot: braille dots with the colour of the line drawn last, or letters."""

    def __init__(self, look: Look, columns: int, x: Point, y: Point, several: bool) -> None:
        self._dots = look.unicode and (look.color or not several)
        self._wide, self.high = (2, 4) if self._dots else (1, 1)
        self._look, self._columns, self._x, self._y, self._several = look, columns, x, y, several
        self._cells: dict[Point, tuple[int, int]] = {}

    def pixel(self, x: float, y: float) -> tuple[int, int]:
        """Return the pixel of a point, from the left and from the top."""
        (left, right), (low, high) = self._x, self._y
        across = (x - left) / (right - left) if right > left else 0.5
        down = 1 - (y / 2 - low / 2) / (high / 2 - low / 2)  # halves: a difference may be too large
        width, height = self._columns * self._wide, self._look.rows * self.high
        return round(across * (width - 1)), round(down * (height - 1))

    def draw(self, number: int, line: Sequence[Point | None]) -> None:
        """Draw a line; a point between two gaps is a dot."""
        before: tuple[int, int] | None = None
        for point in line:
            here = None if point is None else self.pixel(*point)
            for x, y in _between(before or here, here) if here else ():
                at = (y // self.high, x // self._wide)
                bits = self._cells.get(at, (0, 0))[1] | _BITS[x % 2][y % 4]
                self._cells[at] = (number, bits)
            before = here

    def rows(self) -> Iterator[str]:
        """Yield the rows of the plot."""
        for row in range(self._look.rows):
            cells = (self._cells.get((row, column)) for column in range(self._columns))
            yield "".join(self.mark(*cell) if cell else " " for cell in cells).rstrip()

    def mark(self, number: int, bits: int = 0x12) -> str:
        """Return the character that a line is drawn with."""
        letter = chr(ord("a") + number % 26) if self._several else "*"
        text = chr(0x2800 + bits) if self._dots else letter
        color = _COLORS[number % len(_COLORS)]
        return f"\x1b[{color}m{text}\x1b[0m" if self._look.color else text


def _between(a: tuple[int, int], b: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the pixels of a straight line."""
    (ax, ay), (bx, by) = a, b
    steps = max(abs(bx - ax), abs(by - ay), 1)
    for i in range(steps + 1):
        yield ax + round((bx - ax) * i / steps), ay + round((by - ay) * i / steps)
