"""Numbers of single steps, logged from inside of a function, for reporters."""

from __future__ import annotations

import threading
from typing import Any

from jobrun.core.current_task import IN_MAP, Place, batch_here, here
from jobrun.core.events import StepLogged
from jobrun.errors import UsageError
from jobrun.session.current import current

__all__ = ["log"]


class _Local(threading.local):
    """Calls of ``log`` by the task of ``place``, by the first name in them."""

    place: Place | None = None
    calls: dict[str, int]


_local = _Local()


def log(*, every: int = 1, **values: Any) -> None:
    """Report numbers of this step under their names: ``jobrun.log(loss=loss, every=50)``.

    In a ``do`` step of a pipe a step is a batch, in other tasks a call of ``log``; of those whose
    number, counted from 1 in each epoch, is not a multiple of ``every``, nothing is read.
    A value is a number or has one element.  A resumed run replaces what it repeats.  The numbers
    are for reporters and ``jobrun metrics --steps``: they are in no checkpoint, and no metrics.

    Outside of a task it does nothing, so that a function can be used by itself too.  Raises
    UsageError in a ``map`` step, ValueError for values that are no numbers.
    """
    place = here()
    if place is None:
        return
    number = batch_here() or _count(place, next(iter(values), ""))
    if number == IN_MAP:
        raise UsageError(
            "jobrun.log() in a 'map' step, which runs ahead of its batch",
            hint="call it in a 'do' step",
        )
    if every < 1:
        raise ValueError(f"expected 'every' of 1 or more, got {every!r}")
    if number % every:
        return
    running = current()
    if running is not None:
        numbers = {name: _number(name, value) for name, value in values.items()}
        running.control.report(
            StepLogged(running.task, running.node, running.epoch, number, numbers, running.batches)
        )


def _count(place: Place, name: str) -> int:
    """Return the number of this call among those of its task that begin with the same name."""
    if _local.place is not place:
        _local.place, _local.calls = place, {}
    number = _local.calls[name] = _local.calls.get(name, 0) + 1
    return number


def _number(name: str, value: Any) -> float:
    """Return a value as a float; raises ValueError, naming it, for one that is not a number."""
    try:
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(value).__name__
        raise ValueError(f"expected a number for {name!r}, got a {kind}: {error}") from error
