"""Progress for runs that a script or a notebook starts: ``JobRunner(…, report=progress_report())``.

The same as on the command line: a live view on a terminal or in a notebook, plain lines elsewhere,
and ``events.jsonl``, ``metrics.csv`` and ``log.txt`` in the run's directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial

from jobrun.core.events import Event, Report, RunEnded, RunStarted
from jobrun.report import Broadcast, RunFiles
from jobrun.report.background import Aside
from jobrun.report.json_lines import JsonLines
from jobrun.report.lines import Lines
from jobrun.report.live import LiveView
from jobrun.report.log_file import Prints
from jobrun.report.notebook import Cell, in_notebook
from jobrun.report.registry import open_reporters, parse_reporter
from jobrun.report.summary import ending
from jobrun.report.terminal import Painter

__all__ = ["progress_report"]

_MakeAsides = Callable[[Broadcast], list[Aside]]
_HOW = ("auto", "live", "lines", "json", "none")


def progress_report(
    how: str = "auto", *, files: bool = True, reporters: Iterable[str | Report] = ()
) -> Report:
    """Return a report for ``JobRunner`` that shows progress on stderr or in the notebook.

    ``how``: ``live``, ``lines``, ``json`` (one event per line), ``none`` (only warnings), or
    ``auto``: live on a terminal and in a notebook, else lines.  ``files``: the run's directory gets
    ``events.jsonl``, ``metrics.csv`` and ``log.txt``, with the prints of tasks.  ``reporters`` get
    the events too: names, as ``tensorboard`` or ``tensorboard:logs``, or callables that take an
    event.  It may be used for one run after another.  Raises ValueError for another ``how``,
    BindError for a reporter that cannot be found or imported.
    """
    if how not in _HOW:
        raise ValueError(f"how: expected one of {', '.join(_HOW)}, got {how!r}")
    return _ProgressReport(how, files, tuple(reporters))


class _ProgressReport:
    """Opens everything with the first event of a run, and closes it with the last."""

    def __init__(self, how: str, files: bool, reporters: tuple[str | Report, ...]) -> None:
        self._how = how
        self.keeps_files = files
        self._reporters = reporters
        self._open: _Open | None = None
        self._asides(Broadcast())  # raises BindError early

    def __call__(self, event: Event) -> None:
        """Pass ``event`` on."""
        if self._open is None:
            self._open = _Open(self._how, self.keeps_files, self._asides)
        self._open.fan(event)
        if isinstance(event, RunEnded):
            opened, self._open = self._open, None
            opened.close(event)

    def _asides(self, fan: Broadcast) -> list[Aside]:
        names = [parse_reporter(r) for r in self._reporters if isinstance(r, str)]
        others = [r for r in self._reporters if not isinstance(r, str)]
        own = [Aside(type(r).__name__, partial(_itself, r), fan) for r in others]
        return [*open_reporters(names, fan), *own]


class _Open:
    """The reporters of one run, while they are open."""

    def __init__(self, how: str, files: bool, asides: _MakeAsides) -> None:
        self._prints = Prints()
        self._prints.__enter__()
        stderr = self._prints.err.stream
        terminal = stderr.isatty() and os.environ.get("TERM") != "dumb"
        if how == "auto":
            how = "live" if terminal or in_notebook() else "lines"
        self._quiet = how in ("json", "none")
        self.fan = Broadcast(self._progress(how, terminal))
        if files:
            self.fan.attach(RunFiles(self.fan, self._prints))
        self._asides = asides(self.fan)
        for aside in self._asides:
            self.fan.attach(aside)

    def _progress(self, how: str, terminal: bool) -> Report:
        stderr = self._prints.err.stream
        if how == "json":
            return JsonLines(stderr, self._prints.err)
        if how == "live" and in_notebook():
            return LiveView(Cell())
        if how == "live" and terminal:
            return LiveView(Painter(stderr, not os.environ.get("NO_COLOR")), self._prints)
        return Lines(stderr, -1 if how == "none" else 0)

    def close(self, ended: RunEnded) -> None:
        """Close all reporters, and print how the run has ended."""
        for aside in self._asides:
            aside.close()
        self._prints.end()
        self.fan.close()
        self._prints.__exit__()
        if not self._quiet:
            # Notebooks show stderr as if something had gone wrong.
            stream = sys.stdout if in_notebook() else sys.stderr
            print("\n".join(ending(ended)), file=stream, flush=True)


def _itself(reporter: Report, started: RunStarted) -> Report:
    return reporter
