"""JSON from untrusted files: bounded in size, depth and number of values.

A few megabytes of ``[[],[],…`` become gigabytes of lists, and deep nesting exhausts the recursion
limit of code that walks the result.  So the size and the number of values are checked before
anything is parsed, and the depth before the result is returned.
"""

from __future__ import annotations

import json
import re
from typing import Any

from jobrun.storage.regular_file import size_text

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_VALUES",
    "JsonLimitError",
    "check_depth",
    "check_length",
    "parse_json",
]

MAX_BYTES = 64 << 20
MAX_DEPTH = 100
MAX_VALUES = 2_000_000
"""About 150,000 blobs in a manifest, which take some 200 MB when parsed."""

_CONTAINERS = (dict, list)
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Matches a string, and one that is not closed to its end: searching again in it takes for ever."""


class JsonLimitError(ValueError):
    """JSON that exceeds a limit of length, depth or number of values."""


def parse_json(data: bytes, *, max_depth: int | None = MAX_DEPTH) -> Any:
    """Return the value of a JSON text.

    Raise JsonLimitError, naming the limit, if it is too long, too deep or has too many values, and
    ValueError if it is not JSON.  ``max_depth`` is None for callers that check the form of
    everything they use.
    """
    check_length(data)
    try:
        value = json.loads(data)
    except RecursionError:
        raise _too_deep(max_depth or MAX_DEPTH) from None
    if max_depth is not None and data.count(b"[") + data.count(b"{") > max_depth:
        check_depth(value, max_depth)
    return value


def check_length(data: bytes) -> None:
    """Raise JsonLimitError if a JSON text is longer, or has more values, than ``parse_json`` reads.

    Writers call it too, so that nothing is written that could not be read again.
    """
    if len(data) > MAX_BYTES:
        raise JsonLimitError(f"it is longer than {size_text(MAX_BYTES)}")
    if len(data) < MAX_VALUES:  # a value has a byte at least
        return
    if _marks(data) >= MAX_VALUES and _marks(_without_texts(data)) >= MAX_VALUES:
        raise JsonLimitError(f"it has more than {MAX_VALUES:,} values")


def _without_texts(data: bytes) -> bytes:
    """Return the JSON without its strings, which may contain any punctuation."""
    if b"\\" in data:
        return _TEXT.sub(b"", data)
    return b"".join(data.split(b'"')[::2])


def _marks(data: bytes) -> int:
    """Return a lower bound of the number of values, less one.

    Each value is the first of a container or follows a comma.
    """
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def check_depth(value: Any, most: int) -> None:
    """Raise JsonLimitError if a value is nested deeper than ``most`` levels; needs no recursion."""
    level = [value] if isinstance(value, _CONTAINERS) else []
    depth = 0
    while level:
        depth += 1
        if depth > most:
            raise _too_deep(most)
        level = [
            below
            for container in level
            for below in (container.values() if type(container) is dict else container)
            if type(below) in _CONTAINERS
        ]


def _too_deep(most: int) -> JsonLimitError:
    return JsonLimitError(f"it is nested more than {most} levels deep")
