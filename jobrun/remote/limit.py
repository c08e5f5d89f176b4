"""Time limits for calls that have none."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import TypeVar

from jobrun.core.notices import notice

__all__ = ["Limit", "within"]

T = TypeVar("T")

_LOOK = 0.2
"""Seconds between wake-ups of the waiting thread, so that signals are handled."""

_REPORTED = 5.0
"""Seconds after which a wait is reported."""


def _never() -> float:
    return float("-inf")


@dataclass(frozen=True, slots=True)
class Limit:
    """The seconds that a call may take, and those of them without any answer (``silence``).

    ``last`` returns the time (``time.monotonic``) of the last answer.  ``sending`` are the seconds
    that its bytes may take on a slow network, before there can be an answer: they are added.
    """

    seconds: float
    silence: float = float("inf")
    last: Callable[[], float] = _never
    sending: float = 0.0

    def of_call(self, start: float) -> float:
        """Return the seconds that a call which started then may take, as far as is known now."""
        waits_for_all = self.last() > start or self.seconds < self.silence
        return self.sending + (self.seconds if waits_for_all else self.silence)


def within(limit: Limit, call: Callable[[], T], what: str) -> T:
    """Return the result of ``call``, which runs on a thread of its own; raises what it raises.

    Raises TimeoutError when the limit is reached.  The call cannot be interrupted and continues in
    the background, but does not keep the process from ending.  ``what``, a noun phrase that names
    what the call waits for, is reported after five seconds.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised by the thread that waits for the result
            result.set_exception(error)

    Thread(target=run, name="jobrun-store", daemon=True).start()
    start = monotonic()
    while not wait_for([result], min(_LOOK, limit.seconds)).done:
        passed, most = monotonic() - start, limit.of_call(start)
        if passed >= most:
            raise TimeoutError(f"no answer within {most:g} s")
        if passed >= _REPORTED + limit.sending:
            notice(f"waiting for {what}")
    return result.result()
