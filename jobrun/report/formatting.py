"""The form of numbers, sizes, times and the user's text in all reporters."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from jobrun.core.json_floats import special_name
from jobrun.core.plain_text import plain

__all__ = [
    "json_line",
    "json_values",
    "metric_texts",
    "number",
    "percent",
    "plain",
    "plural",
    "statistics",
    "uncoloured",
    "uses_unicode",
    "value_text",
    "visible",
    "why_not_saved",
]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")

_TAB = 8


def visible(line: str) -> str:
    r"""Return what a terminal shows of a line: the text after the last ``\r``, tabs as spaces.

    Colours stay, and a line with colours ends with the usual one; other escapes are left out.
    """
    line = line.rstrip("\r").rpartition("\r")[2]
    kept, place, column = [], 0, 0
    for match in _SEQUENCE.finditer(line):
        kept += [_without_tabs(line[place : match.start()], column)]
        column += len(kept[-1])
        kept += [match[0]] if _COLOUR.fullmatch(match[0]) else []
        place = match.end()
    kept.append(_without_tabs(line[place:], column))
    return "".join([*kept, "\x1b[0m"] if place else kept)


def _without_tabs(text: str, column: int) -> str:
    """Return a text that begins at ``column`` with spaces for tabs, which erase nothing."""
    before = column % _TAB
    return (" " * before + plain(text)).expandtabs(_TAB)[before:]


def uncoloured(line: str) -> str:
    r"""Return what a file keeps of a line: the text after the last ``\r``, without colours."""
    return plain(_COLOUR.sub("", line).rstrip("\r").rpartition("\r")[2])


def number(value: Any) -> str:
    """Return a scalar in a few characters: five digits of a float, all of an int."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "-"}[value]
    if isinstance(value, float):
        return f"{value:.5g}"
    return plain(value)


def percent(share: float) -> str:
    """Return ``12%`` or ``0.3%``: one decimal below ten percent; ``<0.1%`` above zero."""
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 or not share else f"{share:.1%}"


def plural(count: int, what: str) -> str:
    """Return ``1 epoch``, ``2 epochs``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def why_not_saved(id: int, message: str) -> str:
    """Return the message of a failed save, for a line that already names the checkpoint."""
    return message.removeprefix(f"checkpoint {id} was not saved: ")


def metric_texts(metrics: Mapping[str, Any], best: tuple[str, ...] = ()) -> list[str]:
    """Return ``loss 0.21*`` for each metric; the star marks the best of the run so far."""
    return [f"{plain(m)} {number(v)}{'*' if m in best else ''}" for m, v in metrics.items()]


def value_text(value: Any) -> str:
    """Return a value, or nested lists of values, on one line."""
    if isinstance(value, list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return plain(repr(value)) if isinstance(value, str) else number(value)


def statistics(facts: Mapping[str, Any]) -> str:
    """Return the values of a small array, else min, mean and max, from ``blobs.describe``."""
    if "value" in facts:
        return value_text(facts["value"])
    parts = [f"{k} {number(facts[k])}" for k in ("min", "mean", "max") if k in facts]
    parts += [f"{facts['not_finite']} not finite"] if "not_finite" in facts else []
    return "  ".join(parts)


def json_values(value: Any) -> Any:
    """Return ``value`` as strict JSON: NaN and infinities become ``"NaN"``, ``"Infinity"``, …."""
    if isinstance(value, float) and not math.isfinite(value):
        return special_name(value)
    if isinstance(value, Mapping):
        return {str(k): json_values(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(v) for v in value]
    if hasattr(value, "item"):
        return json_values(value.item())
    return value


_STRICT = json.JSONEncoder(allow_nan=False)


def json_line(values: dict[str, Any]) -> str:
    """Return ``values`` with the time in front, as strict JSON in ASCII, and a line feed."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        return _STRICT.encode({"time": now, **values}) + "\n"
    except (TypeError, ValueError):  # a NaN, or a value of numpy
        return _STRICT.encode({"time": now, **json_values(values)}) + "\n"


def uses_unicode(stream: TextIO) -> bool:
    """Return whether lines and arrows beyond ASCII may be drawn: not under LC_ALL=C."""
    encoding = (stream.encoding or "").lower().replace("-", "")
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return encoding == "utf8" and next(filter(None, names), "") not in ("C", "POSIX")
