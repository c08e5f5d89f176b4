"""User text in a form that is safe to show on a terminal."""

from __future__ import annotations

__all__ = ["plain"]

_ESCAPES = {c: f"\\x{c:02x}" for c in [*range(0x20), *range(0x7F, 0xA0)] if c not in (0x09, 0x0A)}
_ESCAPES |= {0xDC00 + c: f"\\x{c:02x}" for c in range(0x80, 0x100)}  # bytes that are no text


def plain(text: object) -> str:
    """Return the text without control characters: an escape in a name shows as ``\\x1b``.

    A byte of a path that is not valid text shows as ``\\xff``.
    """
    return str(text).translate(_ESCAPES)
