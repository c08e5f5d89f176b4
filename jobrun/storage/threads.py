"""The threads that write and read files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["LARGE", "THREADS", "THREADS_FAR", "ended_by_errors", "run_calls"]

T = TypeVar("T")

THREADS = 4
"""Writers and readers of files; they wait for the disk, outside of the interpreter's lock.

Measured on two cores, one thread, two, four: 64 x 8 MiB past the page cache 0.60, 0.28, 0.28 s;
200 x 4 KiB with fsync 216, 155, 130 ms.
"""

THREADS_FAR = 16
"""Readers of a store that answers each of them slowly, over a network."""

LARGE = 1 << 20
"""From this size on a file is worth handing to another thread."""


def run_calls(pool: ThreadPoolExecutor, calls: Sequence[tuple[bool, Callable[[], T]]]) -> list[T]:
    """Make all calls, those marked True on the pool; the first error ends the rest.

    A single one is made here: nothing would run beside it.
    """
    if len(calls) == 1:
        return [calls[0][1]()]
    futures = {i: pool.submit(call) for i, (pooled, call) in enumerate(calls) if pooled}
    with ended_by_errors(pool):
        here = {i: call() for i, (pooled, call) in enumerate(calls) if not pooled}
        return [futures[i].result() if i in futures else here[i] for i in range(len(calls))]


@contextmanager
def ended_by_errors(pool: ThreadPoolExecutor) -> Iterator[None]:
    """An error inside ends all that the pool was given and has not begun."""
    try:
        yield
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
