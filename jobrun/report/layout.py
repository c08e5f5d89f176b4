"""The rows of the live view for a terminal of any size: the least important go first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from jobrun.core.text import duration, size
from jobrun.report.formatting import number, plain
from jobrun.report.screen import Metric, PipeProgress, Screen

__all__ = ["ASCII", "UNICODE", "Glyphs", "Line", "Piece", "layout", "one_line"]

Piece = tuple[str, str]
"""A text and its style: an empty one, ``bold``, ``dim``, ``good``, ``bad`` or ``bar``."""
Line = tuple[Piece, ...]

_NARROW = 60
_SOON = 0.3
"""Seconds after which a save is shown: shorter ones would only flicker."""
_STAYS = 3.0
"""Seconds that the row of running tasks stays after the last one, so that it does not flicker."""
_METRIC_LINES = 6
_PIPE_LINES = 4
_BAR_LINES = 4


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that a terminal may not have."""

    full: str
    rest: str
    up: str
    down: str
    cut: str
    dot: str


UNICODE = Glyphs("━", "─", "▲", "▼", "…", " · ")
ASCII = Glyphs("#", "-", "^", "v", "~", ", ")


@dataclass(frozen=True, slots=True)
class _Row:
    """A line, and its rank: those of 0 are dropped last."""

    line: Line
    rank: int


def layout(
    screen: Screen,
    now: float,
    columns: int,
    rows: int,
    glyphs: Glyphs,
    bars: Sequence[str] = (),
) -> list[Line]:
    """Return at most ``rows`` lines of less than ``columns`` cells; the first is empty if it fits.

    ``bars`` are progress bars that tasks print.  The empty line is where the output of a program
    lands that writes to the terminal directly.
    """
    width = max(columns - 1, 1)
    found = [
        _Row((), 7),
        _Row(_headline(screen, now, width, glyphs), 0),
        *_pipes(screen, width, glyphs),
        *_running(screen, now, width, glyphs),
        *_ranked([((one_line(bar), ""),) for bar in bars[-_BAR_LINES:]], 3, 5),
        *_metrics(screen, width, glyphs),
        *_progress_texts(screen, now, width, glyphs),
        *_saves(screen, now, width, glyphs),
    ]
    while len(found) > max(rows, 1):
        least = max(row.rank for row in found)
        del found[max(i for i, row in enumerate(found) if row.rank == least)]
    return [_cut(row.line, width, glyphs) for row in found]


def one_line(text: object) -> str:
    """Return a user's text on one line, without control characters."""
    return plain(text).replace("\n", " ").replace("\t", " ")


def _headline(screen: Screen, now: float, width: int, glyphs: Glyphs) -> Line:
    """Return the job, the epoch, a bar if there is room, and the time left."""
    phase = screen.phase()
    of = f"/{screen.epochs}" if screen.epochs else ""
    where = f"epoch {screen.epoch}{of}" if not phase or screen.epoch else ""
    if screen.stopping:
        phase = f"{screen.stopping}: stopping"
    where = "  ".join(part for part in (where, phase) if part)
    time = _time(screen, now)
    name = one_line(screen.job)
    if cell_len(name) > width // 3:
        name = set_cell_size(name, max(width // 3 - 1, 1)).rstrip() + glyphs.cut
    head: list[Piece] = [(name, "bold"), (f"  {where}", "")]
    fraction = screen.fraction(now)
    room = width - cell_len(name) - len(where) - len(time) - 10
    if fraction is not None and room >= 5 and not screen.stopping:
        head += [("  ", ""), *_bar(fraction, min(room, 30), glyphs), (f" {fraction:4.0%}", "")]
    return (*head, (f"  {time}", "dim"))


def _time(screen: Screen, now: float) -> str:
    if screen.phase():
        return _seconds(screen.phase_seconds(now))
    left = screen.left(now)
    if left is None:
        return _seconds(screen.elapsed(now))
    return f"{'at most ' if screen.may_end_earlier else ''}{_seconds(left)} left"


def _seconds(seconds: float) -> str:
    """Return seconds without tenths, which would only flicker."""
    return duration(seconds) if seconds >= 59.5 else f"{seconds:.0f} s"


def _bar(fraction: float, width: int, glyphs: Glyphs) -> list[Piece]:
    full = min(width, int(fraction * width + 1e-9))
    return [(glyphs.full * full, "bar"), (glyphs.rest * (width - full), "dim")]


def _pipes(screen: Screen, width: int, glyphs: Glyphs) -> list[_Row]:
    names = [task if node == "main" else f"{node}:{task}" for task, node in screen.pipes]
    shown = list(zip(names, screen.pipes.values(), strict=True))
    rows = [
        _Row(_pipe(one_line(name), pipe, width, glyphs), 2 if number == 0 else 4)
        for number, (name, pipe) in enumerate(shown[:_PIPE_LINES])
    ]
    if len(shown) > _PIPE_LINES:
        text = f"and {len(shown) - _PIPE_LINES} more"
        rows.append(_Row((*_label("", width), (text, "dim")), 5))
    return rows


def _pipe(name: str, pipe: PipeProgress, width: int, glyphs: Glyphs) -> Line:
    batches, rows = pipe.rates
    of = f"/{pipe.total}" if pipe.total else ""
    pieces = [*_label(name, width)]
    if pipe.fraction is not None and width >= _NARROW:
        pieces += [*_bar(pipe.fraction, 16, glyphs), ("  ", "")]
    pieces.append((f"batch {pipe.done}{of}", ""))
    if batches:
        pieces.append((f"  {_rate(batches)}/s", ""))
    if rows:
        pieces.append((f"  {_rate(rows)} rows/s", "dim"))
    return tuple(pieces)


def _rate(value: float) -> str:
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 10 * factor:
            return f"{value / factor:.3g}{unit}" if value < 999.5 * factor else f"{value:.0f}"
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _running(screen: Screen, now: float, width: int, glyphs: Glyphs) -> list[_Row]:
    items: list[Line] = []
    tasks = screen.running_now(now)
    for task, seconds in tasks:
        part = screen.fractions.get(task)
        done = "" if part is None else f"{part:.0%}, "
        items.append(((one_line(task), ""), (f" {done}{_seconds(seconds)}", "dim")))
    known = {task for task, _ in tasks}
    for task, part in screen.fractions.items():
        if task not in known:
            items.append(((one_line(task), ""), (f" {part:.0%}", "dim")))
    if screen.count > len(screen.running):
        items.append(((f"and {screen.count - len(screen.running)} more", "dim"),))
    stays = now - screen.running_shown < _STAYS and screen.group and width >= _NARROW
    if not items and stays:
        items.append((("-", "dim"),))
    return _ranked(_flow("running", items, width, glyphs)[:2], 3, 5)


def _metrics(screen: Screen, width: int, glyphs: Glyphs) -> list[_Row]:
    items = [_metric(metric, glyphs) for metric in screen.metrics]
    lines = _flow("metrics", items, width, glyphs, apart="   ")
    return _ranked(lines[:_METRIC_LINES], 1, 5)


def _metric(metric: Metric, glyphs: Glyphs) -> Line:
    value = f"{one_line(metric.name)} {number(metric.value)}"
    if not metric.change:
        return ((value, ""),)
    arrow = {1: glyphs.up, -1: glyphs.down, 0: "="}[metric.sign]
    if metric.change == "better":
        return ((value, ""), (f" {arrow}", "good"))
    best = f" best {number(metric.best)} (epoch {metric.best_epoch})"
    return ((value, ""), (f" {arrow}", "bad" if metric.change == "worse" else "dim"), (best, "dim"))


def _progress_texts(screen: Screen, now: float, width: int, glyphs: Glyphs) -> list[_Row]:
    items: list[Line] = [((one_line(g), ""),) for g in screen.progress_texts_now(now)]
    return _ranked(_flow("stop", items, width, glyphs)[:2], 4, 6)


def _saves(screen: Screen, now: float, width: int, glyphs: Glyphs) -> list[_Row]:
    items: list[Line] = []
    if (saving := screen.saving) is not None and now - screen.saving_since > _SOON:
        seconds = _seconds(now - screen.saving_since)
        items.append(((f"saving checkpoint_{saving.id}", "bar"), (f" {seconds}", "dim")))
    if (saved := screen.saved) is not None:
        place = one_line(saved.place) or f"epoch {saved.epoch}"
        what = f" ({place}, {size(saved.bytes)}, {duration(saved.seconds)})"
        items.append(((f"checkpoint_{saved.id}", ""), (what, "dim")))
    if screen.waited >= 1:
        items.append(((f"waited {_seconds(screen.waited)} in all", "dim"),))
    return _ranked(_flow("saved", items, width, glyphs)[:2], 4, 6)


def _ranked(lines: Sequence[Line], first: int, others: int) -> list[_Row]:
    return [_Row(line, others if number else first) for number, line in enumerate(lines)]


def _label(text: str, width: int) -> tuple[Piece, ...]:
    """Return the label of a line, in a column of its own if there is room for one."""
    if width < _NARROW:
        return ((f" {text}  " if text else " ", "dim"),)
    return ((f"  {set_cell_size(text, max(9, cell_len(text)))}  ", "dim"),)


def _flow(
    label: str, items: Iterable[Line], width: int, glyphs: Glyphs, apart: str | None = None
) -> list[Line]:
    """Return items on as many lines as they need, none broken over two."""
    apart = glyphs.dot if apart is None else apart
    lines: list[list[Piece]] = []
    used = 0
    for item in items:
        long = sum(cell_len(text) for text, _ in item)
        if not lines or used + len(apart) + long > width:
            name = label if not lines and width >= _NARROW else ""
            lines.append([*_label(name, width)])
            used = cell_len(lines[-1][0][0])
        else:
            lines[-1].append((apart, "dim"))
            used += len(apart)
        lines[-1] += item
        used += long
    return [tuple(line) for line in lines]


def _cut(line: Line, width: int, glyphs: Glyphs) -> Line:
    """Return a line that fits, with a mark where it was cut."""
    left = width
    kept: list[Piece] = []
    for place, (text, style) in enumerate(line):
        long = cell_len(text)
        rest = any(t for t, _ in line[place + 1 :])
        if long < left or (long == left and not rest):
            kept.append((text, style))
            left -= long
            continue
        kept.append((set_cell_size(text, max(left - 1, 0)) + glyphs.cut, style))
        break
    return tuple(kept)
