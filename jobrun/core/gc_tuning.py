"""Garbage collection: rare until a run begins, since imports make many objects that all stay."""

from __future__ import annotations

import gc

__all__ = ["rare", "usual"]

_USUAL = gc.get_threshold()


def rare() -> None:
    """Collect seldom, until ``usual``; as usual it took 60 of 450 ms of a short command."""
    gc.set_threshold(50_000, *_USUAL[1:])


def usual() -> None:
    """Collect as Python does, and leave alone what is there now; nothing where that is so."""
    if gc.get_threshold() != _USUAL:
        gc.freeze()
        gc.set_threshold(*_USUAL)
