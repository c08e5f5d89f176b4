"""The text of a sweep: its runs as a table, the best of them, and what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobrun.cli.table import fitted
from jobrun.core.invocation import program
from jobrun.core.paths import shown
from jobrun.core.ranking import Best, first_best
from jobrun.core.text import duration
from jobrun.report.fitting import broken
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
    is better, ``best_by`` is the one by which a checkpoint is the best, ``left`` holds the
    directories of runs that are no longer in the matrix.  ``exit_code`` is that of the attempt,
    None outside of one.
    """

    name: str
    sweep_dir: str | None
    metrics: Mapping[str, str | None]
    rows: Sequence[SweepRow]
    left: Sequence[str]
    exit_code: int | None = None
    best_by: str | None = None

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

    If the table is wider than ``width`` columns, each run has its own few lines.  ``numbers``: the
    first column has those of the members.
    """
    runs = _table(ended, width, numbers=numbers)
    notes = (*_best_lines(ended), *_reasons(ended))
    told = [*broken(_headline(ended), width), *runs]
    told += [part for note in notes for part in broken(note, width, "  ")]
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


def _table(ended: SweepTable, width: int | None, *, numbers: bool) -> list[str]:
    """Return the runs: vars, state, epochs, the last metrics, the best values of all, and time.

    Where there is no room, the last values are left out first, then other metrics.
    """
    ranked = [m for m, direction in ended.metrics.items() if direction is not None]
    winners = {m: ended.best(m) for m in ranked}
    names = [*(["member"] if numbers else []), *_vars(ended)]
    header = [*names, "state", "epochs", *ended.metrics, *(f"best {m}" for m in ranked), "time"]
    rows = []
    for row in ended.rows:
        variables = [plain(value_text(value)) for value in row.values.values()]
        texts = [*([str(row.member)] if numbers else []), *variables]
        values = [number(row.metrics[m]) if m in row.metrics else "-" for m in ended.metrics]
        top = [_best(row, m) + "*" * (row is winners[m]) for m in ranked]
        time = "-" if row.elapsed is None else duration(row.elapsed)
        rows.append([*texts, _word(row), str(row.epoch), *values, *top, time])
    first = len(names) + 2
    last = {first + n: m for n, m in enumerate(ended.metrics)}
    best = {first + len(last) + n: m for n, m in enumerate(ranked)}
    few = [n for n, m in last.items() if m not in winners]
    spare = [n for n, m in last.items() if m in winners]
    spare += reversed([*best, *few])
    right = "r" * numbers + "l" * len(_vars(ended)) + "lr" + "r" * len(header)
    made = fitted([*map(plain, header)], rows, right, width=width, spare=spare)
    kept = {m for n, m in (*last.items(), *best.items()) if n not in made.left_out}
    missing = len(ended.metrics) - len(kept)
    more = f"+{plural(missing, 'metric')}: {program()} runs --columns"
    return [*made.text.splitlines(), *(broken(more, width) if missing else [])]


def _best(row: SweepRow, metric: str) -> str:
    return number(row.best[metric][0]) if metric in row.best else "-"


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
    metrics = sorted(ended.metrics, key=lambda metric: metric != ended.best_by)
    best = next((row for m in metrics if (row := ended.best(m)) is not None), ended.rows[0])
    if best.checkpoint is None:
        return ""
    return f"{program()} load-blobs {shlex.quote(shown(best.run_dir))}"
