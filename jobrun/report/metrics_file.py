"""``metrics.csv``: one row per epoch of this history, derived from ``events.jsonl``.

It is replaced at each start, and loses the epochs that a rewind or a crash has undone once the
checkpoint before them is loaded: until then they are in the history.  It gets a row after each
epoch; rows that a full disk refuses are written with the next one.  An attempt that runs
only ``exit`` again does not change it.  Each save makes both files durable before the checkpoint
is, so that a power cut loses no row of an epoch that is in a checkpoint.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobrun.core.events import CheckpointLoaded, EpochFinished, Event, RunStarted, RunWentBack
from jobrun.report.append_file import Appender
from jobrun.report.events_file import read_events, undoes
from jobrun.report.formatting import json_values
from jobrun.runs.metrics_csv import FIXED, column
from jobrun.storage.fs import DEFAULT

__all__ = ["MetricsFile", "history"]

Row = dict[str, Any]


class MetricsFile:
    """A reporter that keeps ``metrics.csv`` beside the events file it is derived from."""

    name = "metrics.csv"

    def __init__(self, path: Path, events: Path) -> None:
        self._path = path
        self._events = events
        self._columns: tuple[str, ...] = FIXED
        self._started: RunStarted | None = None
        self._file: Appender | None = None
        """The file, while it is open: opening it for each row takes 25 µs."""
        self._waiting = ""
        """Rows still to be written; with ``_replaces`` they replace the content of the file."""
        self._replaces = False
        self._newest = 0
        """The last epoch in the file when it was replaced."""

    def __call__(self, event: Event) -> None:
        """Rewrite the file when a run starts, and append a row when an epoch is done."""
        if isinstance(event, RunStarted):
            if event.only:
                return
            self._started = event
            self._start(event, 0 if event.checkpoint is None else None)
        elif isinstance(event, CheckpointLoaded | RunWentBack) and self._started is not None:
            if isinstance(event, RunWentBack) or self._newest > event.epoch:
                self._start(self._started, event.epoch)
        elif isinstance(event, EpochFinished):
            row = _row(event.epoch, event.seconds, event.elapsed, event.metrics)
            self._waiting += _lines([row], self._columns)
            self._write()

    def _write(self) -> None:
        """Write the waiting rows; if that raises OSError, they wait for the next row.

        A new file replaces the old one as a whole: a crash leaves the old rows or the new ones.
        """
        if self._replaces:
            self._close()
            DEFAULT.put(str(self._path), self._waiting.encode())
        else:
            if self._file is None:
                self._file = Appender(self._path)
            self._file.append(self._waiting.encode())
        self._waiting, self._replaces = "", False

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _start(self, event: RunStarted, epoch: int | None) -> None:
        """Replace the file, without the rows after an epoch if one is given."""
        rows = [r for r in history(self._events) if epoch is None or r["epoch"] <= epoch]
        self._newest = rows[-1]["epoch"] if rows else 0
        old = (name for row in rows for name in row)
        self._columns = tuple(dict.fromkeys([*FIXED, *map(column, event.metrics), *old]))
        names = dict(zip(self._columns, self._columns, strict=True))
        self._waiting = _lines([names, *rows], self._columns)
        self._replaces = True
        self._write()

    def close(self) -> None:
        """Write the waiting rows, and make all rows durable; raises OSError for the latter."""
        if self._waiting:
            with suppress(OSError):
                self._write()
        self._close()
        if self._started is not None:
            DEFAULT.sync_file(str(self._path))


def history(events: Path) -> list[Row]:
    """Return the rows of the epochs of this history, without those that were undone later."""
    rows: dict[int, Row] = {}
    only = ""
    kinds = ("RunStarted", "CheckpointLoaded", "RunWentBack", "EpochFinished")
    for event in read_events(events, kinds):
        if event["event"] == "EpochFinished":
            _undo(rows, event["epoch"] - 1)  # also where the disk was too full to record why
            row = _row(event["epoch"], event["seconds"], event["elapsed"], event["metrics"])
            rows[event["epoch"]] = row
            continue
        if event["event"] == "RunStarted":
            only = event.get("only", "")
        if not only and undoes(event):  # else no epoch is run again
            _undo(rows, event["epoch"])
    return list(rows.values())


def _undo(rows: dict[int, Row], epoch: int) -> None:
    """Remove the rows after an epoch from rows in ascending order."""
    while rows and next(reversed(rows)) > epoch:
        rows.popitem()


def _row(epoch: int, seconds: float, elapsed: float, metrics: Mapping[str, Any]) -> Row:
    values = {column(name): value for name, value in json_values(metrics).items()}
    return {**values, "epoch": epoch, "seconds": round(seconds, 6), "elapsed": round(elapsed, 6)}


def _lines(rows: Iterable[Row], columns: tuple[str, ...]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n").writerows(rows)
    return text.getvalue()
