"""The files of a run go on where its report does not write them.

``metrics.csv`` is read as the history of the run.  A script that resumes a run of the command line,
or rewinds it, would leave the rows of the epochs that it has undone in it, and no rows of its own.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from jobrun.core.events import Event, Report, RunEnded, RunStarted
from jobrun.report import Broadcast, RunFiles

__all__ = ["ContinuedFiles", "keeps_files"]


def keeps_files(report: Report) -> bool:
    """Return whether a report writes the files of the run itself."""
    return bool(getattr(report, "keeps_files", False))


class ContinuedFiles:
    """Passes events on to ``report``, and to the files of a run that has them."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._files: Broadcast | None = None
        self._passed_on: Event | None = None
        self._lock = threading.RLock()

    def __call__(self, event: Event) -> None:
        """Pass ``event`` on."""
        self._report(event)
        with self._lock:
            if isinstance(event, RunStarted):
                self._open(event)
            if self._files is None:
                return
            self._passed_on = event
            self._files(event)
            if isinstance(event, RunEnded):
                self._files.close()
                self._files = None

    def _open(self, event: RunStarted) -> None:
        self._files = None
        if event.run_dir is not None and os.path.exists(Path(event.run_dir) / "events.jsonl"):
            self._files = Broadcast(self._warned)
            self._files.attach(RunFiles(self._files))

    def _warned(self, event: Event) -> None:
        """Pass on a warning of the files; everything else the report has got already."""
        if event is not self._passed_on:
            self._report(event)
