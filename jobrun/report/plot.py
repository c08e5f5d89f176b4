"""Metrics of runs as an image, by matplotlib (the extra ``jobrun[plot]``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobrun.core.late_imports import importing
from jobrun.errors import UsageError
from jobrun.report.chart import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "draw", "formats"]

_COLORS = ("#2a6fbb", "#e1812c", "#3a923a", "#c03d3e", "#8d69b8", "#84584e", "#d684bd", "#7f7f7f")
_GREY = "#555555"
_MANY = 60
"""Number of epochs up to which each one has a dot."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric: a line per run, the best of each run as (epoch, value), and a remark."""

    metric: str
    series: Sequence[Series]
    best: Mapping[str, tuple[float, float]]
    note: str = ""


def formats() -> tuple[str, ...]:
    """Return the file endings of images."""
    return (".png", ".svg", ".pdf")


def draw(panels: Sequence[Panel], path: Path, ending: str, *, log: bool = False) -> None:
    """Draw panels below each other into the file ``path``, in the format of ``ending``.

    Raises UsageError, naming the extra, if matplotlib is not installed.
    """
    try:
        with importing():
            from matplotlib import rc_context
            from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install 'jobrun[plot]'; --plot draws in the terminal without it"
        raise UsageError("pictures need the library matplotlib", hint=hint) from error
    settings: dict[Any, Any] = {
        "svg.hashsalt": "jobrun",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.edgecolor": _GREY,
        "xtick.color": _GREY,
        "ytick.color": _GREY,
        "axes.labelcolor": _GREY,
    }
    with rc_context(settings):
        figure = Figure(figsize=(7, 0.5 + 2.2 * len(panels)), dpi=150, layout="constrained")
        _fill(figure, panels, log)
        dated = {} if ending == ".png" else {"Date" if ending == ".svg" else "CreationDate": None}
        figure.savefig(path, format=ending[1:], metadata=dated)


def _fill(figure: Figure, panels: Sequence[Panel], log: bool) -> None:
    with importing():
        from matplotlib.ticker import MaxNLocator

    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        _lines(axes, panel)
        axes.set_title(panel.metric, loc="left", fontweight="bold").set_parse_math(False)
        axes.set_title(panel.note, loc="right", fontsize=8, color=_GREY).set_parse_math(False)
        axes.grid(True, color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.margins(x=0.02)
        axes.spines[["top", "right"]].set_visible(False)
        if log:
            _make_log(axes)
    last = grid[-1, 0]
    last.set_xlabel("epoch")
    last.xaxis.set_major_locator(MaxNLocator(integer=True))
    names = [series.name for series in panels[0].series]
    if len(names) > 1:
        handles = grid[0, 0].get_lines()[: len(names)]
        columns = min(len(names), 4)
        legend = figure.legend(handles, names, loc="outside upper right", ncols=columns)
        legend.set_frame_on(False)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _make_log(axes: Axes) -> None:
    """Set a logarithmic scale with plain numbers, 2 and 5 too if there is room for them."""
    with importing():
        from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_yscale("log", nonpositive="mask")
    low, high = axes.get_ylim()
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(plain)
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0) if high < 1e3 * low else (1.0,)))
    axes.yaxis.set_minor_formatter(plain)


def _lines(axes: Axes, panel: Panel) -> None:
    for number, series in enumerate(panel.series):
        color = _COLORS[number % len(_COLORS)]
        x = [x for x, _ in series.points]
        y = [y if math.isfinite(y) else math.nan for _, y in series.points]
        dots = "o" if len(x) <= _MANY else ""
        axes.plot(x, y, dots + "-", color=color, linewidth=1.5, markersize=2.5)
    for number, series in enumerate(panel.series):
        if (best := panel.best.get(series.name)) is not None:
            color = _COLORS[number % len(_COLORS)]
            axes.plot(*best, "o", color=color, markersize=8, fillstyle="none")
