"""Prefetching: work done ahead of its consumer, on a few threads, in order, within a window.

The state:

- ``_permits``   one for each item that may still be fetched; the consumer returns those it used
- ``_done``      results of the threads, in the order of time
- ``_early``     by number, results taken out of ``_done`` before their turn
- ``_fetched``   number of items taken from the source
- ``_taken``     number of results given to the consumer
- ``_over``      nothing more is fetched: the source has ended, something failed, or ``close``

There are as many permits as the window has room: that is the back-pressure.  The source is read by
one thread at a time, which holds ``_source`` meanwhile, also while it waits for a permit; so
numbers have no gaps, and at most one thread waits for room.  Every number up to that of an error,
or of the end, is in work on some thread, which will put it into ``_done``; so the consumer never
waits in vain.

To hand an item over costs 10 to 100 µs.  Where items take less than that to fetch and work on, the
consumer keeps the permits that it would return; once it has them all, no thread fetches anything,
and it does the work itself, until that takes longer again.  ``Turns`` decides, and knows at the
start of the next iteration who worked at the end of the last: where that was the consumer, threads
are started only once they are needed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

__all__ = ["Ahead", "Turns"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_LIGHT = 50e-6
"""Seconds for an item, of which a consumer does the work itself: threads would gain nothing."""
_CONTENDED = 4
"""The factor by which a light item takes longer on a thread, waiting for the interpreter too."""
_HAND_OVER = 10e-6
"""Seconds, or more, that a hand-over costs."""
_BLOCK = 16
"""Items after which the consumer decides whether threads do the work."""


class Ahead(Generic[Item, Result]):
    """An iterator over ``work(item)`` for each of ``items``, in their order.

    ``work`` runs on ``threads`` threads, on at most ``window`` items that were not yet
    requested.  An error of the source or of ``work`` is raised in the place of its result, after
    all results before it: just where a plain loop would have raised it.  As a context manager, it
    ends the threads; a running call ends first.  With ``turns``, which one iteration after another
    may use, the consumer does light work itself.  The threads begin with the context variables
    that the caller has.
    """

    def __init__(
        self,
        items: Iterable[Item],
        work: Callable[[Item], Result],
        threads: int,
        window: int,
        turns: Turns | None = None,
    ) -> None:
        self._items = iter(items)
        self._work = work
        self._window = window
        self._context = copy_context()
        self._count = min(threads, window)
        self._turns = turns
        self._kept = window if turns is not None and turns.own else 0
        self._fetched = 0
        self._taken = 0
        self._over = False
        self._ended = False
        self._source = threading.Lock()
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, BaseException | None, Any, float]] = SimpleQueue()
        self._early: dict[int, tuple[BaseException | None, Any, float]] = {}
        self._threads: list[threading.Thread] = []
        if not self._kept:
            self._let_threads_work()

    def _let_threads_work(self) -> None:
        """Hand out all permits, and start the threads that there are not yet."""
        self._kept = 0
        for _ in range(self._window):
            self._permits.put(None)
        try:
            for number in range(len(self._threads), self._count):
                name = f"jobrun-ahead-{number}"
                run = self._context.copy().run
                thread = threading.Thread(target=run, args=(self._loop,), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:  # the system has no more threads
            self.close()
            raise

    def __iter__(self) -> Ahead[Item, Result]:
        return self

    def __next__(self) -> Result:
        """Return the next result, once it is there."""
        if self._ended:
            raise StopIteration
        if self._kept == self._window:
            return self._own_turn()
        wanted, early = self._taken, self._early
        if wanted in early:
            error, result, seconds = early.pop(wanted)
        else:
            number, error, result, seconds = self._done.get()
            while number != wanted:
                early[number] = (error, result, seconds)
                number, error, result, seconds = self._done.get()
        if error is not None:
            self._ended = True
            raise error
        self._taken += 1
        if self._turns is not None and self._turns.own_after(seconds):
            self._kept += 1
        else:
            self._permits.put(None)
        return result  # type: ignore[no-any-return]

    def _own_turn(self) -> Result:
        """Return the next result, worked on here: all permits are kept, so no thread fetches."""
        assert self._turns is not None
        began = time.perf_counter()
        try:
            result = self._work(next(self._items))
        except BaseException:
            self._ended = True
            raise
        self._fetched += 1
        self._taken += 1
        if not self._turns.own_again(time.perf_counter() - began):
            self._let_threads_work()
        return result

    def __enter__(self) -> Ahead[Item, Result]:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Fetch nothing more, and wait for the running calls; unused results are dropped."""
        self._end()
        for thread in self._threads:
            thread.join()
        self._ended = True
        self._early.clear()
        self._done = SimpleQueue()

    def _end(self) -> None:
        """Fetch nothing more."""
        self._over = True
        self._permits.put(None)  # to the thread that waits for one, if one does

    def _loop(self) -> None:
        while (found := self._fetch()) is not None:
            number, item, began = found
            try:
                result = self._work(item)
            except BaseException as error:  # the consumer raises it, whatever it is
                self._failed(number, error)
                return
            del found, item  # only the consumer holds the result
            self._done.put((number, None, result, time.perf_counter() - began))
            del result

    def _fetch(self) -> tuple[int, Item, float] | None:
        """Return the next item, its number and when it was begun, once there is room.

        None at the end.
        """
        with self._source:
            self._permits.get()
            if self._over:
                self._permits.put(None)  # for the next thread
                return None
            number = self._fetched
            self._fetched += 1
            began = time.perf_counter()
            try:
                return number, next(self._items), began
            except BaseException as error:  # the end counts as one: of the whole iteration
                self._failed(number, error)
                return None

    def _failed(self, number: int, error: BaseException) -> None:
        """Store an error in the place of a result; nothing after it is fetched."""
        self._end()
        self._done.put((number, error, None, 0.0))


class Turns:
    """The decision whether the threads work, or the consumer, from the seconds that items took.

    On a thread they include waiting for the interpreter: where most items of a block may be light,
    the consumer tries, and then their sum alone counts.  Where the consumer has lost time by an
    item that was not light, it leaves as many to the threads as make up for that.
    """

    def __init__(self) -> None:
        self.own = False
        """Whether the consumer is to work."""
        self._left = _BLOCK
        self._light = 0
        self._seconds = 0.0

    def own_after(self, seconds: float) -> bool:
        """Return whether the consumer is to work, after an item of a thread."""
        if self.own:
            return True
        self._left -= 1
        if self._left < _BLOCK:
            self._light += seconds < _CONTENDED * _LIGHT
            if not self._left:
                self.own = self._light > _BLOCK // 2
                self._start_block(_BLOCK)
        return self.own

    def own_again(self, seconds: float) -> bool:
        """Return whether the consumer is to work again, after an item of its own."""
        self._left -= 1
        self._seconds += seconds
        self.own = self._seconds <= _BLOCK * _LIGHT
        if not self.own:
            self._start_block(_BLOCK + int(self._seconds / _HAND_OVER))
        elif not self._left:
            self._start_block(_BLOCK)
        return self.own

    def _start_block(self, items: int) -> None:
        """Decide again after ``items``, from the last block of them."""
        self._left, self._light, self._seconds = items, 0, 0.0
