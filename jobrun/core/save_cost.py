"""The share of the time that saves take: from when it is reported, and what makes it smaller."""

from __future__ import annotations

import math

from jobrun.core.text import span

__all__ = ["SHARE", "less_often"]

SHARE = 0.1
"""The share of the time in checkpoints above which a run reports it."""

_AIM = 0.05
"""The share that is aimed at."""

_HOUR = 3600
_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, _HOUR)
"""The intervals in seconds that are proposed; beyond, whole hours."""


def less_often(saves: int, waited: float, epochs: int, seconds: float) -> str:
    """Return how to save less often, for a run that has done ``saves`` saves in ``seconds``.

    ``waited`` are those of the seconds that it waited for them, ``epochs`` the epochs that it ran.
    An interval of epochs is proposed where an epoch is shorter than the interval, so that
    checkpoints are at the ends of epochs, where they have metrics; else one of seconds.
    """
    between = waited / saves * (1 / _AIM - 1)
    epoch = (seconds - waited) / epochs if epochs > 0 else 0.0
    if 0 < epoch < between:
        every = str(_round_up(between / epoch))
    else:
        longer = (step for step in _STEPS if step >= between)
        every = f"{{seconds: {span(next(longer, math.ceil(between / _HOUR) * _HOUR))}}}"
    return f"'checkpoint: {{every: {every}}}' makes it about {_AIM:.0%}"


def _round_up(number: float) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50, … to a number of 1 or more."""
    power = int(10 ** math.floor(math.log10(number)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= number)
