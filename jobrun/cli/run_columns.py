"""The columns of the table of ``jobrun runs``: of each run, of vars and of metrics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobrun.core.plain_text import plain

if TYPE_CHECKING:
    from jobrun.runs.overview import Overview

__all__ = ["NOTE_WIDTH", "NOT_SHOWN", "RunColumn", "column_names", "known_columns"]

NOT_SHOWN = ("broken", "unreadable")
"""The states of runs of which only the reason is known."""
NOTE_WIDTH = 30
"""The characters of a note that are shown at least; more where there is room."""


@dataclass(frozen=True)
class RunColumn:
    """A column: its name in --columns, its title, whether it holds numbers, its cell.

    ``metric`` names the metric whose last values it has, or with ``best`` whose best ones.
    """

    name: str
    title: str
    number: bool
    cell: Callable[[Overview], str]
    metric: str | None = None
    best: bool = False


def known_columns(views: Sequence[Overview]) -> list[RunColumn]:
    """Return every column that there is, in the order of the table."""
    from jobrun.core.text import duration, size

    def known(cell: Callable[[Overview], str]) -> Callable[[Overview], str]:
        return lambda view: "" if view.state in NOT_SHOWN else cell(view)

    first = [
        RunColumn("name", "name", False, lambda v: plain(v.name)),
        RunColumn("state", "state", False, lambda v: v.state),
        RunColumn("epochs", "epochs", True, known(_epochs)),
    ]
    last = [
        RunColumn("checkpoints", "checkpoints", True, known(lambda v: str(v.checkpoints))),
        RunColumn("size", "checkpoint size", True, known(lambda v: size(v.bytes or 0))),
        RunColumn("attempts", "attempts", True, known(lambda v: str(v.attempts))),
        RunColumn("started", "started (UTC)", False, lambda v: v.created[:19].replace("T", " ")),
        RunColumn("time", "time", True, known(lambda v: duration(v.elapsed))),
        RunColumn("spec", "spec", False, lambda v: plain(v.spec or "")),
        RunColumn("tags", "tags", False, lambda v: ",".join(v.labels.tags)),
        RunColumn("note", "note", False, lambda v: plain(v.labels.note)),
    ]
    own = {column.name for column in (*first, *last)}
    variables = [_of_var(name, views) for name in dict.fromkeys(n for v in views for n in v.vars)]
    metrics = dict.fromkeys(name for v in views for name in v.directions)
    return [*first, *variables, *(c for name in metrics for c in _of_metric(name, own)), *last]


def column_names(views: Sequence[Overview]) -> list[str]:
    """Return the names of all columns that there are for these runs."""
    return [column.name for column in known_columns(views)]


def _of_var(name: str, views: Sequence[Overview]) -> RunColumn:
    """Return the column of a var."""
    from jobrun.report.fitting import cut
    from jobrun.report.formatting import value_text

    def cell(view: Overview) -> str:
        if name not in view.vars:
            return ""
        value = view.vars[name]
        return cut(plain(value) if isinstance(value, str) else value_text(value), NOTE_WIDTH)

    numbers = all(isinstance(v.vars.get(name, 0), int | float) for v in views)
    return RunColumn(f"vars.{name}", plain(name), numbers, cell)


def _of_metric(metric: str, others: Collection[str]) -> list[RunColumn]:
    """Return the columns of the last value of a metric, and of the best."""
    from jobrun.report.formatting import number
    from jobrun.runs.metrics_csv import column

    def last(view: Overview) -> str:
        return number(view.metrics[metric]) if metric in view.metrics else ""

    def best(view: Overview) -> str:
        return number(view.best[metric][0]) if metric in view.best else ""

    name = column(metric, others)
    own = RunColumn(name, plain(name), True, last, metric)
    return [own, RunColumn(f"best:{metric}", "best", True, best, metric, best=True)]


def _epochs(view: Overview) -> str:
    limit = f"/{view.limit}" if view.limit and view.state not in ("finished", "failed") else ""
    return f"{view.epoch}{limit}"
