"""Runs on disk for Python and notebooks: how each went, and its metrics as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jobrun.core.late_imports import importing
from jobrun.core.text import duration
from jobrun.errors import NotFoundError, UsageError
from jobrun.report.formatting import number, value_text
from jobrun.runs.find import find_run
from jobrun.runs.find import list_runs as directories_of
from jobrun.runs.metrics_csv import column
from jobrun.runs.overview import Overview, overview, rows_of
from jobrun.runs.rundir import RunDir

__all__ = ["Metrics", "PastRun", "list_runs", "read_metrics"]

_SHOWN = 12
"""The most epochs of metrics in a notebook, the last."""


@dataclass(frozen=True)
class PastRun:
    """A run on disk, as it was when it was listed; a notebook shows it as a table.

    ``state`` is ``running``, ``interrupted``, ``error``, ``finished``, ``failed``, ``broken`` or
    ``unreadable``, and ``reason`` says why.  ``metrics`` holds the last values, ``best`` maps a
    metric to its best ``(value, epoch)``; ``seconds`` is over all attempts, and ``vars`` are those
    of the job that was run, with the run's own values in a sweep.
    """

    name: str
    path: Path
    state: str
    reason: str
    epochs: int
    seconds: float
    metrics: Mapping[str, Any]
    best: Mapping[str, tuple[Any, int]]
    tags: tuple[str, ...] = ()
    note: str = ""
    vars: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"PastRun({self.name!r}, {self.state} after {self.epochs} epochs)"

    def _repr_html_(self) -> str:
        best = ", ".join(f"{n} {number(v)} (epoch {e})" for n, (v, e) in self.best.items())
        rows = [
            ("state", f"{self.state}: {self.reason}" if self.reason else self.state),
            ("epochs", str(self.epochs)),
            ("time", duration(self.seconds)),
            ("vars", ", ".join(f"{n} {value_text(v)}" for n, v in self.vars.items())),
            ("metrics", ", ".join(f"{n} {number(v)}" for n, v in self.metrics.items())),
            ("best", best),
            ("tags", ", ".join(self.tags)),
            ("note", self.note),
        ]
        return _html(["run", self.name], [row for row in rows if row[1]])


class Metrics(Mapping[str, npt.NDArray[np.float64]]):
    """The metrics of a run: an array of float64 by name, with one value for each epoch.

    ``epoch``, ``seconds`` (of that epoch) and ``elapsed`` (up to its end) are among them; a metric
    of such a name is ``metric:seconds``, as in ``metrics.csv``.  A value that is missing is NaN.
    """

    def __init__(self, name: str, columns: Mapping[str, npt.NDArray[np.float64]]) -> None:
        self.name = name
        self._columns = dict(columns)

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"Metrics({self.name!r}, {len(self['epoch'])} epochs: {', '.join(self)})"

    def _repr_html_(self) -> str:
        count = len(self["epoch"])
        rows = range(max(0, count - _SHOWN), count)
        cells = [[number(float(self[name][row])) for name in self] for row in rows]
        return _html(list(self), cells)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with the epochs as its index.

        Raises UsageError if pandas is not installed.
        """
        try:
            with importing():
                import pandas
        except ImportError as error:
            hint = "pip install pandas; without it, read the arrays by name"
            raise UsageError("a DataFrame needs the package pandas", hint=hint) from error
        frame = pandas.DataFrame(self._columns)
        return frame.astype({"epoch": int}).set_index("epoch")


def list_runs(runs_dir: str | os.PathLike[str] = "runs") -> list[PastRun]:
    """Return the runs of a directory, the newest first; those of sweeps are ``SWEEP/COMBINATION``.

    Raises NotFoundError if the directory cannot be read.
    """
    views = [overview(run) for run in directories_of(runs_dir)]
    return [_past(view) for view in sorted(views, key=lambda v: v.created, reverse=True)]


def read_metrics(run: str | os.PathLike[str] | PastRun) -> Metrics:
    """Return the metrics of a run, epoch by epoch.

    ``run`` is a directory, a run of ``list_runs``, or what the commands take in ``./runs``: a name,
    a spec, ``@latest``, ``@best``.  Raises NotFoundError if there is no such run.
    """
    path = run.path if isinstance(run, PastRun) else Path(run)
    found = RunDir(path)
    if not found.is_run():
        if isinstance(run, PastRun):
            raise NotFoundError("the run is gone", where=str(path))
        found = find_run("runs", os.fspath(run))
    rows = rows_of(found)
    names = dict.fromkeys(name for row in rows for name in row.metrics)
    columns = {
        "epoch": np.array([row.epoch for row in rows], np.float64),
        "seconds": _array([row.seconds for row in rows]),
        "elapsed": _array([row.elapsed for row in rows]),
        **{column(name): _array([row.metrics.get(name) for row in rows]) for name in names},
    }
    return Metrics(found.name, columns)


def _array(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _past(view: Overview) -> PastRun:
    return PastRun(
        name=view.name,
        path=view.path,
        state=view.state,
        reason=view.reason,
        epochs=view.epoch,
        seconds=view.elapsed,
        metrics=view.metrics,
        best=view.best,
        tags=view.labels.tags,
        note=view.labels.note,
        vars=view.vars,
    )


def _html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in which all text is escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
