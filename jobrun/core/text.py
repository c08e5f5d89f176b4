"""Times, bytes and lists as people write and read them: ``90s``; ``12.3 MB``; ``a, b or c``."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["TIMES", "amount_of", "duration", "either", "seconds_of", "size", "span"]

TIMES = "a time (90s, 15m, 2h, or a number of seconds)"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?(?:([kKMGT])(i?))?B")
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``90s``, ``15m``, ``2h`` or ``1h30m``; None for other strings."""
    match = _DURATION.fullmatch(text.replace(" ", ""))
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def span(seconds: float) -> str:
    """Return whole seconds as ``45s``, ``3m20s``, ``15m`` or ``2h30m``; see ``seconds_of``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if minutes:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    return f"{rest}s"


def duration(seconds: float) -> str:
    """Return seconds for display: ``3.2 ms``, ``0.21 s``, ``12.3 s``, ``4m05s``, ``2h03m``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m"


def size(count: int) -> str:
    """Return bytes for display, in powers of 1000."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB" if amount < 999.5 else f"{amount:.0f} TB"


def amount_of(value: object) -> float | None:
    """Return a number of 0 or more, or the bytes of ``8GB`` or ``8 GiB``; None for others."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < float("inf") else None
    match = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, unit, binary = match.groups()
    base = 1024 if binary else 1000
    return float(number) * float(base ** (" KMGT".index(unit.upper()) if unit else 0))


def either(names: Sequence[str]) -> str:
    """Return names as alternatives: ``a, b or c``."""
    return " or ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
