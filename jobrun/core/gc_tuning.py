"""Garbage collection: rare until a run begins, since imports make many long-lived objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "rare", "usual"]

_USUAL = gc.get_threshold()


def rare() -> None:
    """Collect rarely until ``usual``: the default took 60 of 450 ms of a short command."""
    gc.set_threshold(1_000_000, *_USUAL[1:])


def usual() -> None:
    """Restore Python's default, and exempt all objects that exist now; idempotent."""
    if gc.get_threshold() != _USUAL:
        gc.freeze()
        gc.set_threshold(*_USUAL)


@contextmanager
def paused(large: bool = True) -> Iterator[None]:
    """Pause garbage collection while many objects are made, if they are many (``large``)."""
    pauses = large and gc.isenabled()
    if pauses:
        gc.disable()
    try:
        yield
    finally:
        if pauses:
            gc.enable()
