"""How numbers, sizes, times and the user's text are written, for every reporter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "duration",
    "json_values",
    "metric_texts",
    "number",
    "plain",
    "plural",
    "statistics",
    "value_text",
]

_ESCAPES = {c: f"\\x{c:02x}" for c in [*range(0x20), *range(0x7F, 0xA0)] if c not in (0x09, 0x0A)}
_ESCAPES |= {0xDC00 + c: f"\\x{c:02x}" for c in range(0x80, 0x100)}  # bytes that are no text


def plain(text: object) -> str:
    """Text without control characters: an escape in a user's name shows as ``\\x1b``.

    A byte of a path that is no text shows as ``\\xff`` too.
    """
    return str(text).translate(_ESCAPES)


def number(value: Any) -> str:
    """A scalar in a few characters: five digits of a float, all of an int."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.5g}"
    return plain(value)


def plural(count: int, what: str) -> str:
    """``1 epoch``, ``2 epochs``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds for people: ``3.2 ms``, ``0.21 s``, ``12.3 s``, ``4m05s``, ``2h03m``."""
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


def metric_texts(metrics: Mapping[str, Any], best: tuple[str, ...] = ()) -> list[str]:
    """``loss 0.21*`` for each metric; the star marks the best of the run so far."""
    return [f"{plain(m)} {number(v)}{'*' if m in best else ''}" for m, v in metrics.items()]


def value_text(value: Any) -> str:
    """A value, or nested lists of values, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return plain(repr(value)) if isinstance(value, str) else number(value)


def statistics(facts: Mapping[str, Any]) -> str:
    """The values of a small array, else min, mean and max, of what ``blobs.describe`` says."""
    if "value" in facts:
        return value_text(facts["value"])
    parts = [f"{k} {number(facts[k])}" for k in ("min", "mean", "max") if k in facts]
    parts += [f"{facts['not_finite']} not finite"] if "not_finite" in facts else []
    return "  ".join(parts)


def json_values(value: Any) -> Any:
    """``value`` as strict JSON: NaN and infinities become ``"NaN"``, ``"Infinity"``, …."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(k): json_values(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(v) for v in value]
    if hasattr(value, "item"):
        return json_values(value.item())
    return value
