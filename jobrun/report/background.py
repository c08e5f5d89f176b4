"""A reporter on a thread of its own, so that it can neither delay nor end the run."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jobrun.core.events import (
    BatchesDone,
    Event,
    Report,
    RunStarted,
    TaskProgress,
    TasksRunning,
    Warned,
)

__all__ = ["Aside"]

_SPARED = (BatchesDone, TaskProgress, TasksRunning)
"""``events.PASSING`` without ``SaveStarted``, at which some reporters flush."""
_BUSY = 100
"""Waiting events above which those of ``_SPARED`` are dropped."""
_TOO_MANY = 100_000
_PATIENCE = 10.0
"""Seconds that the end of a run waits for a reporter."""


class Aside:
    """Passes events on to the reporter that ``make`` opens for a run, once that has started.

    One that fails, or does not end, is reported to ``warn`` once, and gets no more events.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[RunStarted], Report],
        warn: Report,
        patience: float = _PATIENCE,
    ) -> None:
        self._name = name
        self._make = make
        self._warn = warn
        self._patience = patience
        self._events: queue.Queue[Event | None] = queue.Queue()
        self._early: list[Event] = []
        self._thread: threading.Thread | None = None
        self._left_out = False

    def __call__(self, event: Event) -> None:
        """Queue ``event`` for the thread."""
        if self._left_out:
            return
        if self._thread is None:
            self._early.append(event)
            if isinstance(event, RunStarted):
                self._start(event)
            return
        waiting = self._events.qsize()
        if waiting > _TOO_MANY:
            self._leave_out("it is too slow")
        elif waiting < _BUSY or not isinstance(event, _SPARED):
            self._events.put(event)

    def close(self) -> None:
        """Wait until the reporter is closed, ``patience`` seconds at most."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._events.put(None)
        thread.join(self._patience)
        if thread.is_alive() and not self._left_out:
            self._leave_out(f"it is not done {self._patience:g} s after the run")
        self._left_out = True

    def _start(self, event: RunStarted) -> None:
        for early in self._early:
            self._events.put(early)
        self._early.clear()
        name = f"jobrun-reporter-{self._name}"
        self._thread = threading.Thread(target=self._work, args=(event,), name=name, daemon=True)
        self._thread.start()

    def _work(self, started: RunStarted) -> None:
        try:
            reporter = self._make(started)
            while (event := self._events.get()) is not None and not self._left_out:
                reporter(event)
            close: Callable[[], None] = getattr(reporter, "close", lambda: None)
            close()
        except Exception as error:  # a reporter never hurts the run
            self._leave_out(f"{type(error).__name__}: {error}")

    def _leave_out(self, why: str) -> None:
        if not self._left_out:
            self._left_out = True
            text = f"the reporter {self._name} failed and is left out from now on: {why}"
            self._warn(Warned(text))
