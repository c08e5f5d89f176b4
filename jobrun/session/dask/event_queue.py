"""The news of a worker while it runs: events, output of tasks, batches that were applied.

The client requests news all the time; news that come while no request is open wait for the next
one, or go with the outcome of the run.  Each answer has a number, so that the client handles them
in order.  An answer without news is a sign of life.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TextIO

from jobrun.core.events import Event
from jobrun.errors import WorkerLostError
from jobrun.session.current import here
from jobrun.session.dask.messages import Applied, News, PrintedText, Unreached

__all__ = ["NewsQueue", "route_prints"]

_GATHER = 0.05
"""Seconds for which news are gathered before they are sent."""

NumberedNews = tuple[int, tuple[News, ...]]


class NewsQueue:
    """The news of one worker; they come from any thread, and are requested on ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._items: list[News] = []
        self._sequence = 0
        self._some = asyncio.Event()
        self._begun: dict[tuple[int, bool], str] = {}

    def report(self, event: Event) -> None:
        """Add an event."""
        self._add(event)

    def applied(self, count: int) -> None:
        """Add that ``count`` batches lie one behind another."""
        self._add(Applied(count))

    def unreached(self, error: WorkerLostError, address: str = "") -> None:
        """Add that another worker cannot be reached."""
        self._add(Unreached(error, address))

    def printed(self, text: str, is_error: bool) -> None:
        """Add printed text of a task; incomplete lines are kept until they are complete."""
        place = (threading.get_ident(), is_error)
        with self._lock:
            text = self._begun.pop(place, "") + text
            whole, newline, begun = text.rpartition("\n")
            if begun:
                self._begun[place] = begun
        if newline:
            self._add(PrintedText(whole + newline, is_error))

    def end_lines(self) -> None:
        """Flush the last, unterminated lines."""
        with self._lock:
            begun, self._begun = self._begun, {}
        for (_, is_error), text in begun.items():
            self._add(PrintedText(text, is_error))

    def _add(self, item: News) -> None:
        with self._lock:
            last = self._items[-1] if self._items else None
            if isinstance(item, Applied) and isinstance(last, Applied):
                self._items[-1] = Applied(max(last.batches, item.batches))
            else:
                self._items.append(item)
            if last is not None:
                return
        self._loop.call_soon_threadsafe(self._some.set)

    def rest(self) -> NumberedNews:
        """Return the news not yet sent, and the number of this answer."""
        with self._lock:
            items, self._items = tuple(self._items), []
            self._sequence += 1
            return self._sequence, items

    async def next(self, seconds: float) -> NumberedNews:
        """Return the news, once there are some, or after ``seconds``."""
        try:
            await asyncio.wait_for(self._some.wait(), seconds)
            await asyncio.sleep(_GATHER)
        except TimeoutError:
            pass
        self._some.clear()
        return self.rest()


class _Routed:
    """Replaces a stream of the worker: output of tasks goes to the news of their session."""

    def __init__(self, stream: TextIO, is_error: bool) -> None:
        self.stream = stream
        self._is_error = is_error

    def write(self, text: str) -> int:
        place = here()
        printed = getattr(place[0], "printed", None) if place is not None else None
        if printed is None:
            return self.stream.write(text)
        printed(text, self._is_error)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


def route_prints() -> None:
    """Send the output of tasks in this process to the news of their session, from now on."""
    if not isinstance(sys.stdout, _Routed):
        sys.stdout = _Routed(sys.stdout, False)
    if not isinstance(sys.stderr, _Routed):
        sys.stderr = _Routed(sys.stderr, True)
