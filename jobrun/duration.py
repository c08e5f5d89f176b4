"""Spans of time as people write them: ``90s``, ``15m``, ``2h``, ``1h30m``."""

from __future__ import annotations

import re

__all__ = ["TIMES", "duration", "span"]

TIMES = "a time (90s, 15m, 2h, or a number of seconds)"
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def duration(text: str) -> float | None:
    """Seconds of ``90s``, ``15m``, ``2h`` or ``1h30m``; None for another text."""
    match = _DURATION.fullmatch(text.replace(" ", ""))
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def span(seconds: float) -> str:
    """Whole seconds as ``45s``, ``3m20s``, ``15m`` or ``2h30m``; ``duration`` reads it."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if minutes:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    return f"{rest}s"
