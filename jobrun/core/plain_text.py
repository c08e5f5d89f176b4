"""User text in a form that is safe to show on a terminal."""

from __future__ import annotations

__all__ = ["plain"]

_ESCAPES = {c: f"\\x{c:02x}" for c in [*range(0x20), *range(0x7F, 0xA0)] if c not in (0x09, 0x0A)}
_ESCAPES |= {0xDC00 + c: f"\\x{c:02x}" for c in range(0x80, 0x100)}  # bytes that are no text
_ESCAPES |= {
    c: f"\\u{c:04x}" for c in [0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
}
"""By character: controls, and those of Unicode that break lines or turn the direction of a text."""


def plain(text: object) -> str:
    """Return the text without control characters: an escape in a name shows as ``\\x1b``.

    So do those that reverse what follows: ``\\u202e``.  Tabs and line feeds stay.
    A byte of a path that is not valid text shows as ``\\xff``.
    """
    return str(text).translate(_ESCAPES)
