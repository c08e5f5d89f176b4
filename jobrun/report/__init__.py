"""Reporters: each is called with every event of a run, and shows or records some of them.

A reporter is a callable that takes an ``events.Event``; one with open resources has a ``close()``.
``Broadcast`` passes events on to several reporters, from any thread, one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobrun.core.events import Event, Report, RunStarted, Warned

if TYPE_CHECKING:
    from jobrun.report.log_file import Prints

__all__ = ["Broadcast", "RunFiles"]


class Broadcast:
    """Passes events on to several reporters, whose errors never reach the run.

    A reporter that raises OSError (a full disk) causes one warning, and still gets later events;
    after any other error, and a warning, it gets no more events.
    """

    def __init__(self, *reporters: Report) -> None:
        self._reporters = list(reporters)
        self._refused: list[Report] = []
        self._lock = threading.RLock()

    @property
    def keeps_files(self) -> bool:
        """Whether the files of the run are written by one of the reporters."""
        return any(isinstance(reporter, RunFiles) for reporter in self._reporters)

    def __call__(self, event: Event) -> None:
        """Pass ``event`` on."""
        with self._lock:
            for reporter in tuple(self._reporters):
                self._tell(reporter, event)

    def add(self, name: str, make: Callable[[], Report], missed: Sequence[Event] = ()) -> None:
        """Add the reporter that ``make`` opens, and pass the events on that it missed."""
        with self._lock:
            try:
                reporter = make()
            except Exception as error:
                self._warn(f"the reporter {name} failed and is left out from now on", error)
                return
            self._reporters.append(reporter)
            for event in missed:
                self._tell(reporter, event)

    def attach(self, reporter: Report) -> None:
        """Add a reporter that is already open."""
        with self._lock:
            self._reporters.append(reporter)

    def _tell(self, reporter: Report, event: Event) -> None:
        try:
            reporter(event)
        except BrokenPipeError:  # its reader has gone
            self._drop(reporter)
        except OSError as error:
            if reporter in self._reporters and reporter not in self._refused:
                self._refused.append(reporter)
                self._warn(f"{_name(reporter)} continues once it can be written again", error)
        except Exception as error:
            self._leave_out(reporter, error)

    def _leave_out(self, reporter: Report, error: Exception) -> None:
        if self._drop(reporter):  # else it was dropped while it reported another's failure
            name = _name(reporter)
            self._warn(f"the reporter {name} failed and is left out from now on", error)

    def _drop(self, reporter: Report) -> bool:
        known = reporter in self._reporters
        if known:
            self._reporters.remove(reporter)
        return known

    def _warn(self, what: str, error: Exception) -> None:
        if not isinstance(error, BrokenPipeError):
            self(Warned(f"{what}: {error}"))

    def close(self) -> None:
        """Close the reporters: the first one last, since it may still show a warning."""
        with self._lock:
            for reporter in reversed(tuple(self._reporters)):
                close: Callable[[], None] = getattr(reporter, "close", lambda: None)
                try:
                    close()
                except Exception as error:
                    self._leave_out(reporter, error)
            self._reporters.clear()


def _name(reporter: Report) -> str:
    return str(getattr(reporter, "name", type(reporter).__name__))


class RunFiles:
    """Adds ``events.jsonl``, ``metrics.csv`` and ``log.txt`` of the run directory to ``fan``.

    They are opened when the run starts, and get the earlier events too; until then, and so in a
    run with nothing to do, nothing is written.  The log is set as that of ``prints``.
    """

    def __init__(self, fan: Broadcast, prints: Prints | None = None) -> None:
        self._fan = fan
        self._prints = prints
        self._missed: list[Event] = []
        self._started = False

    def __call__(self, event: Event) -> None:
        """Remember ``event``, and open the files if it is the start of the run."""
        if self._started:
            return
        self._missed.append(event)
        if not isinstance(event, RunStarted):
            return
        self._started = True
        missed, self._missed = self._missed, []
        if event.run_dir is not None:
            self._open(Path(event.run_dir), event.attempt, missed)

    def _open(self, folder: Path, attempt: int, missed: list[Event]) -> None:
        from jobrun.report.events_file import EventsFile
        from jobrun.report.log_file import LogFile
        from jobrun.report.metrics_file import MetricsFile

        events = folder / "events.jsonl"
        self._fan.add("events.jsonl", lambda: EventsFile(events), missed)
        self._fan.add("metrics.csv", lambda: MetricsFile(folder / "metrics.csv", events), missed)

        def log() -> LogFile:
            prints = self._prints
            if prints is None:
                return LogFile(folder / "log.txt", attempt)
            prints.log = LogFile(folder / "log.txt", attempt, prints.keep_ended)
            return prints.log

        self._fan.add("log.txt", log, missed)
