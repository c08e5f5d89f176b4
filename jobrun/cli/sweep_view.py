"""The live table of a sweep on a terminal: a line per run, how far each is, and the best values."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from jobrun.cli.sweep_board import Board
from jobrun.core.json_floats import SPECIAL
from jobrun.core.ranking import first_best
from jobrun.report.fitting import cut
from jobrun.report.formatting import number, plain, plural
from jobrun.report.layout import Line
from jobrun.report.terminal import Painter

__all__ = ["LiveBoard"]

_APART = 0.1
"""The least seconds between two paintings."""
_SILENT = ("RunStarted", "EpochFinished", "RunEnded", "GroupFinished", "TaskFinished")
"""Events whose lines the table stands for."""
_NAME = 16
"""The columns of a name that are shown at least."""
_STATE = 3
"""The cells before those of metrics: the name, the state and the epochs."""
_LAST = ("finished", "failed", "error", "interrupted", "killed")
_STYLES = {"running": "bold", "finished": "good", "failed": "bad", "error": "bad", "killed": "bad"}


@dataclass
class _Row:
    """A run: its state, epochs and limit, its last metrics, and the best values with epochs."""

    name: str
    state: str = "waiting"
    epoch: int = 0
    limit: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    best: dict[str, tuple[float, int]] = field(default_factory=dict)

    @property
    def epochs(self) -> str:
        return f"{self.epoch}/{self.limit}" if self.limit else str(self.epoch)


class LiveBoard(Board):
    """A board that paints a table below what the runs print.

    ``names`` are those of the runs, ``to_do`` the numbers of those that are run now, the others are
    finished; ``metrics`` maps each metric to the direction that is better.
    """

    def __init__(
        self,
        names: Sequence[str],
        to_do: Sequence[int],
        metrics: Mapping[str, str | None],
        painter: Painter,
    ) -> None:
        super().__init__(names)
        self._lock = threading.RLock()  # a signal may be reported while a line is written
        self._rows = [
            _Row(name, "waiting" if number in to_do else "finished")
            for number, name in enumerate(names)
        ]
        self._metrics = metrics
        self._painter = painter
        self._painted = 0.0

    def started(self, number: int) -> None:
        """Show that a run is running."""
        self._rows[number].state = "running"
        self._paint(force=True)

    def ended(self, number: int, code: int) -> None:
        """Keep the exit code, and show how the run ended."""
        row = self._rows[number]
        if row.state == "running":
            row.state = "killed" if code < 0 else "finished" if code == 0 else "error"
        super().ended(number, code)
        self._paint(force=True)

    def close(self) -> None:
        """Take the table away: the summary follows."""
        with self._lock:
            self._painter.end([])

    def _show(self, number: int, event: Mapping[str, Any]) -> None:
        self._note(self._rows[number], event)
        if event.get("event") in _SILENT:
            self._paint()
        else:
            super()._show(number, event)

    def _note(self, row: _Row, event: Mapping[str, Any]) -> None:
        """Keep what an event says about its run."""
        kind = event.get("event")
        if kind == "RunStarted":
            row.epoch, row.limit = event["epoch"], event["epochs"]
        elif kind == "EpochFinished":
            row.epoch = event["epoch"]
            row.metrics = {name: _number(v) for name, v in event["metrics"].items()}
            for name in event["best"]:
                row.best[name] = (row.metrics[name], row.epoch)
        elif kind == "RunEnded" and event["outcome"] != "nothing":
            row.state, row.epoch = event["outcome"], event["epoch"]

    def _write(self, text: str) -> None:
        with self._lock:
            self._painter.paint(text.splitlines(), self._lines())
            self._painted = time.monotonic()

    def _paint(self, *, force: bool = False) -> None:
        with self._lock:
            if force or time.monotonic() - self._painted >= _APART:
                self._write("")

    def _lines(self) -> list[Line]:
        """Return the headline and as many rows as the terminal has room for."""
        columns, height = self._painter.size
        rows = sorted(self._rows, key=lambda row: _order(row.state))[: max(height - 3, 1)]
        left = len(self._rows) - len(rows)
        cells = [self._cells(row) for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        widths[0] = min(widths[0], max(columns // 2, _NAME))
        shown = max(_fitting(widths, columns), _STATE)
        lines: list[Line] = [((self._headline(columns, len(widths) - shown), "bold"),)]
        for row, texts in zip(rows, cells, strict=True):
            texts[0] = cut(texts[0], widths[0])
            padded = (t.ljust(w) for t, w in zip(texts[:shown], widths, strict=False))
            text = "  ".join(padded).rstrip()
            lines.append(((text[:columns], _STYLES.get(row.state, "")),))
        if left:
            lines.append(((f"and {left} more", "dim"),))
        return lines

    def _headline(self, columns: int, left_out: int) -> str:
        done = sum(row.state in _LAST for row in self._rows)
        running = sum(row.state == "running" for row in self._rows)
        text = f"{done} of {len(self._rows)} runs done, {running} running"
        more = f", +{plural(left_out, 'metric')}" if left_out else ""
        return (text + more if len(text + more) <= columns else text)[:columns]

    def _cells(self, row: _Row) -> list[str]:
        """Return the cells of a run; * marks the best value of all runs."""
        cells = [plain(row.name), row.state, row.epochs if row.epoch or row.limit else ""]
        for name, direction in self._metrics.items():
            if direction is None:
                value = row.metrics.get(name)
                cells.append("" if value is None else f"{plain(name)} {number(value)}")
            elif name in row.best:
                best, epoch = row.best[name]
                star = "*" if row is self._winner(name, direction) else ""
                cells.append(f"best {plain(name)} {number(best)}{star} (epoch {epoch})")
            else:
                cells.append("")
        return cells

    def _winner(self, name: str, direction: str) -> _Row | None:
        """Return the run with the best value of a metric in any epoch."""
        return first_best(self._rows, lambda row: row.best.get(name, (None, 0))[0], direction)


def _fitting(widths: Sequence[int], columns: int) -> int:
    """Return how many cells of a line there is room for."""
    ends = accumulate(width + 2 for width in widths)
    return sum(end - 2 <= columns for end in ends)


def _order(state: str) -> int:
    """Return the order of states from top to bottom: what is running is seen first."""
    return 0 if state == "running" else 1 if state in _LAST else 2


def _number(value: Any) -> Any:
    """Return a metric as it was before its conversion to JSON."""
    return SPECIAL.get(value, value) if isinstance(value, str) else value
