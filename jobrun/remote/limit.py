"""A time limit for calls that have none."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from threading import Thread
from time import monotonic
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")

_LOOK = 0.2
"""Seconds between wake-ups of the waiting thread, so that signals are handled."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of ``call``, which runs on a thread of its own; raises what it raises.

    Raises TimeoutError if it takes more than ``seconds``.  It cannot be interrupted and continues
    in the background, but does not keep the process from ending.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # raised by the thread that waits for the result
            result.set_exception(error)

    Thread(target=run, name="jobrun-store", daemon=True).start()
    end = monotonic() + seconds
    while not wait_for([result], max(0.0, min(_LOOK, end - monotonic()))).done:
        if monotonic() >= end:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()
