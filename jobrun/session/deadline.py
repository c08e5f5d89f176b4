"""Time limits of Python functions.

A thread cannot be killed.  So at the deadline the run ends without the function, and the result is
dropped if the function ends later.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jobrun.errors import TaskError, Where

__all__ = ["Deadline", "unlimited"]


class Deadline:
    """``function`` with a limit: ``abandon(error)`` is called if it takes more than ``seconds``."""

    def __init__(
        self,
        function: Callable[..., Any],
        seconds: float,
        abandon: Callable[[BaseException], None],
        name: str,
        where: Where | None,
    ) -> None:
        self._function = function
        self._seconds = seconds
        self._abandon = abandon
        self._name = name
        self._where = where

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; raises TaskError if it ended too late."""
        over = threading.Lock()  # acquired by whichever comes first, the end or the deadline
        timer = threading.Timer(self._seconds, self._expire, (over,))
        timer.daemon = True
        timer.start()
        try:
            result = self._function(*args, **kwargs)
        finally:
            in_time = over.acquire(blocking=False)
            timer.cancel()
        if not in_time:
            raise self._error()
        return result

    def _expire(self, over: threading.Lock) -> None:
        if over.acquire(blocking=False):
            self._abandon(self._error())

    def _error(self) -> TaskError:
        return TaskError(
            f"{self._name} failed: it exceeded its timeout of {self._seconds:g} s",
            where=self._where,
            hint="a thread cannot be killed: it runs on until this process ends",
        )


def unlimited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs under a deadline, or the function itself without one."""
    return function._function if isinstance(function, Deadline) else function
