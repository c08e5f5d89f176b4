"""Work done ahead of the one who wants it: on a few threads, in order, within a window.

The state:

- ``_fetched``   how many items have been taken from the source
- ``_taken``     how many results the consumer has been given
- ``_results``   by number, what is done and not yet taken: a result, or the error in its place
- ``_over``      nothing more is fetched: the source has ended, something failed, or ``close``

``_fetched - _taken`` never exceeds the window: that is the back-pressure.  The source is asked by
one thread at a time, which holds ``_source`` meanwhile, also while it waits for room; so numbers
have no gaps, and at most one thread waits for room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Generic, TypeVar

__all__ = ["Ahead"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Ahead(Generic[Item, Result]):
    """An iterator over ``work(item)`` for each of ``items``, in their order.

    ``work`` runs on ``threads`` threads, on at most ``window`` items that were not yet asked for.
    What the source or ``work`` raises is raised in the place of its result, after all results
    before it: just where a plain loop would have raised it.  As a context, it ends the threads; a
    call that is running ends first.
    """

    def __init__(
        self, items: Iterable[Item], work: Callable[[Item], Result], threads: int, window: int
    ) -> None:
        self._items = iter(items)
        self._work = work
        self._window = window
        self._fetched = 0
        self._taken = 0
        self._results: dict[int, tuple[BaseException | None, Result | None]] = {}
        self._over = False
        self._source = threading.Lock()
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        try:
            for number in range(min(threads, window)):
                name = f"jobrun-ahead-{number}"
                thread = threading.Thread(target=self._loop, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # no more threads can be had
            self.close()
            raise

    def __iter__(self) -> Ahead[Item, Result]:
        return self

    def __next__(self) -> Result:
        """The next result, once it is there."""
        with self._lock:
            number = self._taken
            while number not in self._results:
                if self._over and self._fetched <= number:
                    raise StopIteration
                self._ready.wait()
            error, result = self._results.pop(number)
            self._taken += 1
            self._room.notify()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def __enter__(self) -> Ahead[Item, Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Fetch nothing more, and wait for what is running; what was not taken is forgotten."""
        with self._lock:
            self._end()
        for thread in self._threads:
            thread.join()
        self._results.clear()

    def _end(self) -> None:
        """Fetch nothing more; the lock is held."""
        self._over = True
        self._room.notify_all()
        self._ready.notify_all()

    def _loop(self) -> None:
        while (found := self._fetch()) is not None:
            number, item = found
            try:
                result = self._work(item)
            except BaseException as error:  # it belongs to the consumer, whatever it is
                self._failed(number, error)
                return
            del found, item  # what the consumer gets, it alone holds
            with self._lock:
                self._results[number] = (None, result)
                del result
                if number == self._taken:
                    self._ready.notify()

    def _fetch(self) -> tuple[int, Item] | None:
        """The next item with its number, once there is room; None if there is nothing more."""
        with self._source:
            with self._lock:
                while not self._over and self._fetched - self._taken >= self._window:
                    self._room.wait()
                if self._over:
                    return None
                number = self._fetched
            try:
                item = next(self._items)
            except StopIteration:
                with self._lock:
                    self._end()
                return None
            except BaseException as error:
                self._fetched += 1
                self._failed(number, error)
                return None
            with self._lock:
                self._fetched += 1
            return number, item

    def _failed(self, number: int, error: BaseException) -> None:
        """Keep an error in the place of a result; nothing after it is wanted."""
        with self._lock:
            self._results[number] = (error, None)
            self._end()
