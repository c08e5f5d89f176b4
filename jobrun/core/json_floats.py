"""Floats that JSON does not have, as strings: one spelling, and one tagged form.

The spelling is zarr's: ``NaN``, ``Infinity``, ``-Infinity``; a NaN other than the usual one is its
bits, ``0x`` and 16 hexadecimal digits.  Where a number is expected the string stands for itself;
where any JSON value is allowed it is tagged: ``{"float": "NaN"}``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Any

__all__ = [
    "SPECIAL",
    "float_text",
    "from_json",
    "is_tagged",
    "parse_float",
    "special_name",
    "to_json",
]

SPECIAL: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The floats that JSON does not have, by their names."""

_TAG = "float"
_TEXT = re.compile(r"NaN|-?Infinity|0x[0-9a-f]{16}|nan|-?inf")
"""``nan`` and ``inf`` are how run.json and sweep.json of earlier versions spell them."""
_USUAL_NAN = "7ff8000000000000"


def special_name(value: float) -> str:
    """Return the name of a float that is not finite; that of all NaNs is ``NaN``."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def float_text(value: float) -> str:
    """Return a float that is not finite as a string, from which its bits are read back."""
    bits = struct.pack(">d", value).hex()
    return "0x" + bits if math.isnan(value) and bits != _USUAL_NAN else special_name(value)


def parse_float(text: str) -> float:
    """Return the inverse of ``float_text``; raises ValueError for any other string."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not the spelling of a non-finite float")
    if text.startswith("0x"):
        number: float = struct.unpack(">d", bytes.fromhex(text[2:]))[0]
        return number
    return float(text)


def to_json(value: Any) -> Any:
    """Return ``value`` as strict JSON: numpy scalars as Python's, special floats tagged."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_TAG: float_text(value)}
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    """Return the inverse of ``to_json``."""
    if isinstance(value, dict):
        if is_tagged(value):
            return parse_float(value[_TAG])
        return {key: from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [from_json(item) for item in value]
    return value


def is_tagged(value: Any) -> bool:
    """Return whether a JSON value is a tagged float."""
    if type(value) is not dict or value.keys() != {_TAG}:
        return False
    return type(value[_TAG]) is str and _TEXT.fullmatch(value[_TAG]) is not None
