"""Progress as plain lines, one per epoch: for pipes, files and the run's log.

A line holds no escape code and no carriage return, and is never cut.  After a minute without a
line, one says what is running.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import singledispatchmethod
from typing import TextIO

from jobrun.checkpoint.catalog import span
from jobrun.core.events import (
    CheckpointFailed,
    CheckpointLoaded,
    CheckpointSaved,
    CheckpointSkipped,
    CheckpointsMoved,
    CheckpointsRemoved,
    EpochFinished,
    Event,
    GroupFinished,
    LeftoversCleaned,
    RunEnded,
    RunStarted,
    RunWentBack,
    SaveAsked,
    Stopping,
    TaskFinished,
    Uploaded,
    Warned,
)
from jobrun.core.paths import shown
from jobrun.core.text import duration, size
from jobrun.report.formatting import metric_texts, plain, plural, why_not_saved
from jobrun.report.screen import Screen

__all__ = ["Describer", "Lines", "heartbeat"]

SLOW = 1.0
"""Seconds from which on a group other than ``epoch`` gets a line."""

WAITED = 0.1
"""Seconds from which on the wait for a save is reported."""

HEARTBEAT = 60.0
"""Seconds without a line after which a line reports that the run is alive, and what it does."""


class Lines:
    """A reporter that writes each important event as a line to ``stream``.

    ``verbosity`` -1 leaves only warnings, 1 adds groups, tasks, saves and removals.  A thread
    writes a heartbeat when one is due by ``clock`` (monotonic seconds).
    """

    def __init__(
        self,
        stream: TextIO,
        verbosity: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._describe = Describer(verbosity)
        self._clock = clock
        self._screen = Screen()
        self._said = clock()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._watching: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        """Write the lines of ``event`` at once."""
        with self._lock:
            self._screen.take(event, self._clock())
            self._write(self._describe(event))
        if isinstance(event, RunStarted) and not self._describe.quiet:
            self._start()
        elif isinstance(event, RunEnded):
            self.close()

    def beat(self) -> float:
        """Write a heartbeat if one is due; return the seconds until the next one may be."""
        with self._lock:
            left = self._said + HEARTBEAT - self._clock()
            if left <= 0:
                self._write([heartbeat(self._screen, self._clock())])
                left = HEARTBEAT
            return left

    def close(self) -> None:
        """Stop the heartbeats."""
        self._over.set()
        self._watching = None

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._said = self._clock()
            self._stream.write("".join(line + "\n" for line in lines))
            self._stream.flush()

    def _start(self) -> None:
        if self._watching is None:
            self._over = threading.Event()
            over = self._over
            self._watching = threading.Thread(
                target=self._watch, args=(over,), name="jobrun-heartbeat", daemon=True
            )
            self._watching.start()

    def _watch(self, over: threading.Event) -> None:
        left = HEARTBEAT
        while not over.wait(left):
            try:
                left = self.beat()
            except (OSError, ValueError):  # the reader has gone, or the stream is closed
                return


def heartbeat(screen: Screen, now: float) -> str:
    """Return the line that says what is running, for how long, and how far it is."""
    phase = screen.phase()
    where = phase or f"epoch {screen.epoch + 1}"
    since = screen.phase_seconds(now) if phase else now - screen.epoch_started
    parts = [
        f"{plain(task)} batch {pipe.done}" + (f"/{pipe.total}" if pipe.total else "")
        for (task, _), pipe in screen.pipes.items()
    ]
    for task, seconds in screen.running_now(now):
        part = screen.fractions.get(task)
        done = "" if part is None else f" ({part:.0%})"
        parts.append(f"{plain(task)} for {duration(seconds)}{done}")
    if screen.saving is not None:
        seconds = now - screen.saving_since
        parts.append(f"checkpoint_{screen.saving.id} is being saved for {duration(seconds)}")
    what = f": {', '.join(parts)}" if parts else ""
    return f"still running: {where} for {duration(since)}{what}"


class Describer:
    """Turns an event into lines of text, possibly none."""

    def __init__(self, verbosity: int = 0) -> None:
        self.quiet = verbosity < 0
        self.verbose = verbosity > 0
        self._epochs: int | None = None

    def __call__(self, event: Event) -> list[str]:
        """Return the lines of ``event``."""
        if isinstance(event, RunStarted):
            self._epochs = event.epochs
        if self.quiet and not isinstance(event, _LOUD):
            return []
        lines: list[str] = _method_of(type(event))(self, event)
        return lines

    @singledispatchmethod
    def _lines(self, event: Event) -> list[str]:
        return []

    @_lines.register
    def _(self, event: RunStarted) -> list[str]:
        where = f" in {plain(shown(event.run_dir))}" if event.run_dir else ""
        how = "starts from the beginning"
        if event.checkpoint is not None:
            what = "runs download and exit again" if event.only else "continues"
            how = f"{what} {_behind(event.place, event.epoch)} (checkpoint_{event.checkpoint})"
        notes = (plain(line) for note in event.notes for line in note.splitlines())
        return [f"{plain(event.job)}{where}: {how}", *(f"  {note}" for note in notes)]

    @_lines.register
    def _(self, event: RunWentBack) -> list[str]:
        where = "from the beginning"
        if event.checkpoint is not None:
            where = f"{_behind(event.place, event.epoch)} (checkpoint_{event.checkpoint})"
        again = f"the run continues {where}, restart {event.restart} of {event.most}"
        return [f"warning: {plain(event.message)}: {again}"]

    @_lines.register
    def _(self, event: LeftoversCleaned) -> list[str]:
        return [f"removed leftovers of a crash: {plain(', '.join(event.names))}"]

    @_lines.register
    def _(self, event: GroupFinished) -> list[str]:
        if not self.verbose and (event.group == "epoch" or event.seconds < SLOW):
            return []
        slowest = ", ".join(f"{plain(task)} {duration(s)}" for task, s in event.slowest)
        tail = f" (slowest: {slowest})" if slowest else ""
        return [f"{event.group}: {plural(event.tasks, 'task')} in {duration(event.seconds)}{tail}"]

    @_lines.register
    def _(self, event: TaskFinished) -> list[str]:
        if not self.verbose:
            return []
        return [
            f"{event.group}: {plain(event.task)} ({plain(event.node)}) {duration(event.seconds)}"
        ]

    @_lines.register
    def _(self, event: EpochFinished) -> list[str]:
        of = f"/{self._epochs}" if self._epochs else ""
        texts = [plain(t) for t in event.progress_texts if t] if self.verbose else []
        parts = [*metric_texts(event.metrics, event.best), duration(event.seconds), *texts]
        return ["  ".join([f"epoch {event.epoch}{of}", *parts])]

    @_lines.register
    def _(self, event: CheckpointSaved) -> list[str]:
        if not (self.verbose or event.asked):
            return []
        what = f"{size(event.bytes)}, {duration(event.seconds)}"
        waited = f"; the run waited {duration(event.stall)}" if event.stall >= WAITED else ""
        return [f"saved checkpoint_{event.id} ({_place(event.place, event.epoch)}, {what}){waited}"]

    @_lines.register
    def _(self, event: CheckpointFailed) -> list[str]:
        where = f"checkpoint_{event.id} ({_place(event.place, event.epoch)})"
        why = plain(why_not_saved(event.id, event.message))
        return [f"warning: {where} was not saved, the run continues: {why}"]

    @_lines.register
    def _(self, event: CheckpointsMoved) -> list[str]:
        what = f"checkpoint{'' if len(event.ids) == 1 else 's'} {span(event.ids)}"
        return [f"{what} moved to {plain(shown(event.folder))}"]

    @_lines.register
    def _(self, event: CheckpointsRemoved) -> list[str]:
        names = ", ".join(f"checkpoint_{id}" for id in event.ids)
        return [f"removed {names}"] if self.verbose else []

    @_lines.register
    def _(self, event: CheckpointSkipped) -> list[str]:
        return [f"warning: checkpoint_{event.id} is skipped: {plain(event.reason)}"]

    @_lines.register
    def _(self, event: CheckpointLoaded) -> list[str]:
        what = f"{size(event.bytes)}, " if event.bytes else ""  # numbers stand in the manifest
        what += duration(event.seconds)
        line = f"loaded checkpoint_{event.id} ({_place(event.place, event.epoch)}, {what})"
        loaded = [] if self.quiet else [line]
        others = (f"warning: since then: {plain(line)}" for line in event.differences)
        return [*loaded, *others]

    @_lines.register
    def _(self, event: Uploaded) -> list[str]:
        what = f"{size(event.bytes)}, {duration(event.seconds)}"
        if not event.sent:
            return [f"checkpoint_{event.id} is already at {plain(shown(event.place))}"]
        return [f"uploaded checkpoint_{event.id} to {plain(shown(event.place))} ({what})"]

    @_lines.register
    def _(self, event: Warned) -> list[str]:
        return [f"warning: {plain(event.message)}"]

    @_lines.register
    def _(self, event: SaveAsked) -> list[str]:
        return [f"{event.signal}: the state is saved at the next possible point"]

    @_lines.register
    def _(self, event: Stopping) -> list[str]:
        line = f"{plain(event.signal)}: no new work starts, the state is saved"
        return [f"{line} (a second one ends it at once)" if event.of_signal else line]


_method_of = vars(Describer)["_lines"].dispatcher.dispatch
"""The method for a type of event: singledispatchmethod takes 2 µs to find it for each call."""


def _behind(place: str, epoch: int) -> str:
    """Return ``after epoch 2``, or ``in epoch 3, after 1 task``."""
    text = _place(place, epoch)
    return f"in {text}" if ", after " in text else f"after {text}"


def _place(place: str, epoch: int) -> str:
    return plain(place) or f"epoch {epoch}"


# Events that are reported with -q too.
_LOUD = (CheckpointFailed, CheckpointLoaded, CheckpointSkipped, RunWentBack, Stopping, Warned)
