"""A limit of time for calls that have none of their own."""

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
"""Seconds after which one who waits looks up, so that signals are served."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """What ``call`` gives, on a thread of its own; raises what it raises.

    Raises TimeoutError where it takes longer.  It cannot be ended, and goes on beside us; it does
    not keep the process from ending.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # it is raised where the result is waited for
            result.set_exception(error)

    Thread(target=run, name="jobrun-store", daemon=True).start()
    end = monotonic() + seconds
    while not wait_for([result], max(0.0, min(_LOOK, end - monotonic()))).done:
        if monotonic() >= end:
            raise TimeoutError(f"no answer within {seconds:g} s")
    return result.result()
