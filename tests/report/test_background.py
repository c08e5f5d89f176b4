"""Reporters on threads of their own: they neither slow nor hold nor end the run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jobrun.core.events import BatchesDone, Event, LeftoversCleaned, Warned
from jobrun.report.background import Aside


class Kept:
    """A reporter that keeps events; ``gate`` holds it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.closed = False
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, event: Event) -> None:
        assert self.gate.wait(60)
        self.events.append(event)

    def close(self) -> None:
        self.closed = True


def names(events: list[Event]) -> list[str]:
    return [type(e).__name__ for e in events]


def test_it_is_opened_when_the_run_starts_and_told_what_came_before(make: Any) -> None:
    kept, warned = Kept(), []
    aside = Aside("kept", lambda started: kept, warned.append)
    aside(LeftoversCleaned(("x",)))
    assert kept.events == []
    for event in (make.started(), make.epoch(1), make.ended()):
        aside(event)
    aside.close()
    assert names(kept.events) == ["LeftoversCleaned", "RunStarted", "EpochFinished", "RunEnded"]
    assert kept.closed
    assert warned == []
    aside.close()
    aside(make.epoch(2))
    assert len(kept.events) == 4


def test_where_nothing_is_run_nothing_is_opened(make: Any) -> None:
    opened: list[Event] = []
    aside = Aside("x", lambda started: opened.append(started), lambda event: None)  # type: ignore[arg-type,return-value]
    aside(make.ended(outcome="nothing"))
    aside.close()
    assert opened == []


def broken(call: bool, close: bool) -> Callable[[Any], Any]:
    class Broken:
        def __call__(self, event: Event) -> None:
            if call:
                raise ValueError("no [bold]")

        def close(self) -> None:
            if close:
                raise OSError("never")

    return lambda started: Broken()


def failing(started: Any) -> Any:
    raise KeyError("opening")


def test_a_failure_is_said_once(make: Any) -> None:
    for open_it, text in (
        (broken(True, False), "ValueError: no [bold]"),
        (broken(False, True), "OSError: never"),
        (failing, "KeyError: 'opening'"),
    ):
        warned: list[Any] = []
        aside = Aside("mine", open_it, warned.append)
        for event in (make.started(), make.epoch(1), make.epoch(2), make.ended()):
            aside(event)
        aside.close()
        start = "the reporter mine failed and is left out from now on: "
        assert [w.message for w in warned] == [start + text]
        assert isinstance(warned[0], Warned)


def test_one_that_hangs_is_not_waited_for_for_ever(make: Any) -> None:
    kept, warned = Kept(), []
    kept.gate.clear()
    aside = Aside("stuck", lambda started: kept, warned.append, patience=0.05)
    aside(make.started())
    for number in range(1000):  # the run goes on
        aside(make.epoch(number))
        aside(BatchesDone("t", "main", number, 1, 2))
    aside.close()
    assert [w.message.rpartition(": ")[2] for w in warned] == [
        "it is not done 0.05 s after the run"
    ]
    kept.gate.set()


def test_a_slow_one_misses_what_passes_anyway_and_no_epoch(make: Any) -> None:
    kept: Any = Kept()
    kept.gate.clear()
    aside = Aside("slow", lambda started: kept, lambda event: None)
    aside(make.started())
    for number in range(1000):
        aside(BatchesDone("t", "main", 1, number, 1000))
    for number in range(300):
        aside(make.epoch(number))
    kept.gate.set()
    aside.close()
    assert names(kept.events).count("EpochFinished") == 300
    assert names(kept.events).count("BatchesDone") <= 101
