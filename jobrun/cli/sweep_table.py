"""The text of a sweep: its runs as a table, the best of them, and what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobrun.cli.table import table, text_width
from jobrun.core.invocation import program
from jobrun.core.paths import shown
from jobrun.core.ranking import Best, first_best
from jobrun.core.text import duration
from jobrun.report.formatting import json_values, number, plain, plural
from jobrun.runs.sweepdir import value_text
from jobrun.tools.sweep_rows import STATES, SweepRow

__all__ = ["SweepTable", "sweep_summary"]

_WORDS = {"failed": "FAILED"}
_MANY = 8
"""The most names on a line."""


@dataclass(frozen=True, slots=True)
class SweepTable:
    """The state of a sweep, at the end of an attempt or at any time.

    ``sweep_dir`` is None if there is no directory yet.  ``metrics`` maps each to the direction that
    is better, ``left`` holds the directories of runs that are no longer in the matrix.
    ``exit_code`` is that of the attempt, None outside of one.
    """

    name: str
    sweep_dir: str | None
    metrics: Mapping[str, str | None]
    rows: Sequence[SweepRow]
    left: Sequence[str]
    exit_code: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as JSON values."""
        return {
            "sweep": self.name,
            "sweep_dir": self.sweep_dir,
            "exit_code": self.exit_code,
            "metrics": dict(self.metrics),
            "best": {m: r.directory for m in self.metrics if (r := self.best(m)) is not None},
            "runs": [_json(row) for row in self.rows],
            "left": list(self.left),
        }

    def best(self, metric: str) -> SweepRow | None:
        """Return the run with the best value of a metric in any epoch; the first of equal ones."""
        direction = self.metrics[metric]
        if direction is None:
            return None
        nothing: Best = (None, 0)
        return first_best(self.rows, lambda row: row.best.get(metric, nothing)[0], direction)


def _json(row: SweepRow) -> dict[str, Any]:
    found: dict[str, Any] = json_values(asdict(row))
    return found


def sweep_summary(
    ended: SweepTable, width: int | None = None, *, numbers: bool = False
) -> list[str]:
    """Return the lines of the end of a sweep; the last is what to type next, if anything.

    If a table is wider than ``width`` columns, each run has its own few lines.  ``numbers``: the
    first column has those of the members.
    """
    header, rows = _cells(ended)
    right = "l" * len(_vars(ended)) + "lr" + "r" * len(header)
    if numbers:
        cells = [[str(row.member), *own] for row, own in zip(ended.rows, rows, strict=True)]
        lines = table(["member", *header], cells, f"r{right}").splitlines()
    else:
        lines = table(header, rows, right).splitlines()
    if width is not None and max(map(text_width, lines)) > width:
        lines = _blocks(ended, header, rows, numbers=numbers)
    told = [_headline(ended), *lines, *_best_lines(ended), *_reasons(ended)]
    command = _next(ended)
    return [*told, "", command] if command else told


def _headline(ended: SweepTable) -> str:
    counts = Counter(row.state for row in ended.rows)
    states = ", ".join(f"{counts[s]} {_WORDS.get(s, s)}" for s in STATES if counts[s])
    return f"{plain(ended.name)}: {plural(len(ended.rows), 'run')}: {states}"


def _word(row: SweepRow) -> str:
    return _WORDS.get(row.state, row.state)


def _vars(ended: SweepTable) -> list[str]:
    return list(ended.rows[0].values)


def _cells(ended: SweepTable) -> tuple[list[str], list[list[str]]]:
    """Return the table: vars, state, epochs, the last metrics, the best starred, and time."""
    starred = {m: _starred(ended, m) for m in ended.metrics}
    header = [*_vars(ended), "state", "epochs", *ended.metrics, "time"]
    rows = []
    for row in ended.rows:
        texts = [plain(value_text(value)) for value in row.values.values()]
        metrics = [
            (number(row.metrics[m]) if m in row.metrics else "-")
            + ("*" if row is starred[m] else "")
            for m in ended.metrics
        ]
        time = "-" if row.elapsed is None else duration(row.elapsed)
        rows.append([*texts, _word(row), str(row.epoch), *metrics, time])
    return [plain(text) for text in header], rows


def _starred(ended: SweepTable, metric: str) -> SweepRow | None:
    """Return the run whose last value of a metric is the best."""
    direction = ended.metrics[metric]
    if direction is None:
        return None
    return first_best(ended.rows, lambda row: row.metrics.get(metric), direction)


def _blocks(
    ended: SweepTable, header: list[str], rows: list[list[str]], *, numbers: bool
) -> list[str]:
    """Return the cells of each run below each other, for a narrow terminal."""
    first = len(_vars(ended))
    lines = []
    for row, cells in zip(ended.rows, rows, strict=True):
        number = f"{row.member}  " if numbers else ""
        lines.append(f"{number}{plain(row.directory)}: {cells[first]}")
        pairs = zip(header[first + 1 :], cells[first + 1 :], strict=True)
        lines += [f"  {name} {cell}" for name, cell in pairs if cell != "-"]
    return lines


def _best_lines(ended: SweepTable) -> list[str]:
    found = [(m, row) for m in ended.metrics if (row := ended.best(m)) is not None]
    return [
        f"best {plain(m)} {number(row.best[m][0])} (epoch {row.best[m][1]}): {plain(row.directory)}"
        for m, row in found
    ]


def _reasons(ended: SweepTable) -> list[str]:
    """Return why runs did not finish, and what else is in the directory."""
    lines = [
        f"{plain(row.directory)}: {_word(row)}: {plain(row.reason).splitlines()[0]}"
        for row in ended.rows
        if row.state in ("failed", "error") and row.reason
    ]
    if ended.left:
        few = ", ".join(map(plain, ended.left[:_MANY])) + ", …" * (len(ended.left) > _MANY)
        lines.append(f"not in the matrix any more, and kept: {few}")
    return lines


def _next(ended: SweepTable) -> str:
    """Return the command to run the sweep again if work is left, else to show the best run.

    While a run is running, it is the one that follows its log.
    """
    if ended.sweep_dir is None:
        return ""
    if running := next((row for row in ended.rows if row.state == "running"), None):
        return f"{program()} logs {shlex.quote(shown(running.run_dir))} -f"
    if any(row.state in ("error", "interrupted", "waiting") for row in ended.rows):
        return f"{program()} resume {shlex.quote(shown(ended.sweep_dir))}"
    best = next((row for m in ended.metrics if (row := ended.best(m)) is not None), ended.rows[0])
    if best.checkpoint is None:
        return ""
    return f"{program()} load-blobs {shlex.quote(shown(best.run_dir))}"
