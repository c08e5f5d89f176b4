"""The messages that pipes in lock step wait for, from other workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

from jobrun.session.current import TaskStoppedError
from jobrun.session.dask.messages import StepMessage

__all__ = ["StepBoard"]

_LOOK = 0.05
"""Seconds between two checks whether the run has failed meanwhile."""

_Place = tuple[int, str, int]
"""Turn, task, and number of the message."""


class StepBoard:
    """Messages by turn, task and number, until all of one number are taken.

    ``gone()``: whether nobody asks for the results any more.
    """

    def __init__(self, gone: Callable[[], bool]) -> None:
        self._gone = gone
        self._some = threading.Condition()
        self._found: dict[_Place, dict[str, StepMessage]] = {}

    def put(self, message: StepMessage) -> None:
        """Add a message; may be called from any thread."""
        place = (message.turn, message.task, message.number)
        with self._some:
            self._found.setdefault(place, {})[message.sender] = message
            self._some.notify_all()

    def take(
        self, place: _Place, senders: Collection[str], stopped: Callable[[], bool]
    ) -> dict[str, StepMessage]:
        """Return the messages of all ``senders``, once they are there.

        Raises TaskStoppedError if the run is ``stopped`` meanwhile.
        """
        with self._some:
            while not set(senders) <= self._found.get(place, {}).keys():
                if stopped() or self._gone():
                    raise TaskStoppedError
                self._some.wait(_LOOK)
            return self._found.pop(place, {})

    def forget(self, before: int) -> None:
        """Drop the messages of turns before this one."""
        with self._some:
            for place in [p for p in self._found if p[0] < before]:
                del self._found[place]
